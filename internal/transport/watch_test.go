package transport_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// A firewall or a load balancer forgets connections, or a virtual machine moves: what is sent on them is never answered, and
// nobody closes them. New connections work.
var _ = spec.DescribeOnRedis("When all connections have died without a sign,", func(on *spec.Redis) {
	const soon = 2 * time.Second
	const readTimeout = 5 * time.Second

	var proxy *faultproxy.Proxy
	BeforeEach(func() {
		proxy = on.NewProxy()
		proxy.LeaveQuestions(false)
	})

	// fill makes a client have as many idle connections as its pools hold, for commands and for pipelines.
	fill := func(ctx context.Context, client *redis.Client) {
		GinkgoHelper()
		stats := client.PoolStats()
		free := client.Options().PoolSize - int(stats.TotalConns-stats.IdleConns)
		var all, here sync.WaitGroup
		here.Add(free)
		for range free {
			all.Go(func() {
				conn := client.Conn()
				defer conn.Close()
				_ = conn.Ping(ctx) // the connection is dead if it was idle when all died
				here.Done()
				here.Wait()
			})
		}
		for range 10 {
			all.Go(func() {
				pipe := client.Pipeline()
				pipe.Eval(ctx, "for i = 1, 1000 do redis.call('PING') end", nil)
				_, _ = pipe.Exec(ctx)
			})
		}
		all.Wait()
	}
	connect := func() *redis.Client {
		return spec.Connect(&redis.Options{Addr: proxy.Addr(), PoolSize: 20, ReadTimeout: readTimeout})
	}
	locking := func(client redislock.RedisClient, opts ...redislock.ClientOption) *redislock.Client {
		locks := redislock.New(client, opts...)
		DeferCleanup(locks.Close)
		return locks
	}

	kinds := map[string]func(client *redis.Client) *redislock.Client{
		"with a client as it is": func(c *redis.Client) *redislock.Client { return locking(c) },
	}
	if on.Kind == spec.InMemory { // these wait long
		kinds["with separate calls"] = func(c *redis.Client) *redislock.Client { return locking(c, redislock.WithSeparateCalls()) }
		kinds["with a custom client type"] = func(c *redis.Client) *redislock.Client { return locking(&struct{ redis.Scripter }{c}) }
	}
	for name, lockingWith := range kinds {
		It("every call succeeds soon, "+name, func(ctx SpecContext) {
			client := connect()
			locks := lockingWith(client)
			held := spec.Obtain(ctx, locks, time.Minute, nil, "held")
			calls := map[string]func(ctx context.Context) error{
				"Obtain": func(ctx context.Context) error {
					_, err := locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
					return err
				},
				"Refresh": func(ctx context.Context) error { return held.Refresh(ctx, time.Minute, nil) },
				"TTL":     func(ctx context.Context) error { _, err := held.TTL(ctx); return err },
				"Attach": func(ctx context.Context) error {
					_, err := locks.Attach(ctx, []string{"held"}, held.Token())
					return err
				},
				"Inspect": func(ctx context.Context) error { _, err := locks.Inspect(ctx, "held"); return err },
				"Release": nil, // below
			}
			for name, call := range calls {
				for _, ctx := range []context.Context{ctx, context.Background()} {
					fill(ctx, client)
					if name == "Release" {
						lock := spec.Obtain(ctx, locks, time.Minute, nil, "released")
						call = lock.Release
					}
					proxy.ForsakeAll()
					time.Sleep(5 * time.Millisecond) // see transport.justHeard
					start := time.Now()
					Expect(call(ctx)).To(Succeed(), name)
					Expect(time.Since(start)).To(BeNumerically("<", soon), name)
					if name == "Obtain" {
						Expect(on.Client.Del(ctx, "a", "b").Err()).To(Succeed())
					}
				}
			}
		})
	}

	It("many calls at a time succeed", func(ctx SpecContext) {
		client := connect()
		locks := locking(client)
		for range 2 {
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					defer GinkgoRecover()
					for range 5 {
						lock := spec.Obtain(ctx, locks, time.Minute, nil, string(rune('A'+i)))
						Expect(lock.Release(ctx)).To(Succeed())
					}
				})
			}
			all.Wait()
			fill(ctx, client)
			proxy.ForsakeAll()
		}
	})

	ttls := []time.Duration{time.Second, 6 * time.Second}
	if on.Kind != spec.InMemory { // the machine may be busy
		ttls = []time.Duration{2 * time.Second}
	}
	for _, ttl := range ttls {
		It("no kept lock is lost that lasts for "+ttl.String(), func(ctx SpecContext) {
			client := connect()
			locks := locking(client)
			var kept []context.Context
			for i := range 5 {
				lock := spec.Obtain(ctx, locks, ttl, nil, string(rune('a'+i)))
				ctx, stop := lock.KeepAlive(ctx)
				DeferCleanup(stop)
				kept = append(kept, ctx)
			}
			for range 3 {
				time.Sleep(ttl / 2)
				fill(ctx, client)
				proxy.ForsakeAll()
				time.Sleep(ttl)
				for _, k := range kept {
					Expect(k.Err()).NotTo(HaveOccurred())
				}
			}
		})
	}

	It("a waiter in line has what was released soon", func(ctx SpecContext) {
		client := connect()
		locks := locking(client)
		holder := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
		waiter := spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		fill(ctx, client)
		proxy.ForsakeAll()
		start := time.Now()
		Expect(holder.Release(ctx)).To(Succeed())
		waiter.Granted()                             // its next try may be an interval away
		most := line.Interval + 500*time.Millisecond // it notices that its connection is dead
		Expect(time.Since(start)).To(BeNumerically("<", spec.Bound(on.Kind, most, 5*time.Second)))
	})

	It("a server that only hangs keeps its connections", func(ctx SpecContext) {
		client := connect()
		locks := locking(client)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		fill(ctx, client)
		before := client.PoolStats().TotalConns
		proxy.Hang()
		go func() {
			time.Sleep(readTimeout * 3 / 5)
			proxy.Resume()
		}()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(client.PoolStats().TotalConns).To(Equal(before))
		Expect(client.PoolStats().StaleConns).To(BeZero())
	})
})
