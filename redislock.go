// Package redislock locks one or more keys on Redis, all or none.
//
// A lock is one Redis key for each resource. All of its keys hold the same token and have a time to live (ttl), after
// which Redis frees them if the holder does not. [Client.ObtainMulti] acquires every key or none. The [Lock] that it
// returns refreshes and releases the keys, and says until when they are certainly held.
//
// # Guarantees
//
// Before its [Lock.Until], a lock shares none of its keys with a valid lock of another token, as long as Redis keeps
// what it acknowledged and the clocks of the machines run at speeds that differ by less than 1 %. Validity counts from
// before the request was sent. One Lua script acquires, refreshes or checks all keys of a lock as a whole. A call
// returns when its ctx ends, whatever the network does; a Release that begins after that takes up to a second. The
// library releases in the background what an abandoned obtain may have acquired; at the latest, those keys expire with
// their ttl.
//
// # Limits
//
// A server that loses data loses locks: by a restart without persistence, a failover that drops the last writes, or an
// eviction. Where that matters, set [Options.FenceKey] and let the resource refuse any fencing token that is lower than
// one it has seen. On a Redis Cluster, all keys of one lock share a hash tag, unless you set [Options.AcrossSlots]. On
// a [redis.Ring] they always do, and it looks for keys on other shards while one is down. The file docs/guarantees.md
// says what holds under which fault.
//
// # Waiting
//
// With [Options.Queue], a refused obtain waits in line: first come, first served, wherever key sets overlap, across
// processes and machines, until it is granted or ctx ends. A release wakes the first waiter. Without Queue, a refused
// obtain tries again as [Options.RetryStrategy] says, until ctx ends, or for one ttl if ctx has no deadline. With
// neither, an obtain tries once.
//
// # Keeping a lock
//
// [Client.Do] runs a function under a lock and renews the lock meanwhile. [Lock.KeepAlive] renews a lock until it is
// told to stop. If the lock is lost, the contexts of both end no later than Until, and say why.
//
// # Watching
//
// With [WithTracer], a Client reports to a [Tracer] what happens to its locks. [LogTracer] writes that to a logger, and
// the module redislockotel feeds OpenTelemetry. With [Options.Explain], a refusal is a [*RefusedError]: it says which
// key blocks the call, and who holds that key.
//
// # Errors
//
// [ErrNotObtained] and [ErrLockNotHeld] are plain sentinels. If only some keys of a lock are lost, the error is a
// [*LostError]. A call with unusable arguments sends nothing and returns an error that wraps [ErrInvalid]. Errors of
// Redis and the network are wrapped, with the operation and the keys.
package redislock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
)

// RedisClient is the Redis that locks live on: a [*redis.Client] (for one server, or behind Sentinel), a
// [*redis.ClusterClient], a [*redis.Ring], or another type, such as one of your own that embeds one of these or a
// [redis.UniversalClient].
//
// Calls that are made at the same time share pipelines. The hooks of a go-redis client see a call that goes by itself
// with the values of the caller's ctx. They see shared calls as pipelines, without the values of any ctx; on a Cluster
// and a Ring, only the hooks of the nodes' clients see them. A renewal of KeepAlive or Do goes in a pipeline even if it
// is alone, except where no calls share.
//
// A hook may change the arguments of a command, for example to put a prefix before each key. If it changes those of a
// call that goes by itself, then no calls share any more, renewals carry the values of the ctx that KeepAlive was
// given. No calls of a Client share before its first one has been answered, so the library always notices a hook that
// changes the first call before any calls share. Pass [WithSeparateCalls] to [New] for a hook that must see each
// command, that changes only some of them, or that sends another command instead.
//
// If a hook panics, the call panics in the goroutine of its caller.
//
// Through any other type, except a *redis.Conn, the library sends each call by itself, by EvalSha and Eval of that type. So
// a type that overrides them to count calls, or to put a prefix before each key, sees every call, and whether calls are
// resent is up to that type. In return, no calls share pipelines: if your type overrides neither, pass the client that it
// embeds. What else such a type can do, the library asks once, in New:
//   - If it has Subscribe, waiters in line are woken. Subscribe must receive what the scripts publish. If it also has
//     Options, as a *redis.Client has, releases hand keys over.
//   - If it, or what it embeds to run scripts, has Options of a *redis.Client, MasterForKey of a *redis.ClusterClient, or
//     GetShardClientForKey of a *redis.Ring, then the library treats it as that kind: for [Options.AcrossSlots], and to
//     refuse keys without a common hash tag on a Ring. Otherwise it treats the type as one server.
//
// No other method is called, even if the type overrides it, except WithTimeout: if ReadTimeout is off or over 5 s, the
// library subscribes by the client that WithTimeout returns.
//
// A [*redis.Conn] is one connection. Calls wait for each other, and waiters are not woken. When the connection breaks, the
// locks can no longer be renewed or released through it.
type RedisClient interface {
	redis.Scripter
}

