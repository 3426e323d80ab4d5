package tree

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// crowd puts locks and waiters into a Redis, many at a time.
type crowd struct {
	pipe redis.Pipeliner
	now  time.Time
	err  error
}

func newCrowd(client redis.UniversalClient) *crowd {
	return &crowd{pipe: client.Pipeline(), now: time.Now()}
}

func (c *crowd) lock(key string) {
	c.flush(1000)
	c.pipe.Set(context.Background(), key, tokenOf(key)+" "+of("api-1"), longTTL)
}

// wait puts a waiter with that number into the line of a key. Its caller holds the other keys, each by a lock of its own.
func (c *crowd) wait(key string, number int, holds ...string) {
	c.flush(1000)
	var held []script.Holding
	for _, h := range holds {
		held = append(held, script.Holding{Token: tokenOf(h), Keys: []string{h}})
	}
	const life = 600
	inbox := fmt.Sprintf("process%d.1", number%50)
	names := script.WriteNames([]string{key}, held)
	entry := fmt.Sprintf("%s/%d 1 60000 0+%d %s%s %s", inbox, number, len(names), names, tokenOf("w"+strconv.Itoa(number)), of("api-2"))
	c.pipe.ZAdd(context.Background(), keyname.LineOf(key),
		redis.Z{Score: float64(c.now.UnixMicro() + int64(number)), Member: entry},
		redis.Z{Score: -float64(c.now.Add(500*time.Second).UnixMilli()*4096 + 2*life), Member: "~" + inbox})
}

func (c *crowd) flush(most int) {
	if c.err == nil && c.pipe.Len() >= most && c.pipe.Len() > 0 {
		_, c.err = c.pipe.Exec(context.Background())
	}
}

func (c *crowd) end() error {
	c.flush(1)
	return c.err
}

// chain makes locks of which the caller of each waits for the one before; if closed, that of the first waits for the last.
func (c *crowd) chain(length int, closed bool) {
	key := func(i int) string { return fmt.Sprintf("chain:%d", i) }
	for i := range length {
		c.lock(key(i))
		if i > 0 {
			c.wait(key(i-1), i, key(i))
		}
	}
	if closed {
		c.wait(key(length-1), length, key(0))
	}
}

// BenchmarkTree shows trees of many kinds. It reports how much memory tree has taken, and how long its slowest command has
// kept the server from others.
func BenchmarkTree(b *testing.B) {
	if err := redistest.Available(); err != nil {
		b.Skip(err)
	}
	program := clitest.BuildForBench(b)
	many := func(locks, each int) func(*crowd) {
		return func(c *crowd) {
			for i := range locks {
				c.lock(fmt.Sprintf("lock:%d", i))
				for j := range each {
					c.wait(fmt.Sprintf("lock:%d", i), i*each+j)
				}
			}
		}
	}
	for _, test := range []struct {
		name string
		fill func(*crowd)
		args string
	}{
		{"locks=5000/waiters=20000", many(5000, 4), ""},
		{"locks=5000/waiters=20000/json", many(5000, 4), "--json"},
		{"locks=1/waiters=10000", many(1, 10000), ""},
		{"chain=1000", func(c *crowd) { c.chain(1000, false) }, ""},
		{"chain=1000/all", func(c *crowd) { c.chain(1000, false) }, "--depth 0 --lines 0"},
		{"circle=8", func(c *crowd) { c.chain(8, true) }, ""},
		{"circle=1000", func(c *crowd) { c.chain(1000, true) }, ""},
		{"keys=1000000/locks=100", func(c *crowd) {
			for i := range 1_000_000 {
				c.flush(1000)
				c.pipe.Set(context.Background(), fmt.Sprintf("cache:%d", i), "something", time.Hour)
			}
			many(100, 4)(c)
		}, ""},
	} {
		b.Run(test.name, func(b *testing.B) {
			server, err := redistest.Start("slowlog-log-slower-than 500", "slowlog-max-len 10000")
			must(b, err)
			b.Cleanup(func() { _ = server.Close() })
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			b.Cleanup(func() { _ = client.Close() })
			c := newCrowd(client)
			test.fill(c)
			must(b, c.end())
			must(b, client.Do(b.Context(), "slowlog", "reset").Err())
			peak := 0
			args := append([]string{"tree", "--redis", "redis://" + server.Addr()}, strings.Fields(test.args)...)
			for b.Loop() {
				printed, most := clitest.Measure(b, program, args...)
				if !strings.Contains(printed, "api-2") {
					b.Fatal(printed)
				}
				peak = max(peak, most)
			}
			slow, err := client.SlowLogGet(b.Context(), -1).Result()
			must(b, err)
			slowest := time.Duration(0)
			for _, entry := range slow {
				slowest = max(slowest, entry.Duration)
			}
			b.ReportMetric(float64(peak)/1024, "MB-peak")
			b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest-command")
		})
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
