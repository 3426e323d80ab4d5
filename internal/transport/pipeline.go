package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxApart bounds the calls of one sendApart that are under way at the same time and do not hang.
const maxApart = 64

// sendTogether sends calls for one server in one pipeline, and calls finished once per finished call, possibly
// concurrently. It returns when all have finished. It waits up to patience for a connection, and then for the replies
// as long as the client does. Each call gets its own reply or error. It sends a call again only if the server does not
// know its script, if a joint script has left it alone, or if the server redirects it, and never if the call was lost.
//
// A redirected call goes by itself, because its new server may hang. All calls go by themselves if client is nil,
// because then their server is not known, or if the library has noticed a hook that rewrites keys since the batch was
// formed. Either all calls are to be Alone, or none.
//
// If a hook panics, that is the error of all calls that have not finished yet.
func (r *Redis) sendTogether(client serverClient, calls []*Call, patience time.Duration, finished func(*Call)) {
	wanted := make([]*Call, 0, len(calls))
	for _, c := range calls {
		if c.Err = c.sending().Err(); c.Err != nil {
			finished(c)
		} else {
			wanted = append(wanted, c)
		}
	}
	if client == nil || r.rewritten.Load() || len(wanted) > 0 && wanted[0].Alone {
		r.sendApart(wanted, patience, finished)
		return
	}
	var elsewhere []*Call
	requests := r.requests(client, wanted)
	failed := func(panicked error) {
		for _, q := range requests {
			elsewhere = append(elsewhere, q.calls...)
		}
		for _, c := range elsewhere {
			c.land()
			c.Reply, c.Err = nil, panicked
			finished(c)
		}
	}
	for len(requests) > 0 {
		// This catches only panics of the sending. A panic in finished is the caller's own, and some calls have finished by then.
		if !catch(func() { r.pipeline(client, requests, patience) }, failed) {
			return
		}
		var again []request
		for _, q := range requests {
			switch {
			case q.err != nil && !q.whole && redis.HasErrorPrefix(q.err, "NOSCRIPT") && !slices.ContainsFunc(q.calls, (*Call).IsLost):
				q.whole = true
				again = append(again, q)
			case q.isJoint():
				again = append(again, q.takeApart(finished)...)
			case q.err != nil && !q.calls[0].IsLost() && (redis.HasErrorPrefix(q.err, "MOVED") || redis.HasErrorPrefix(q.err, "ASK")):
				elsewhere = append(elsewhere, q.calls[0])
			default:
				q.calls[0].Reply, q.calls[0].Err = q.reply, q.err
				finished(q.calls[0])
			}
		}
		requests = again
	}
	r.sendApart(elsewhere, patience, finished)
}

// sendApart sends each call by itself, once. If many calls hang, each makes others wait no longer than slowTrip.
func (r *Redis) sendApart(calls []*Call, patience time.Duration, finished func(*Call)) {
	var wait sync.WaitGroup
	free := make(chan struct{}, maxApart)
	for _, c := range calls {
		free <- struct{}{}
		wait.Go(func() {
			release := sync.OnceFunc(func() { <-free })
			defer release()
			timer := time.AfterFunc(slowTrip, release)
			defer timer.Stop()
			defer finished(c)
			c.catch(func() {
				c.Reply, c.Err = c.Script.try(func(how *[2]any) (reply any, err error) { // each command may wait that long
					ctx, stop := connectWithin(c.Ctx, patience)
					defer func() { stop(); c.limited = nil }()
					c.limited = &ctx
					reply, err = r.command(c, how)
					if over := ctx.Err(); over != nil && c.Ctx.Err() == nil && errors.Is(err, over) {
						err = context.Cause(ctx) // nobody has cancelled the call
					}
					return reply, err
				})
			})
		})
	}
	wait.Wait()
}

// connectWithin returns a ctx that ends d from now, for calls that may wait that long for a connection. It has no
// deadline, because with ContextTimeoutEnabled go-redis would stop reading replies at a deadline. The end of this ctx
// stops no reading.
func connectWithin(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(d, func() { cancel(fmt.Errorf("no connection within %v", d)) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// request is one command of a pipeline: the script of one call, or a joint script for several.
type request struct {
	script *Script
	calls  []*Call
	whole  bool // send the script's source, not its hash

	command command
	reply   any
	err     error
}

// queue adds the request to a pipeline.
func (q *request) queue(ctx context.Context, pipe pipeline, bulk bool) {
	for _, c := range q.calls {
		c.departed, c.bulk = false, bulk
		c.state.Store(waiting)
		if c.Token == "" {
			_ = c.depart() // MarshalBinary will not be called, so count the call as written now
		}
	}
	how := &q.script.evalsha
	if q.whole {
		how = &q.script.eval
	}
	if q.isJoint() {
		q.command = newJointCommand(q.calls, how)
	} else {
		q.command = newCommand(q.calls[0], how)
	}
	_ = pipe.Process(ctx, q.command) // only queues
}

// pipeline sends requests in one pipeline, each once, if it gets a connection within patience.
func (r *Redis) pipeline(client serverClient, requests []request, patience time.Duration) {
	ctx, stop := connectWithin(context.Background(), patience)
	defer stop()
	pipe := client.newPipeline()
	for i := range requests {
		requests[i].queue(ctx, pipe, len(requests) > 1 || len(requests[i].calls) > 1)
	}
	greeting := r.greeting(client, requests)
	if greeting != nil {
		_ = pipe.Process(ctx, greeting)
	}
	calls := make([]*Call, 0, len(requests))
	for _, q := range requests {
		calls = append(calls, q.calls...)
	}
	r.watch.begin(calls[0], calls[1:])
	defer r.watch.end(calls[0])
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		c.land()
	}
	if err == nil {
		r.watch.answered(calls[0].Sent)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if greeting != nil {
		r.meet(client, greeting)
	}
	for i := range requests {
		q := &requests[i]
		q.reply, q.err = q.command.Result()
		q.err = q.calls[0].sortOut(ctx, q.err)
		if q.err == nil && q.reply == nil || errors.Is(q.err, context.Canceled) {
			q.err = err // the request was never sent
		}
	}
	if err != nil && !IsAnswer(err) && r.reload != nil {
		r.reload(ctx) // a master may have moved
	}
}