// Client obtains locks on one Redis, or on those of [NewQuorum]. It is safe for concurrent use. It is cheap: at rest, it
// has no connection of its own and no goroutine, and all Clients of one Redis client share the connection on which waiters
// get messages, the renewals and their pipelines. So a program may make a Client for each request. The caller closes the
// Redis client, after the Clients.
type Client struct {
	unusable error   // why nothing can be sent; nil if something can
	tracer   *Tracer // never nil
	config   place.Config
	closed   chan struct{}  // closed by Close
	one      *place.Place   // the Redis; nil for a quorum
	quorum   *several.Group // its servers; nil for one Redis
	obtains  atomic.Int64   // under way at several places, until they have begun the cleanups

	mu       sync.Mutex // protects isClosed
	isClosed bool
}

// New returns a Client that keeps its locks on client. It skips nil options and does no I/O. If client is nil, embeds a
// nil to run scripts, or is a [redis.Pipeliner], which would queue scripts instead of running them, every later call
// returns an error that wraps [ErrInvalid].
func New(client RedisClient, opts ...ClientOption) *Client {
	return newClient(client, newClientOptions(opts))
}

// newClient is New with its options.
func newClient(client RedisClient, set clientOptions) *Client {
	c := set.client()
	c.one, c.unusable = place.New(client, &c.config)
	return c
}

// newShort returns a Client for a single call. No subscription lingers for it.
func newShort(client RedisClient) *Client {
	return newClient(client, clientOptions{tracer: silent, short: true})
}

