package redislock

import (
	"cmp"

	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
)

// ClientOption is an option of [New] and [NewQuorum].
type ClientOption func(*clientOptions)

type clientOptions struct {
	separate bool
	tracer   *Tracer
	short    bool // it is for a single call, after which nothing is to stay
}

// silent is the Tracer of a Client that has none, and silence what it wants to be told.
var (
	silent  = &Tracer{}
	silence = &life.Events{}
)

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

// client returns a Client with these options, which has no place yet.
func (set *clientOptions) client() *Client {
	c := &Client{tracer: set.tracer, closed: make(chan struct{})}
	c.config = place.Config{
		Scripts: scripts, Events: set.tracer.events(), CleanedUp: set.tracer.cleanedUp(), LostError: newLostError,
		Closed: c.closed, Separate: set.separate, Lingers: !set.short,
	}
	return c
}

// WithSeparateCalls makes every call, also a renewal, go by itself through the client that New was given, with all of
// its hooks and with the values of the caller's ctx. The library still resends unanswered calls.
//
// Without this option, calls that are made at the same time share round trips. Use it if a hook must see each command,
// or decides by the values of ctx: see [RedisClient]. It costs throughput when more than a few goroutines call at a
// time. Each call occupies a connection until it is answered, so the pool of each client must be large enough for all
// calls under way, or renewals wait with the others, and kept locks can lapse.
func WithSeparateCalls() ClientOption {
	return func(set *clientOptions) { set.separate = true }
}

// WithTracer makes the Client report to tracer what happens to its locks. If it is given more than once, the Client
// reports to all of them: see [Tracers]. The default, also for nil, reports to nobody and costs nothing.
func WithTracer(tracer *Tracer) ClientOption {
	return func(set *clientOptions) { set.tracer = Tracers(set.tracer, tracer) }
}
