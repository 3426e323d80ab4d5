// Package redislock locks one or more keys on Redis, all or none.
//
// A lock is one Redis key for each resource. All of its keys hold the same token and have a time to live (ttl). If the
// holder does not release the keys, Redis frees them after the ttl. [Client.ObtainMulti] acquires every key or none. It
// returns a [Lock], which refreshes and releases the keys, and says until when they are certainly held. The file
// docs/how-it-works.md shows all of this on one page.
//
// A key has one holder, unless [Options.Shared] or [Options.Permits] says that several may hold it: as readers do, or
// up to a number. Redis then keeps the holders beside the key. One call can have keys of all kinds, all or none.
//
// # Guarantees
//
// Before its [Lock.Until], a lock shares none of its exclusive keys with a valid lock of another token. A key in Shared
// or Permits has no more holders than the lock allows. This holds as long as Redis keeps what it acknowledged, and the
// clocks of the machines run at speeds that differ by less than 1 %. Validity counts from before the request was sent.
// One Lua script acquires, refreshes or checks all keys of a lock as a whole. A call returns when its ctx ends,
// whatever the network does. Only a Release that begins after the end of its ctx waits for up to a second. If a caller
// abandons an obtain, the library releases in the background what the obtain may have acquired. If that fails, those
// keys expire with their ttl.
//
// # Limits
//
// A server that loses data loses locks: by a restart without persistence, a failover that drops the last writes, or an
// eviction. Where that matters, set [Options.FenceKey], and let the resource refuse any fencing token that is lower than
// one it has seen. With [WithGuard], locks survive most of what makes a server lose data; afterwards it grants none for a
// while. On a Redis Cluster, all keys of one lock share a hash tag, unless you set [Options.AcrossSlots]. On a
// [redis.Ring], they always share one. While a shard is down, a Ring uses other shards for its keys. The file
// docs/guarantees.md says what holds under which fault.
//
// # Waiting
//
// With [Options.Queue], a refused obtain waits in line until it is granted or ctx ends. The line is first come, first
// served, wherever key sets overlap, across processes and machines. A release wakes the first waiter. Without Queue, a
// refused obtain tries again as [Options.RetryStrategy] says, until ctx ends, or for one ttl if ctx has no deadline. With
// neither, an obtain tries once.
//
// # Keeping a lock
//
// [Client.Do] runs a function under a lock, and renews the lock meanwhile. [Lock.KeepAlive] renews a lock until the caller
// stops it. Each gives the work a context. If the lock is lost, that context ends no later than Until, and its cause says
// why.
//
// # Watching
//
// With [WithTracer], a Client reports to a [Tracer] what happens to its locks. [LogTracer] writes the events to a logger,
// and the module redislockotel feeds OpenTelemetry. With [Options.Explain], a refusal is a [*RefusedError]: it says which
// key blocks the call, and who holds that key.
//
// # Errors
//
// [ErrNotObtained] and [ErrLockNotHeld] are plain sentinels. If only some keys of a lock are lost, the error is a
// [*LostError]. A call with unusable arguments sends nothing, and returns an error that wraps [ErrInvalid]. Errors of
// Redis and the network are wrapped, with the operation and the keys.
package redislock

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/foreign"
	"github.com/redislock/redislock/internal/goredis"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
	"github.com/redislock/redislock/internal/transport"
)

// RedisClient is the Redis on which locks live: a [*redis.Client] (for one server, or behind Sentinel), a
// [*redis.ClusterClient], a [*redis.Ring], a [*redis.Conn], or another type, such as one of your own that embeds one of
// these or a [redis.UniversalClient]; for other clients than those of go-redis, see [Adapt]. Calls that are made at the same
// time through one of the first three share pipelines, which have no values of any ctx: pass [WithSeparateCalls] to [New]
// for a hook that must see each command, that changes only some of them, or that sends another command instead. Through a
// type of your own, each call goes by itself, by EvalSha and Eval of that type, and that type decides whether calls are
// resent; if it overrides neither, pass the client that it embeds. Waiters in line are woken through a *redis.Client, a
// *redis.ClusterClient, and a type of your own that has Subscribe. The file docs/redis.md has a table of what works with
// which type, and says what hooks see.
type RedisClient interface {
	redis.Scripter
}

// Client obtains locks on one Redis, or on those of [NewQuorum]. It is safe for concurrent use. It is cheap: at rest, it
// has no connection of its own and no goroutine. All Clients of one Redis client share the connection on which waiters get
// messages, the renewals, and their pipelines. So a program may make a Client for each request. Close the Redis client
// yourself, after its Clients.
type Client struct {
	unusable error   // why nothing can be sent; nil if something can
	tracer   *Tracer // never nil
	config   place.Config
	closed   chan struct{}  // closed by Close
	one      *place.Place   // the Redis; nil for a quorum
	quorum   *several.Group // its servers; nil for one Redis
	obtains  atomic.Int64   // under way at several places, until they have begun the cleanups
	shutting sync.Once      // closes closed
}

