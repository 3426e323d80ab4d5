package redislock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/redistest"
)

func smokeServers(t testing.TB, n int) ([]*redistest.Server, []redislock.RedisClient) {
	var servers []*redistest.Server
	var clients []redislock.RedisClient
	for range n {
		s, err := redistest.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { c.Close() })
		servers, clients = append(servers, s), append(clients, c)
	}
	return servers, clients
}

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	servers, clients := smokeServers(t, 3)
	c := redislock.NewQuorum(clients)
	defer c.Close()
	lock, err := c.ObtainMulti(ctx, []string{"a", "b"}, 10*time.Second, &redislock.Options{FenceKey: "f", Metadata: "me"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(lock.FenceToken(), time.Until(lock.Until()), lock.Key())
	fmt.Println(c.Obtain(ctx, "a", time.Second, nil))
	fmt.Println(c.Obtain(ctx, "a", time.Second, &redislock.Options{Explain: true}))
	fmt.Println(lock.TTL(ctx))
	fmt.Println(c.Inspect(ctx, "a", "b", "c"))
	fmt.Println(lock.Refresh(ctx, 20*time.Second, nil), time.Until(lock.Until()))
	at, err := c.Attach(ctx, []string{"a", "b"}, lock.Token())
	fmt.Println(at.Token() == lock.Token(), err)
	fmt.Println(lock.Release(ctx), lock.Release(ctx))
	fmt.Println(c.Inspect(ctx, "a", "b", "c"))
	start := time.Now()
	const n = 3000
	for range n {
		l, err := c.Obtain(ctx, "k", time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("pairs/s", n/time.Since(start).Seconds())
	servers[1].Pause()
	start = time.Now()
	for i := range n {
		l, err := c.Obtain(ctx, "k", time.Second, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(i, err)
		}
	}
	fmt.Println("one hung pairs/s", n/time.Since(start).Seconds())
	servers[0].Pause()
	for range 3 {
		start = time.Now()
		_, err = c.Obtain(ctx, "k", time.Second, nil)
		fmt.Println(time.Since(start), err)
	}
	servers[0].Resume()
	servers[1].Resume()
	time.Sleep(time.Second)
	q, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	lock, err = c.Obtain(ctx, "q", 500*time.Millisecond, nil)
	fmt.Println(lock != nil, err)
	start = time.Now()
	l2, err := c.Obtain(q, "q", time.Second, &redislock.Options{Queue: true})
	fmt.Println(l2 != nil, err, time.Since(start))
	go func() { time.Sleep(300 * time.Millisecond); l2.Release(ctx) }()
	start = time.Now()
	l3, err := c.Obtain(q, "q", time.Second, &redislock.Options{Queue: true})
	fmt.Println(l3 != nil, err, time.Since(start))
	l3.Release(ctx)
}
