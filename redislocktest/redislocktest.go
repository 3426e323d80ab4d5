// Package redislocktest gives tests a working [redislock.Client] without a Redis server.
//
//	func TestBilling(t *testing.T) {
//		locks := redislocktest.New(t)
//		service := billing.New(locks.Client)
//		…
//		locks.FastForward(time.Minute) // every lock with a ttl of a minute or less has expired
//	}
//
// The Redis of the Client is miniredis, which keeps its data in memory and runs the library's own scripts. Its keys expire
// as time passes. Inside a bubble of [testing/synctest], locks, expiry and waiting all use the bubble's clock: start the
// bubble first, and call New inside it. With the race detector, run such tests with GOMAXPROCS=1. On several processors, a
// bubble may end the process, whatever it tests (https://go.dev/issue/78156).
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
	clock *redis.Client // for FastForward; without the hooks that a test may add to redis
}

// New returns a Client on an empty Redis. Both end with the test. To make several Clients that share locks, call
// redislock.New(client.Redis()) for each.
func New(tb testing.TB) *Client {
	tb.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	connect := func(connections int) *redis.Client {
		return redis.NewClient(&redis.Options{
			Addr:     "127.0.0.1:0", // never dialled; a host name would be looked up, which fails in a synctest bubble
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

// Redis returns the client of the Redis behind the locks, for example to look at keys or to delete one. The test must
// not close it.
func (c *Client) Redis() *redis.Client { return c.redis }

// FastForward brings the expiry of every key forward by d at once, in whole milliseconds. When it returns, every lock
// with a remaining ttl of at most d has expired, and those who hold a key together age each by itself. Waiters in line,
// with [redislock.Options.Queue], keep their positions, and each tries at once. If the lock has expired, the first in
// line gets it. FastForward does not wait for these tries. It does not wake an obtain that retries without Queue.
//
// FastForward moves no clock, neither that of the process nor that of the Redis. So it does not change
// [redislock.Lock.Until]. To move all clocks, sleep inside a bubble of testing/synctest instead. FastForward may be
// called concurrently. It fails the test if the Redis has been closed, or if a key that ends in ":redislock:line" or
// ":redislock:house" is neither.
func (c *Client) FastForward(d time.Duration) {
	c.tb.Helper()
	if err := c.clock.Eval(context.Background(), fastForward, nil, d.Milliseconds()).Err(); err != nil && err != redis.Nil {
		c.tb.Errorf("redislocktest: FastForward: %v", err)
	}
}

// fastForward ages every key except the lines, and each hold in a house. A line lasts for only some seconds after it was
// prolonged, and FastForward does not move the clock that dates its marks. If a line expired, the order of its waiters
// would be lost.
const fastForward = `
for _, key in ipairs(redis.call('KEYS', '*')) do
	if string.sub(key, -15) ~= ':redislock:line' then
		local left = redis.call('PTTL', key)
		if left >= 0 then
			redis.call('PEXPIRE', key, left - ARGV[1])
		end
		if left > tonumber(ARGV[1]) and string.sub(key, -16) == ':redislock:house' then
			for _, token in ipairs(redis.call('ZRANGEBYSCORE', key, 0, '+inf')) do
				redis.call('ZINCRBY', key, -ARGV[1], token)
			end
		end
	else
		for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', key, 0, '+inf')) do
			local inbox, number = string.match(waiter, '^([^ /]*)/(%d+)')
			redis.call('PUBLISH', 'redislock:inbox:' .. inbox, number)
		end
	end
end`
