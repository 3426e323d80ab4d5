// Package redigoadapter is the adapter for redigo in docs/clients.md.
package redigoadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redislock/redislock/adapter"
)

// Conn is a pool of connections to one server. Let its Dial set DialReadTimeout, of two seconds or more: without it, a call
// to a server that hangs holds a connection for ever.
type Conn struct{ Pool *redis.Pool }

// About is part of [adapter.Conn].
func (c Conn) About() adapter.About { return adapter.About{Reach: adapter.OneServer} }

// Run is part of [adapter.Conn].
func (c Conn) Run(ctx context.Context, scripts []*adapter.Script) {
	conn, err := c.get(ctx)
	if err != nil {
		for _, s := range scripts {
			s.Err = err
		}
		return
	}
	defer conn.Close()
	for _, s := range scripts {
		if s.Err = s.Sent(); s.Err != nil {
			return
		}
		command, script := "EVALSHA", s.SHA1
		if s.Whole {
			command, script = "EVAL", s.Source
		}
		_ = conn.Send(command, redis.Args{script, len(s.Keys)}.AddFlat(s.Keys).AddFlat(s.Args)...)
	}
	_ = conn.Flush() // after an error, Receive returns it
	for _, s := range scripts {
		reply, err := conn.Receive()
		s.Reply, s.Err = plain(reply), failure(err)
	}
}

// get returns a connection of the pool.
func (c Conn) get(ctx context.Context) (redis.Conn, error) {
	conn, err := c.Pool.GetContext(ctx)
	switch {
	case err == nil:
		return conn, nil
	case err.Error() == "redigo: get on closed pool":
		return nil, adapter.ErrClosed
	}
	return nil, fmt.Errorf("%w: %w", adapter.ErrNotSent, err)
}

// plain returns a reply in the types that the library knows.
func plain(reply any) any {
	switch reply := reply.(type) {
	case []byte:
		return string(reply)
	case []any:
		all := make([]any, len(reply))
		for i, one := range reply {
			all[i] = plain(one)
		}
		return all
	}
	return reply
}

// failure returns an error as the library wants it.
func failure(err error) error {
	if answer, is := errors.AsType[redis.Error](err); is {
		return adapter.ReplyError(answer)
	}
	return err
}

// A subscription asks for a sign of life each interval, and ends after a silence.
const interval, silence = time.Second, 2 * time.Second

// Listen is part of [adapter.Listener].
func (c Conn) Listen(ctx context.Context, channel string, open func(), message func(payload string)) error {
	conn, err := c.get(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	subscription := redis.PubSubConn{Conn: conn}
	if err := subscription.Subscribe(channel); err != nil {
		return err
	}
	listening, stop := context.WithCancel(ctx)
	var pinging sync.WaitGroup
	defer pinging.Wait()
	defer stop()
	pinging.Go(func() { // redigo lets one goroutine send while another one receives
		for listening.Err() == nil {
			select {
			case <-listening.Done():
			case <-time.After(interval):
				_ = subscription.Ping("")
			}
		}
	})
	for {
		limited, cancel := context.WithTimeout(listening, silence)
		received := subscription.ReceiveContext(limited)
		cancel()
		switch received := received.(type) {
		case redis.Subscription:
			open()
		case redis.Message:
			message(string(received.Data))
		case error:
			return cmp.Or(ctx.Err(), failure(received))
		}
	}
}

// StandsAlone is part of [adapter.Greeter].
func (c Conn) StandsAlone(ctx context.Context) (bool, error) {
	conn, err := c.get(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	fields, err := redis.Values(conn.Do("HELLO"))
	for i := 0; i+1 < len(fields); i += 2 {
		if plain(fields[i]) == "mode" {
			return plain(fields[i+1]) == "standalone", nil
		}
	}
	return false, failure(err)
}
