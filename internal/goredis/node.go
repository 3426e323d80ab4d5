package goredis

import (
	"context"
	"reflect"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/transport"
)

// node is the client of one server.
type node struct{ client *redis.Client }

func (n node) Address() string { return n.client.Options().Addr }

func (n node) Weak() transport.WeakNode {
	return weakNode{weak.Make((*byte)(reflect.ValueOf(n.client).UnsafePointer()))}
}

// weakNode points to the first byte of a client: a weak.Pointer[redis.Client] takes the compiler two seconds, because it has
// all the methods that the client embeds.
type weakNode struct{ client weak.Pointer[byte] }

func (w weakNode) IsGone() bool { return w.client.Value() == nil }

func (n node) Pipeline(ctx context.Context, requests []transport.Request, greet bool) (transport.Standing, error) {
	pipe := n.client.Pipeline()
	for i := range requests {
		q := &requests[i]
		cmd := newCommand(ctx, q.Command(tokenOf))
		q.Carrier = cmd.Cmd
		for _, c := range q.Calls {
			if c.Token == "" {
				_ = c.Depart() // nothing will ask it while it is written, so count it as written now
			}
		}
		_ = pipe.Process(ctx, cmd) // only queues
	}
	var greeting *redis.MapStringInterfaceCmd
	if greet {
		greeting = redis.NewMapStringInterfaceCmd(context.Background(), "hello")
		_ = pipe.Process(ctx, greeting)
	}
	_, err := pipe.Exec(ctx)
	for i := range requests {
		q := &requests[i]
		q.Reply, q.Err = q.Carrier.(*redis.Cmd).Result()
		q.Carrier, q.Err = nil, named(q.Err)
	}
	return standing(greeting), named(err)
}

// standing returns what a server has said about itself.
func standing(greeting *redis.MapStringInterfaceCmd) transport.Standing {
	switch {
	case greeting == nil, greeting.Err() != nil && !transport.IsAnswer(greeting.Err()):
		return transport.StandingUnknown
	case greeting.Val()["mode"] == "standalone":
		return transport.StandsAlone
	}
	return transport.StandsInGroup
}

// AskAnew sends the PING outside of the pool of the client.
func (n node) AskAnew(patience time.Duration) (took time.Duration, answered bool) {
	defer func() {
		if recover() != nil { // from a hook for dialling
			answered = false
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	subscription := n.client.WithTimeout(patience).Subscribe(ctx) // to nothing
	defer subscription.Close()
	if subscription.Ping(ctx) != nil {
		return 0, false
	}
	sent := time.Now()
	_, err := subscription.ReceiveTimeout(ctx, patience)
	return time.Since(sent), err == nil || transport.IsAnswer(err)
}

// PingIdle leaves it to go-redis to close the connections that do not answer.
func (n node) PingIdle(patience time.Duration) {
	ctx, cancel := context.WithCancel(context.Background()) // ends the wait for a connection
	time.AfterFunc(patience, cancel)
	limited := n.client.WithTimeout(patience)
	stats := n.client.PoolStats()
	var written sync.WaitGroup
	start := func(idle uint32, send func(ping redis.Cmder)) {
		for range idle {
			written.Add(1)
			go func() { // ends after patience, or a little later if go-redis is connecting
				done := sync.OnceFunc(written.Done)
				defer func() {
					_ = recover() // from a hook for dialling
					done()
				}()
				send(command{redis.NewCmd(ctx, "ping", onWrite(done))})
			}()
		}
	}
	start(stats.IdleConns, func(ping redis.Cmder) { _ = limited.Process(ctx, ping) })
	if stats.PipelineStats != nil {
		start(stats.PipelineStats.IdleConns, func(ping redis.Cmder) {
			pipe := limited.Pipeline()
			_ = pipe.Process(ctx, ping)
			_, _ = pipe.Exec(ctx)
		})
	}
	written.Wait()
}

// onWrite is an argument of a command. It is called when go-redis writes the command to a connection.
type onWrite func()

func (f onWrite) MarshalBinary() ([]byte, error) {
	f()
	return []byte("redislock"), nil
}

// String is for hooks that print commands.
func (f onWrite) String() string { return "redislock" }