// ClientOption is an option of [New] and [NewQuorum].
type ClientOption func(*clientOptions)

type clientOptions struct {
	separate bool
	tracer   *Tracer
	guard    script.Guard
	invalid  error // why WithGuard cannot be used; nil if it can
	short    bool  // for a single call, after which nothing stays open
}

// WithSeparateCalls makes every call, also a renewal, go by itself through the client that New was given, with all of
// its hooks and with the values of the caller's ctx. The library still resends unanswered calls.
//
// Without this option, calls that are made at the same time share round trips. Use it if a hook must see each command,
// or decides by the values of ctx: see [RedisClient]. It costs throughput when more than a few goroutines call at a
// time. Each call occupies a connection until it is answered. So make the pool of each client large enough for all calls
// under way. Otherwise renewals wait for a connection, and kept locks can lapse.
func WithSeparateCalls() ClientOption {
	return func(set *clientOptions) { set.separate = true }
}

// WithTracer makes the Client report to tracer what happens to its locks. With several of these options, the Client
// reports to all of the tracers: see [Tracers]. The default, also for nil, reports to nobody and costs nothing.
func WithTracer(tracer *Tracer) ClientOption {
	return func(set *clientOptions) { set.tracer = Tracers(set.tracer, tracer) }
}

// New returns a Client that keeps its locks on client. It skips nil options and does no I/O. If client is nil, embeds a
// nil to run scripts, or is a [redis.Pipeliner], which would queue scripts instead of running them, every later call
// returns an error that wraps [ErrInvalid].
func New(client RedisClient, opts ...ClientOption) *Client {
	return newClientOptions(opts).newClient(client)
}

// newShort returns a Client for a single call. No subscription lingers for it.
func newShort(client RedisClient) *Client {
	return clientOptions{tracer: silent, short: true}.newClient(client)
}

func newClientOptions(opts []ClientOption) clientOptions {
	var set clientOptions
	for _, opt := range opts {
		if opt != nil {
			opt(&set)
		}
	}
	set.tracer = cmp.Or(set.tracer, silent)
	return set
}

// newClient is New with these options.
func (set clientOptions) newClient(client RedisClient) *Client {
	c := set.placeless()
	one, err := newPlace(client, &c.config)
	if err == nil {
		err = checkGuard(set.guard, one)
	}
	if c.one = one; c.unusable == nil {
		c.unusable = err
	}
	return c
}

// instead returns what specs of adapters put in the place of a client of go-redis.
var instead = func(client RedisClient) RedisClient { return client }

// newPlace returns the place for a Redis client.
func newPlace(client RedisClient, set *place.Config) (*place.Place, error) {
	client = instead(client)
	connect := func() (transport.Conn, error) { return goredis.New(client) }
	if other, is := client.(adapted); is {
		connect = func() (transport.Conn, error) { return foreign.New(other.conn) }
	}
	return place.New(client, connect, set)
}

// placeless returns a Client with these options, which has no place yet.
func (set clientOptions) placeless() *Client {
	c := &Client{tracer: set.tracer, closed: make(chan struct{}), unusable: set.invalid}
	c.config = place.Config{
		Scripts: scriptsWith(set.guard), Events: set.tracer.events(), CleanedUp: set.tracer.cleanedUp(), LostError: newLostError,
		Closed: c.closed, Separate: set.separate, Lingers: !set.short, GuardClosed: set.tracer.guardClosed(),
	}
	return c
}

// closeGrace is how long Close waits for cleanups that run.
const closeGrace = time.Second

// Close ends every wait for a lock, and every context of KeepAlive and Do, with [ErrClosed]. Other Clients of the same
// Redis client go on. From then on, Obtain, ObtainMulti, Do, Attach, Inspect and Line return ErrClosed. Locks that are
// held stay held, but are no longer renewed. Their TTL, Refresh and Release keep working.
//
// Close waits up to a second for waiters to give up their positions, for releases in the background, for a Refresh of a lock
// with [Options.Token], and for calls at other servers or slots that go on after an Obtain or a Release has returned. So
// call it before you close the Redis client, and before the process ends. It always returns nil and may be called again.
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
	c.shutting.Do(func() { close(c.closed) })
	var wait sync.WaitGroup
	for _, p := range c.places() {
		wait.Go(p.Shut)
	}
	wait.Wait()
}

// busy reports whether anything must still be given up: by an obtain at several places, or at one.
func (c *Client) busy() bool {
	return c.obtains.Load() > 0 || slices.ContainsFunc(c.places(), (*place.Place).IsBusy)
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
