// Package redislock locks several resources at once, all or none, on the Redis that is already there.
//
// A lock is one Redis key for each resource, all holding the same token, and a time to live (ttl) after which Redis
// frees them if the holder does not. [Client.ObtainMulti] takes every key or none; the [Lock] it returns refreshes
// them, releases them and tells how long they last.
//
// # Guarantees
//
// Two tokens are never both valid for one key, each before its [Lock.Until], as long as Redis itself keeps what it
// acknowledged and the clocks of the machines run at speeds that differ by less than 1 %. Validity is counted from
// before the request was sent. A set of keys is taken, refreshed and judged as a whole, by one Lua script. A call
// returns when its ctx ends, whatever the network does, and what an obtain that was given up has taken after all is
// released in the background, and lapses with its ttl at the latest.
//
// # Limits
//
// A server that forgets (a restart without persistence, a failover that drops the last writes, eviction) forgets locks
// as well. Where that matters, pass [Options.FenceKey] and let the resource itself refuse a fencing token that is lower
// than one it has seen. On a Redis Cluster all keys of one lock share a hash tag; a [redis.Ring] moves keys to other
// shards when one is down. The file docs/guarantees.md tells what holds under which fault.
//
// # Waiting
//
// With [Options.Queue] a refused obtain waits in line: first come, first served wherever key sets overlap, across
// processes and machines, until it is granted or ctx ends. Nobody polls: who releases wakes the first of the line.
// Otherwise a refused obtain is repeated as [Options.RetryStrategy] says, until ctx ends, or for one ttl where ctx has
// no deadline. Without either there is one try.
//
// # Keeping a lock
//
// [Client.Do] runs a function under a lock that is renewed meanwhile, and [Lock.KeepAlive] renews one for as long as it
// is wanted. Their contexts end no later than Until when the lock is lost, and tell why.
//
// # Watching
//
// [WithTracer] tells a [Tracer] what happens to the locks of a Client; [LogTracer] writes it to a logger, and the module
// redislockotel feeds OpenTelemetry. With [Options.Explain] a refusal is a [*RefusedError], which says what is in the way.
//
// # Errors
//
// Plain decisions are plain sentinels, made to be compared: [ErrNotObtained] and [ErrLockNotHeld]. A lock of which some
// keys are lost and others are not is a [*LostError]. A call with unusable arguments is [ErrInvalid] with words, before
// anything was sent. What Redis or the network reports comes back wrapped, with the operation and the keys.
package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// RedisClient is the Redis that locks live on: a [*redis.Client] (for one server or behind Sentinel), a
// [*redis.ClusterClient], a [*redis.Ring], or a type of the caller's own.
//
// Hooks of a go-redis client see every call that goes by itself, with the values of the caller's ctx. Calls that are
// made at the same time share pipelines. Hooks see those as pipelines, without the values of any ctx; on a Cluster and a
// Ring only the hooks of the nodes' clients see them. Renewals of KeepAlive and Do always share.
//
// A hook may change the arguments of a command, for example to put a prefix before each key. If it changes those of a call
// that goes by itself, then no calls share any more, renewals carry the values of the ctx that KeepAlive was given, and on a
// Ring all keys of a lock need one hash tag. No calls share until the first one has been answered, so a hook that changes
// the first call is always noticed in time. Pass [WithSeparateCalls] to [New] for a hook that must see each command, that
// changes only some of them, or that sends another command instead.
//
// If a hook panics, the call panics in the goroutine of its caller.
//
// Of a type of the caller's own only EvalSha and Eval are called, each call by itself, so a wrapper sees every call;
// resending is then whatever the wrapped client does.
type RedisClient interface {
	redis.Scripter
}

// Client obtains locks on one Redis. It is safe for concurrent use and cheap: it owns no connection and, at rest, no
// goroutine. The Redis client below it stays the caller's to close, after the Client.
type Client struct {
	redis    *transport.Redis
	unusable error // why nothing can be sent, if so
	renewals *renewals
	lines    *lines
	tracer   *Tracer       // never nil
	closed   chan struct{} // closed by Close

	mu       sync.Mutex // protects what follows
	isClosed bool
	cleaning int                              // how many cleanups are under way
	cleanups map[string]map[*cleanup]struct{} // the same, by token
}

