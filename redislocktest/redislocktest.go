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

	tb    testing.TB
	redis *redis.Client
	clock *redis.Client // moves time forward, past the hooks that a test may add to the other
}

// New returns a Client on an empty Redis. Both end with the test; New fails the test if they cannot start. Several
// Clients that are to share locks are made from one: redislock.New(client.Redis()).
func New(tb testing.TB) *Client {
	tb.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	connect := func(connections int) *redis.Client {
		return redis.NewClient(&redis.Options{
			Addr:     "127.0.0.1:0", // dialled by nobody; go-redis looks a name up, which a bubble of synctest does not bear
			Dialer:   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			PoolSize: connections,
		})
	}
	client := connect(16)
	c := &Client{Client: redislock.New(client), tb: tb, redis: client, clock: connect(1)}
	tb.Cleanup(func() {
		_ = c.Close()
		_ = c.clock.Close()
		_ = client.Close()
		server.Close()
	})
	return c
}

// Redis returns the client of the Redis behind the locks, to look at keys or to take one away. The test does not close
// it.
func (c *Client) Redis() *redis.Client { return c.redis }

// FastForward brings the expiry of every key forward by d, in whole milliseconds, at once. A lock with no more than d left
// has lapsed when it returns. Those who wait in line, with [redislock.Options.Queue], keep their places, and each tries
// right away: when the lock has lapsed, the first in line gets it. FastForward does not wait for their tries. It does not
// wake an obtain that retries without Queue.
//
// No clock moves, neither that of the process nor that of the Redis, and so neither does [redislock.Lock.Until]; to move
// all of them, sleep inside a bubble of testing/synctest instead. FastForward may be called from several goroutines. It
// fails the test if the Redis has been closed, or if a key that ends in ":redislock:line" is not a line.
func (c *Client) FastForward(d time.Duration) {
	c.tb.Helper()
	if err := c.clock.Eval(context.Background(), fastForward, nil, d.Milliseconds()).Err(); err != nil && err != redis.Nil {
		c.tb.Errorf("redislocktest: FastForward: %v", err)
	}
}

// fastForward makes every key older but the lines. A line lives for 3 s only, since those who wait show signs of life, and
// these are dated by the clock, which stands still: without its line, the order of the waiters would be lost.
const fastForward = `
for _, key in ipairs(redis.call('KEYS', '*')) do
	if string.sub(key, -15) ~= ':redislock:line' then
		local left = redis.call('PTTL', key)
		if left >= 0 then
			redis.call('PEXPIRE', key, left - ARGV[1])
		end
	else
		for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', key, 0, '+inf')) do
			local inbox, number = string.match(waiter, '^(.*)/(.*)$')
			redis.call('PUBLISH', 'redislock:inbox:' .. inbox, number)
		end
	end
end`