// Options say how to obtain a lock. A nil *Options and the zero value ask for one try, with a random token and no
// metadata. The library only reads Options, so any number of calls and goroutines can share one value.
type Options struct {
	// RetryStrategy says how often and how long to try again after a refusal and, on a quorum, after a try that decided
	// nothing. Each call starts it afresh. The default nil means one try. On one server, and across slots, an error of Redis
	// or the network ends the call, also one that may pass, after its resends: Queue waits for the end of those. With Queue,
	// RetryStrategy only sets how often a waiter tries if no message can reach it: see Queue.
	RetryStrategy RetryStrategy

	// Metadata is stored beside the token in every key of the lock, for anyone who inspects the key. It may hold any
	// bytes. [ProcessMetadata] makes a good default. In a Refresh, "" keeps what is stored.
	Metadata string

	// Token identifies the holder. The default "" means 16 random bytes, as 22 base64url characters. A call with the
	// token of an existing lock acquires the keys of that lock again and shares it, so choose a token that nobody else
	// can have. Do not call Obtain with the same token twice at the same time: the call that fails gives back keys on which
	// the other may rely. The call first waits until what earlier calls of this Client with the same token have left under
	// way has ended, as far as it concerns the keys: for milliseconds or, after a lost reply, until the Redis client's
	// ReadTimeout. If these only fail, the call returns their error after a second; with Queue and a deadline, it goes on
	// waiting. After you abandon an obtain or a release with a custom token, wait for one ttl before you use that token
	// through another Client. A token must not contain white space or control characters. On a quorum of servers, and with
	// AcrossSlots for keys without a common hash tag, a Token is an error that wraps [ErrInvalid]: there the library chooses
	// the token, and [Client.Attach] resumes or shares the lock.
	Token string

	// FenceKey names a counter on the same Redis. Each successful obtain mints a fencing token from it, a number higher
	// than every one before: see [Lock.FenceToken]. On a quorum of servers, two obtains that overlap in time and have no
	// key in common can get the same token. The counter has no expiry; it belongs to the resource, not to the lock, and
	// cannot be one of its keys. The default "" mints none. On a Cluster and a Ring, the counter needs the hash tag of the
	// keys.
	FenceKey string

	// Queue makes a refused obtain wait in line until it is granted or ctx ends. Only ctx limits the wait. The default
	// false does not wait in line. With Queue, a key that contains a brace must have a hash tag. Keys like a{a}, in
	// which the hash tag repeats the rest, cannot be used.
	//
	// Waiters are served in the order in which they came, wherever their keys overlap, whatever Client, process or
	// machine they belong to. A key with a waiter is not free: an obtain that comes later is refused, with Queue or
	// without. A caller whose token already holds one of the keys skips the line.
	//
	// A release hands its keys to the first waiter at once if that waiter wants only these keys, has a random token,
	// has at most 1 KiB of metadata, and has either no FenceKey or that of the released lock. Otherwise a message wakes
	// the first waiter, and it tries. When the holder's ttl ends, the first waiter tries without a message.
	//
	// Every waiter also tries at least once a second, as a sign of life. Where many wait for many keys, it tries less
	// often, so that all of these tries take at most a tenth of the server's time. After three such intervals without a
	// sign of life, a waiter is passed over. If it comes back, it still has its place in the order. With a
	// *redis.Client, a release passes over a waiter whose process was killed, if it can serve another one. A waiter
	// that was stopped just before its turn may be handed the lock, which then lasts for its ttl. A lost message costs
	// at most one interval.
	//
	// If ctx has a deadline, errors of Redis or the network that may pass do not end the wait. The file docs/guarantees.md
	// lists them. The error of a wait that ctx has ended wraps the last of them. Without a deadline, they do not end the
	// wait once the call has been refused; before that, any error ends it, because a wrong address would make it wait for
	// ever (on a quorum, an error that may pass ends it after 2 s). Other errors always end it.
	//
	// Messages reach a *redis.Client and a *redis.ClusterClient that may SUBSCRIBE, also through a type that embeds one.
	// One connection serves all waiters with that Redis client, whatever Clients they belong to, or one for each node of a
	// Cluster that has keys for which they wait. It closes 10 s after the last of them; at once if all Clients that had
	// waiters are closed, or if these were the functions of this package. If waiters find out several times that messages
	// do not arrive, because the name of the server leads to another one since then, the library subscribes again. Only
	// waiters with a *redis.Client are handed keys directly. With a Ring, a type without Subscribe (see [RedisClient]), or a
	// user who may not use the channel, waiters stand in the same line and try each interval, or as often as RetryStrategy
	// says. The file docs/line.md has the details.
	Queue bool

	// AcrossSlots lets the keys of a lock be in different slots of a Cluster. Redis cannot lock them in one step, so
	// the library locks those of each slot and gives all back if one refuses: all or none in the outcome. It costs a
	// request for each slot, and a try that is refused may hold some keys for a moment. FenceKey then may be in any
	// slot. Without Queue, a retry asks one slot after the other, always in the same order, so that callers cannot
	// refuse each other for ever. Waiters are woken as Queue says, and no release hands keys over to them. If keys of
	// several slots are lost, the error that ends KeepAlive or Do may name those of one slot only. The default false
	// returns an error for such keys. It makes no difference to keys of one slot, to one server, to a Ring, where the
	// keys of a lock always need one hash tag, and with a type that does not say where keys are: see [RedisClient].
	AcrossSlots bool

	// Explain makes the error of a refusal say what blocks the call: it is a [*RefusedError], which matches
	// [ErrNotObtained] but is not equal to it. For this, the library asks Redis right after the first refusal. If more
	// tries follow and the last one is refused as well, it asks once more. Explain has no other cost. The library waits
	// up to 250 ms for each answer, and up to 20 ms if ctx has ended. The holder may change between the try and the
	// question. The default false asks nothing.
	Explain bool
}

// Obtain acquires the lock on one key; see [Client.ObtainMulti].
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.obtain(ctx, []string{key}, ttl, opt)
}