// New returns a Client that keeps its locks on client, with the options, of which nil ones are skipped. It does no I/O.
// A nil client, or a [redis.Pipeliner], which would queue scripts instead of running them, makes every later call
// return [ErrInvalid].
func New(client RedisClient, opts ...ClientOption) *Client {
	set := clientOptions{linger: inboxLinger}
	for _, opt := range opts {
		if opt != nil {
			opt(&set)
		}
	}
	tracer := cmp.Or(set.tracer, &Tracer{})
	redis, err := transport.New(client, set.separate)
	if err != nil {
		return &Client{unusable: invalid("%v", err), tracer: tracer, closed: make(chan struct{})}
	}
	return &Client{
		redis:    redis,
		tracer:   tracer,
		renewals: newRenewals(redis),
		lines:    newLines(redis, set.linger),
		closed:   make(chan struct{}),
	}
}

// inboxLinger is how long a Client goes on listening after its last waiter: the next one may come soon.
const inboxLinger = 10 * time.Second

// newShort returns a Client for one call, that does not listen any longer than that.
func newShort(client RedisClient) *Client {
	return New(client, func(set *clientOptions) { set.linger = 0 })
}

// Options say how to obtain a lock. A nil *Options and the zero value ask for one try with a random token and no
// metadata. Options are only read, so that one value can be shared by any number of calls and goroutines.
type Options struct {
	// RetryStrategy says how often and how long to try again after a refusal. Each call starts it afresh. Nil means
	// one try. Beside Queue it counts only where no message can reach the waiter, and sets the pace there: see Queue.
	RetryStrategy RetryStrategy

	// Metadata is stored beside the token in every key of the lock, for whoever looks at the key; any bytes will do.
	// [ProcessMetadata] makes a good default. In a Refresh, "" keeps what is stored.
	Metadata string

	// Token identifies the holder. The default "" stands for 16 random bytes, in 22 base64url characters. A call with
	// the token of an existing lock obtains that lock's keys again and shares it, so choose one that nobody else can
	// have; and after an obtain or a release with it was given up, let a ttl pass before it is used through another
	// Client. It holds no white space and no control characters.
	Token string

	// FenceKey names a counter on the same Redis. A successful obtain then mints a fencing token from it, a number
	// higher than every one before: see [Lock.FenceToken]. The counter has no expiry and belongs to the resource rather
	// than to the lock. The default "" mints none. On a Cluster it needs the hash tag of the keys.
	FenceKey string

	// Queue makes a refused obtain wait in line until it is granted or ctx ends; only ctx limits the wait. Waiters are
	// served in the order in which they came, wherever their keys overlap, whatever Client, process or machine they
	// belong to. A key with a waiter is not free: obtains that came later find it taken, and so do those without Queue.
	// Only who holds one of the keys already, by its token, need not wait for those in line.
	//
	// A release gives the keys to the first in line at once, if that wants no others than it frees, has a random token and at
	// most 1 KiB of metadata, and no FenceKey but that of the released lock. Otherwise a message wakes the first, which
	// then tries. When the ttl of the holder ends, the first tries by itself.
	//
	// Each second at least a waiter tries too, as a sign of life; less often where many wait for many keys, so that the server
	// spends a tenth of its time on them at most. After three such intervals without one it is passed over, and loses
	// nothing but time if it comes back. On a server that stands alone, a release passes over a waiter whose process was
	// killed. A waiter that was stopped just before its turn may be given the lock, which then lasts for its ttl. Lost messages
	// cost an interval at most. Errors of Redis or the network that may pass do not end the waiting, once the lock was
	// refused for the first time; others do, and any at the first try.
	//
	// Messages reach a *redis.Client and a *redis.ClusterClient that may SUBSCRIBE, over one connection for all waiters of
	// a Client, which is closed 10 s after the last of them. Keys are given at once through a *redis.Client only. A Ring, a
	// client type of the caller's own and a user who is refused the channel wait in the same line, and try each interval, or as
	// often as RetryStrategy says. The file docs/line.md has the details.
	//
	// A key with a brace must have a hash tag. The default false does not wait in line.
	Queue bool

	// Explain makes a refusal tell what is in the way: the error is a [*RefusedError], which matches [ErrNotObtained] but
	// is not equal to it. The library asks Redis once more for that, right after the first refusal, and again when a call
	// that tried more than once ends with a refusal; nothing else costs more. It waits 250 ms for the answer at most, and
	// 20 ms once ctx has ended. The holder may have changed by then. The default false asks nothing.
	Explain bool
}

