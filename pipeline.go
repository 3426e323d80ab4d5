package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// longTimeout is how long shared round trips wait for a connection, and more than which no ReadTimeout of a
	// subscription may be: while that connects, it can neither be interrupted nor closed.
	longTimeout = 5 * time.Second

	// strays bounds the calls of one sendApart that are under way at any one time and do not hang.
	strays = 64
)

// sendTogether sends calls that are all for one server, in one pipeline, and calls landed with each when that has ended,
// from several goroutines maybe. It returns when all have. It waits for a connection for up to patience, and then for the
// replies as long as the client does. Each call has its own reply or error. Nothing is resent but what the server does
// not know the script of, what a joint script has left alone, and what the server tells to go elsewhere.
//
// A call for elsewhere goes by itself, since where it goes may hang; and so do all where there is no client of the server,
// because it is not known or because calls must not share.
//
// Where a hook panics, that is the error of all that have not ended yet.
func (n *node) sendTogether(server *redis.Client, calls []*call, patience time.Duration, landed func(*call)) {
	wanted := make([]*call, 0, len(calls))
	for _, c := range calls {
		if c.err = c.unwanted(); c.err != nil {
			landed(c)
		} else {
			wanted = append(wanted, c)
		}
	}
	if server == nil {
		n.sendApart(wanted, patience, landed)
		return
	}
	var elsewhere []*call
	requests := n.requests(server, wanted)
	returned := false
	defer func() {
		if returned {
			return
		}
		panicked := &hookPanic{recover()}
		for _, r := range requests {
			elsewhere = append(elsewhere, r.calls...)
		}
		for _, c := range elsewhere {
			c.reply, c.err = nil, panicked
			landed(c)
		}
	}()
	for len(requests) > 0 {
		n.pipeline(server, requests, patience)
		var again []request
		for _, r := range requests {
			switch {
			case r.err != nil && !r.whole && redis.HasErrorPrefix(r.err, "NOSCRIPT"):
				r.whole = true
				again = append(again, r)
			case r.isJoint():
				again = append(again, n.takeApart(r, landed)...)
			case r.err != nil && (redis.HasErrorPrefix(r.err, "MOVED") || redis.HasErrorPrefix(r.err, "ASK")):
				elsewhere = append(elsewhere, r.calls[0])
			default:
				r.calls[0].reply, r.calls[0].err = r.reply, r.err
				landed(r.calls[0])
			}
		}
		requests = again
	}
	returned = true
	n.sendApart(elsewhere, patience, landed)
}

// sendApart sends each call by itself, once. Where many hang, the others wait for them no longer than for a slow trip.
func (n *node) sendApart(calls []*call, patience time.Duration, landed func(*call)) {
	var wait sync.WaitGroup
	free := make(chan struct{}, strays)
	for _, c := range calls {
		free <- struct{}{}
		wait.Go(func() {
			release := sync.OnceFunc(func() { <-free })
			defer release()
			timer := time.AfterFunc(slowTrip, release)
			defer timer.Stop()
			defer landed(c)
			c.guard(func() {
				wanted := c.ctx
				ctx, stop := connectWithin(wanted, patience)
				defer func() { stop(); c.ctx = wanted }()
				c.ctx = ctx
				c.reply, c.err = n.once(c)
			})
		})
	}
	wait.Wait()
}

// connectWithin returns a ctx that ends d from now, for calls that may wait that long for a connection. It has no
// deadline: with ContextTimeoutEnabled, go-redis would end the reading of replies at that. Its end ends no reading.
func connectWithin(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(d, func() { cancel(fmt.Errorf("no connection within %v", d)) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// request is one command of a pipeline: the script of a call, or a joint one of several.
type request struct {
	script *script
	calls  []*call
	whole  bool // the script goes with its source, not by its hash

	command command
	reply   any
	err     error
}

func (r *request) isJoint() bool { return r.script != r.calls[0].script }

// queue adds the request to a pipeline.
func (r *request) queue(ctx context.Context, pipe redis.Pipeliner, together bool) {
	for _, c := range r.calls {
		c.left, c.together = false, together
		if c.token == "" {
			_ = c.leave() // nothing will tell when it does, so take it that it does now
		}
	}
	how := r.script.evalsha
	if r.whole {
		how = r.script.eval
	}
	if r.isJoint() {
		r.command = newJointCommand(r.calls, how)
	} else {
		r.command = newCommand(r.calls[0], how)
	}
	_ = pipe.Process(ctx, r.command) // only queues
}

// pipeline sends requests in one pipeline, each once, if there is a connection within patience.
func (n *node) pipeline(server *redis.Client, requests []request, patience time.Duration) {
	ctx, stop := connectWithin(context.Background(), patience)
	defer stop()
	pipe := server.Pipeline()
	for i := range requests {
		requests[i].queue(ctx, pipe, len(requests) > 1 || len(requests[i].calls) > 1)
	}
	greeting := n.greeting(server, requests)
	if greeting != nil {
		_ = pipe.Process(ctx, greeting)
	}
	_, err := pipe.Exec(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if greeting != nil {
		n.meet(server, greeting)
	}
	for i := range requests {
		r := &requests[i]
		r.reply, r.err = r.command.Result()
		if r.err == nil && r.reply == nil || errors.Is(r.err, context.Canceled) {
			r.err = err // it was not sent at all
		}
	}
	if err != nil && !isRedisError(err) && n.cluster != nil {
		n.cluster.ReloadState(ctx) // a master may have moved
	}
}
