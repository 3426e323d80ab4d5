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

// sendTogether sends calls that are all for one server, in one pipeline, and calls landed with the index of each when
// that has ended, from several goroutines maybe. It returns when all have. It waits for a connection for up to patience,
// and then for the replies as long as the client does. Each call has its own reply or error. Nothing is resent but what
// the server does not know the script of, or tells to go elsewhere.
//
// A call for elsewhere goes by itself, since where it goes may hang; and so do all where it is not known which server is
// behind the client.
func (n *node) sendTogether(server *redis.Client, calls []*call, patience time.Duration, landed func(int)) {
	var elsewhere, unknown []int
	if server == nil {
		for i := range calls {
			elsewhere = append(elsewhere, i)
		}
	} else {
		server = impatient(server, max(2*patience, time.Second))
		n.pipeline(server, calls, patience, func(s *script) [2]any { return s.evalsha })
	}
	var again []*call
	for i, c := range calls {
		switch {
		case server == nil:
		case c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT"):
			unknown = append(unknown, i)
			again = append(again, c)
		case c.err != nil && (redis.HasErrorPrefix(c.err, "MOVED") || redis.HasErrorPrefix(c.err, "ASK")):
			elsewhere = append(elsewhere, i)
		default:
			landed(i)
		}
	}
	var wait sync.WaitGroup
	free := make(chan struct{}, strays)
	for _, i := range elsewhere {
		free <- struct{}{}
		wait.Go(func() {
			defer func() { <-free }()
			calls[i].reply, calls[i].err = n.once(calls[i])
			landed(i)
		})
	}
	if len(again) > 0 {
		n.pipeline(server, again, patience, func(s *script) [2]any { return s.eval })
		for _, i := range unknown {
			landed(i)
		}
	}
	wait.Wait()
}

// impatient returns the client, or one with that timeout where its own is too long. That one has not the caller's hooks,
// but what never ends is worse.
func impatient(client *redis.Client, timeout time.Duration) *redis.Client {
	if own := client.Options().ReadTimeout; own <= 0 || own > longTimeout {
		return client.WithTimeout(timeout)
	}
	return client
}

// pipeline sends calls in one pipeline, each once, if there is a connection within patience.
func (n *node) pipeline(server *redis.Client, calls []*call, patience time.Duration, how func(*script) [2]any) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pipe := server.Pipeline()
	commands := make([]command, len(calls))
	for i, c := range calls {
		c.left, c.together = false, len(calls) > 1
		if c.err = c.unwanted(); c.err != nil {
			continue
		}
		if c.token == "" {
			_ = c.leave() // nothing will tell when it does, so take it that it does now
		}
		commands[i] = newCommand(c, how(c.script))
		_ = pipe.Process(ctx, commands[i]) // only queues
	}
	_, err := pipe.Exec(ctx)
	for i, c := range calls {
		if c.err != nil {
			continue
		}
		c.reply, c.err = commands[i].Result()
		if c.err == nil && c.reply == nil {
			c.err = err // it was not sent at all
		}
	}
	if err != nil && !isRedisError(err) && n.cluster != nil {
		n.cluster.ReloadState(ctx) // a master may have moved
	}
}
