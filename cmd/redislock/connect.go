package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

// defaultURL is where Redis is when neither --redis nor REDIS_URL says so.
const defaultURL = "redis://127.0.0.1:6379"

// connection is how to reach Redis, as the flags say.
type connection struct {
	url string

	where string // the address, without a password; set by connect
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.url, "redis", "", "`URL` of the Redis (default $REDIS_URL, or else "+defaultURL+")")
}

// connectLimit is how long connect waits for Redis.
const connectLimit = 3 * time.Second

// connect returns a client of the Redis that the flags name, once that has answered. Its errors name the address, never the
// password.
func (g *globals) connect(ctx context.Context) (redis.UniversalClient, error) {
	opt, err := redis.ParseURL(cmp.Or(g.connection.url, g.getenv("REDIS_URL"), defaultURL))
	if err != nil { // which may quote any part of the URL
		return nil, usageError("--redis cannot be read; write it like redis://user:password@host:6379/0")
	}
	opt.ContextTimeoutEnabled = true
	client := redis.NewClient(opt)
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial":
			err = dial.Err // without the address, which is named already
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("no answer within %v", connectLimit)
		}
		return nil, unavailable("cannot use the Redis at %s: %w", opt.Addr, err)
	}
	g.connection.where = opt.Addr
	return client, nil
}

// inMemory returns a client of an empty Redis inside this program, and what ends both.
func inMemory() (client *redis.Client, end func()) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // its keys expire as time passes
	client = redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
	})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}
