// Package redislocktest gives tests a working [redislock.Client] without a Redis server.
//
//	func TestBilling(t *testing.T) {
//		locks := redislocktest.New(t)
//		service := billing.New(locks.Client)
//		…
//		locks.FastForward(time.Minute) // whatever was locked has lapsed
//	}
//
// The Redis behind it is kept in memory, by miniredis, and runs the library's own scripts. Its keys expire as time
// passes, so inside a bubble of [testing/synctest] the whole, locks, expiry and waiting, runs on the bubble's clock:
// start the bubble first and call New inside it.
package redislocktest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// Client is a [redislock.Client] on an in-memory Redis of its own.
type Client struct {
	*redislock.Client

	redis  *redis.Client
	server *miniredis.Miniredis
}

// New returns a Client on an empty Redis. Both end with the test; New fails the test if they cannot start. Several
// Clients that are to share locks are made from one: redislock.New(client.Redis()).
func New(tb testing.TB) *Client {
	tb.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	client := redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:0", // dialled by nobody; go-redis looks a name up, which a bubble of synctest does not bear
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		PoolSize: 16,
	})
	c := &Client{Client: redislock.New(client), redis: client, server: server}
	tb.Cleanup(func() {
		_ = c.Close()
		_ = client.Close()
		server.Close()
	})
	return c
}

// Redis returns the client of the Redis behind the locks, to look at keys or to take one away. The test does not close
// it.
func (c *Client) Redis() *redis.Client { return c.redis }

// FastForward lets the keys of the Redis age by d at once. The clock of the process does not move, and so neither does
// [redislock.Lock.Until]; to move both, sleep inside a bubble of testing/synctest instead.
func (c *Client) FastForward(d time.Duration) { c.server.FastForward(d) }