// Obtain obtains the lock on one key; see [Client.ObtainMulti].
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.obtain(ctx, []string{key}, ttl, opt)
}

// ObtainMulti obtains the lock on all of keys, or on none of them, for ttl. Keys named twice are locked once; there is
// no limit to their number. A key can be had if it is free or holds the same [Options.Token] already; over keys that it
// holds already the call renews the metadata and never shortens what is left of their ttl.
//
// ttl is cut to whole milliseconds and is 2 ms at least. It starts before the request is sent, so that [Lock.Until]
// can be relied on; a grant that arrives later than that is given back and counts as a refusal.
//
// The call blocks until the lock is granted, the strategy stops or ctx ends; with a strategy and no deadline on ctx, it
// gives up after ttl. With [Options.Queue] it waits in line until ctx ends. It returns within milliseconds of the end
// of ctx, whatever Redis does, and in the background gives up its place in line and releases what a request that is
// under way then takes after all; but if the token is the caller's own, only what a late reply reports as newly taken.
//
// It returns:
//   - [ErrNotObtained] if a key is held by another and the strategy allows no further try; a [*RefusedError], which
//     matches it, with [Options.Explain];
//   - an error that matches both [ErrNotObtained] and ctx.Err() (and [context.Cause], where that differs) if ctx, or the
//     ttl in its place, ended first. If the last try was not refused, the error also wraps how that try failed: with an
//     error of Redis or the network, or without an answer. So an outage does not read as if another held the lock;
//   - [ErrInvalid], with words, if the arguments cannot be used; nothing was sent then;
//   - [ErrClosed] if the Client is closed;
//   - any other error from Redis or the network, wrapped. Such an error ends the call, but for a short resending of what
//     a moment's trouble broke, and for what a waiter in line bears. Among them is WRONGTYPE, for a key that holds
//     something other than a string.
func (c *Client) ObtainMulti(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.obtain(ctx, unique(keys), ttl, opt)
}

// Obtain is a short-cut for New(client).Obtain(…).
func Obtain(ctx context.Context, client RedisClient, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return newShort(client).Obtain(ctx, key, ttl, opt)
}

// ObtainMulti is a short-cut for New(client).ObtainMulti(…).
func ObtainMulti(ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return newShort(client).ObtainMulti(ctx, keys, ttl, opt)
}

// Close ends every wait for a lock, and every context of KeepAlive and Do, with [ErrClosed], and makes Obtain,
// ObtainMulti, Do, Attach and Inspect return it from now on. Locks that are held stay held, without being renewed, and
// their TTL, Refresh and Release go on working. Close waits up to a second for those in line to give up their places,
// and for the releases that are still under way in the background, so call it before closing the Redis client. It
// always returns nil, and may be called again.
func (c *Client) Close() error {
	if c == nil || c.closed == nil {
		return nil
	}
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		close(c.closed)
	}
	c.mu.Unlock()
	if c.redis == nil { // New could not use what it was given
		return nil
	}
	c.renewals.close()
	c.lines.inbox.Close()
	for enough := time.Now().Add(closeGrace); c.busy() && time.Now().Before(enough); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// busy reports whether there are cleanups under way, or waiters, who end with one.
func (c *Client) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cleaning > 0 || c.lines.inbox.Members() > 0
}

// usable returns an error if nothing can be sent: a client that New could not use, a nil ctx, or keys that cannot be
// locked. It does no I/O.
func (c *Client) usable(ctx context.Context, keys []string) error {
	switch {
	case c == nil || c.closed == nil:
		return invalid("the Client is nil or was not made by New")
	case c.unusable != nil:
		return c.unusable
	case ctx == nil:
		return errNilContext
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	select {
	case <-c.closed:
		return ErrClosed
	default:
		return nil
	}
}

// minTTL is the least ttl of which something is left after the margin of validity.
const minTTL = 2 * time.Millisecond

func checkTTL(ttl time.Duration) error {
	if ttl < minTTL {
		return invalid("ttl %v is under %v", ttl, minTTL)
	}
	return nil
}

func checkToken(token string) error {
	for _, r := range token {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return invalid("token %q holds white space or a control character", token)
		}
	}
	return nil
}

// randomToken returns 128 random bits in 22 characters: the chance that two locks ever share one is nil in practice.
func randomToken() string {
	var random [keyname.TokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program first
	return base64.RawURLEncoding.EncodeToString(random[:])
}