// ObtainMulti acquires the lock on all keys or on none of them, for ttl. A key that is named twice is locked once.
// A key must not be empty, and must not end in ":redislock:line". A key can be acquired if it is free or already holds
// the same [Options.Token]. For keys with that token, the call replaces the metadata and never shortens the remaining
// ttl; one without expiry gets the ttl.
//
// One script acquires all keys; across slots, one script in each slot. It takes the server 2 to 8 µs per key, in which
// Redis serves nobody else; a Refresh, a renewal or a Release takes about half as long. A script can hold 1,000,000
// keys. docs/redis.md has figures, and says what else limits the number.
//
// ttl is at least 2 ms and is truncated to whole milliseconds. It starts before the request is sent, so that
// [Lock.Until] can be relied on. If a grant arrives after its validity has ended, the library gives the keys back. The
// call then tries again as after a refusal, but the second such grant in a row ends it: answers take longer than the ttl
// lasts.
//
// ObtainMulti blocks until the lock is granted, the strategy stops or ctx ends. With a strategy and no deadline on ctx,
// it gives up after one ttl. With [Options.Queue], it waits in line until ctx ends. It returns within milliseconds of
// the end of ctx, whatever Redis does. In the background, the library then gives up the place in line and releases what
// an unanswered request may have acquired. With a custom token, it releases only those keys that a late reply reports
// as newly acquired.
//
// It returns:
//   - [ErrNotObtained] if another holder has one of the keys, or callers wait in line for one, and the strategy allows
//     no further try; a [*RefusedError], which matches it, with [Options.Explain];
//   - an error that matches both [ErrNotObtained] and ctx.Err() (and [context.Cause], where that differs) if ctx ended
//     first, or the ttl that limits a ctx without a deadline. If the last try was not refused, the error also wraps how
//     that try failed: with an error of Redis or the network, or without an answer. So an outage does not look like a
//     lock that another holds;
//   - an error that matches [ErrNotObtained] and [ErrLapsed], and says how long the answer took, if the lock was granted
//     but had lapsed when the grant arrived. If it is the ttl that limits the call, and there was no answer within it, the
//     error of the second kind matches ErrLapsed as well;
//   - an error that wraps [ErrInvalid], and says why, if the arguments cannot be used; nothing was sent then;
//   - [ErrClosed] if the Client is closed;
//   - any other error from Redis or the network, wrapped. Such an error ends the call, except that the library resends
//     for a short time after a failure that may pass, and that with [Options.Queue] it waits for the end of such failures:
//     from the first try on if ctx has a deadline, and after a refusal if it has none. One of these errors is WRONGTYPE,
//     for a key that does not hold a string.
func (c *Client) ObtainMulti(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.obtain(ctx, script.Unique(keys), ttl, opt)
}

// Obtain is short for New(client).Obtain(…).
func Obtain(ctx context.Context, client RedisClient, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return newShort(client).Obtain(ctx, key, ttl, opt)
}

// ObtainMulti is short for New(client).ObtainMulti(…).
func ObtainMulti(ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return newShort(client).ObtainMulti(ctx, keys, ttl, opt)
}

// closeGrace is how long Close waits for cleanups that run.
const closeGrace = time.Second

// Close ends every wait for a lock, and every context of KeepAlive and Do, with [ErrClosed]. It ends those of this Client
// only, and not those of other Clients of the same Redis client.
//
// From then on, Obtain, ObtainMulti, Do, Attach, Inspect and Line return ErrClosed. Locks that are held stay held but
// are no longer renewed; their TTL, Refresh and Release keep working. Close waits up to a second for waiters to give up
// their places, for releases in the background, for a Refresh of a lock with [Options.Token], and for calls at other
// servers or slots that go on after an Obtain or a Release has returned. So call it before you close the Redis client,
// and before the process ends. It always returns nil and may be called again.
func (c *Client) Close() error {
	if c == nil || c.closed == nil {
		return nil
	}
	c.shut()
	for enough := time.Now().Add(closeGrace); c.busy() && time.Now().Before(enough); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// shut does the work of Close, without the wait.
func (c *Client) shut() {
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		close(c.closed)
	}
	c.mu.Unlock()
	var wait sync.WaitGroup
	for _, p := range c.places() {
		wait.Go(p.Shut)
	}
	wait.Wait()
}

// places returns the Redis, or the servers, of the Client; none if New could not use what it was given.
func (c *Client) places() []*place.Place {
	switch {
	case c.quorum != nil:
		return c.quorum.Places()
	case c.one != nil:
		return []*place.Place{c.one}
	}
	return nil
}

// busy reports whether anything must still be given up: by an obtain at several places, or at one.
func (c *Client) busy() bool {
	return c.obtains.Load() > 0 || slices.ContainsFunc(c.places(), (*place.Place).IsBusy)
}

// usable returns an error if nothing can be sent: New could not use its client, ctx is nil, a key cannot be locked, or
// the Client is closed. It does no I/O.
func (c *Client) usable(ctx context.Context, keys []string) error {
	switch {
	case c == nil || c.closed == nil:
		return fault.Invalid("the Client is nil or was not made by New")
	case c.unusable != nil:
		return c.unusable
	case ctx == nil:
		return fault.ErrNilContext
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	if fault.IsClosed(c.closed) {
		return ErrClosed
	}
	return nil
}
