package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxApart bounds the calls of one sendApart that are under way at the same time and do not hang.
const maxApart = 64

// sendTogether sends calls for one server in one pipeline, and calls finished once per finished call, possibly
// concurrently. It returns when all have finished. It waits up to patience for a connection, and then for the replies
// as long as the client does. Each call gets its own reply or error. It sends a call again only if the server does not
// know its script, if a joint script has left it alone, or if the server redirects it, and never if the call was lost.
//
// A redirected call goes by itself, because its new server may hang. All calls go by themselves if node is nil,
// because then their server is not known, or if the library has noticed a hook that rewrites keys since the batch was
// formed. Either all calls are to be Alone, or none.
//
// If a hook panics, that is the error of all calls that have not finished yet.
func (r *Redis) sendTogether(node Node, calls []*Call, patience time.Duration, finished func(*Call)) {
	wanted := make([]*Call, 0, len(calls))
	for _, c := range calls {
		if c.Err = c.sending().Err(); c.Err != nil {
			finished(c)
		} else {
			wanted = append(wanted, c)
		}
	}
	if node == nil || r.rewritten.Load() || len(wanted) > 0 && wanted[0].Alone {
		r.sendApart(wanted, patience, finished)
		return
	}
	var elsewhere []*Call
	requests := r.requests(node, wanted)
	failed := func(panicked error) {
		for _, q := range requests {
			elsewhere = append(elsewhere, q.Calls...)
		}
		for _, c := range elsewhere {
			c.land()
			c.Reply, c.Err = nil, panicked
			finished(c)
		}
	}
	for len(requests) > 0 {
		// This catches only panics of the sending. A panic in finished is the caller's own, and some calls have finished by then.
		if !catch(func() { r.pipeline(node, requests, patience) }, failed) {
			return
		}
		var again []Request
		for _, q := range requests {
			switch {
			case q.Err != nil && !q.Whole && HasCode(q.Err, "NOSCRIPT") && !slices.ContainsFunc(q.Calls, (*Call).IsLost):
				q.Whole = true
				again = append(again, q)
			case q.isJoint():
				again = append(again, q.takeApart(finished)...)
			case q.Err != nil && !q.Calls[0].IsLost() && (HasCode(q.Err, "MOVED") || HasCode(q.Err, "ASK")):
				elsewhere = append(elsewhere, q.Calls[0])
			default:
				q.Calls[0].Reply, q.Calls[0].Err = q.Reply, q.Err
				finished(q.Calls[0])
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
				c.Reply, c.Err = try(func(whole bool) (reply any, err error) { // each command may wait that long
					ctx, stop := connectWithin(c.Ctx, patience)
					defer func() { stop(); c.limited = nil }()
					c.limited = &ctx
					reply, err = r.command(c, whole)
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

// Request is one command of a pipeline: the script of one call, or a joint script for several.
type Request struct {
	Script *Script
	Calls  []*Call
	Whole  bool // send the script's source, not its hash

	Carrier any // for the Node's own use

	Reply any
	Err   error
}

// ready makes the calls of a request ready to depart.
func (q *Request) ready(bulk bool) {
	for _, c := range q.Calls {
		c.departed, c.bulk = false, bulk
		c.state.Store(waiting)
	}
}

// Depart notes that the request is being written: see Call.Depart. It returns an error only if the request is a whole
// pipeline, and has one call: others would have to go on.
func (q *Request) Depart() error {
	var unwanted error
	for _, c := range q.Calls {
		unwanted = cmp.Or(unwanted, c.Depart())
	}
	return unwanted
}

// pipeline sends requests in one pipeline, each once, if it gets a connection within patience.
func (r *Redis) pipeline(node Node, requests []Request, patience time.Duration) {
	ctx, stop := connectWithin(context.Background(), patience)
	defer stop()
	calls := make([]*Call, 0, len(requests))
	for i := range requests {
		requests[i].ready(len(requests) > 1 || len(requests[i].Calls) > 1)
		calls = append(calls, requests[i].Calls...)
	}
	r.watch.begin(calls[0], calls[1:])
	defer r.watch.end(calls[0])
	standing, err := node.Pipeline(ctx, requests, r.greets(node, requests))
	for _, c := range calls {
		c.land()
	}
	if err == nil {
		r.watch.answered(calls[0].Sent)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if standing != StandingUnknown {
		r.servers.of(r, node).standing.Store(int32(standing))
	}
	for i := range requests {
		q := &requests[i]
		q.Err = q.Calls[0].sortOut(ctx, q.Err)
		if q.Err == nil && q.Reply == nil || errors.Is(q.Err, context.Canceled) {
			q.Err = err // the request was never sent
		}
	}
	if err != nil && !IsAnswer(err) && r.Reach == Slots {
		r.conn.Reload(ctx) // a master may have moved
	}
}
