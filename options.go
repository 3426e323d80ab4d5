package redislock

import (
	"cmp"
	"time"
)

// ClientOption is an option of [New] and [NewQuorum].
type ClientOption func(*clientOptions)

type clientOptions struct {
	separate bool
	tracer   *Tracer
	linger   time.Duration // how long the subscription stays open after the last waiter
	inbox    string        // what the names of its inboxes begin with; the servers of a quorum share it
}

func newClientOptions(opts []ClientOption) clientOptions {
	set := clientOptions{linger: inboxLinger, inbox: randomToken()}
	for _, opt := range opts {
		if opt != nil {
			opt(&set)
		}
	}
	set.tracer = cmp.Or(set.tracer, &Tracer{})
	return set
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
