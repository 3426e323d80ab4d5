package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// longTimeout is a ReadTimeout so long that pipelines which hang for it would add up.
	longTimeout = 5 * time.Second

	// strays bounds the calls of one sendTogether that go by themselves at any one time.
	strays = 64
)

// sendTogether sends calls that are all for one server, in one pipeline, and calls landed with each when that has ended,
// from several goroutines maybe. It returns when all have. It waits for a connection for up to patience, and then for the
// replies as long as the client does. Each call has its own reply or error. Nothing is resent but what the server does
// not know the script of, what a joint script has left alone, and what the server tells to go elsewhere.
//
// A call for elsewhere goes by itself, since where it goes may hang; and so do all where it is not known which server is
// behind the client.
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
		n.sendElsewhere(wanted, landed)
		return
	}
	var elsewhere []*call
	for requests := n.requests(server, wanted); len(requests) > 0; {
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
	n.sendElsewhere(elsewhere, landed)
}

// sendElsewhere sends each call by itself.
func (n *node) sendElsewhere(calls []*call, landed func(*call)) {
	var wait sync.WaitGroup
	free := make(chan struct{}, strays)
	for _, c := range calls {
		free <- struct{}{}
		wait.Go(func() {
			defer func() { <-free }()
			c.reply, c.err = n.once(c)
			landed(c)
		})
	}
	wait.Wait()
}

// impatient returns the client, or one with that timeout where its own is too long. That one has not the caller's hooks,
// but what never ends is worse.
func impatient(client *redis.Client, timeout time.Duration) *redis.Client {
	if client == nil {
		return nil
	}
	if own := client.Options().ReadTimeout; own <= 0 || own > longTimeout {
		return client.WithTimeout(timeout)
	}
	return client
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pipe := server.Pipeline()
	for i := range requests {
		requests[i].queue(ctx, pipe, len(requests) > 1 || len(requests[i].calls) > 1)
	}
	greeting := n.greeting(server, requests)
	if greeting != nil {
		_ = pipe.Process(ctx, greeting)
	}
	_, err := pipe.Exec(ctx)
	if greeting != nil {
		n.meet(server, greeting)
	}
	for i := range requests {
		r := &requests[i]
		if r.reply, r.err = r.command.Result(); r.err == nil && r.reply == nil {
			r.err = err // it was not sent at all
		}
	}
	if err != nil && !isRedisError(err) && n.cluster != nil {
		n.cluster.ReloadState(ctx) // a master may have moved
	}
}
