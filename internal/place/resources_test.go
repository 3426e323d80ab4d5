package place_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Many Clients of one Redis client", func(on *spec.Redis) {
	var client *redis.Client
	var count *spec.ConnectionCount
	queue := &redislock.Options{Queue: true}

	BeforeEach(func() {
		client, count = on.CountConnections()
	})

	DescribeTable("share one subscription, also with 400 waits that are abandoned", func(ctx SpecContext, wait func(ctx context.Context) error) {
		if err := everywhere(20, 20, func(i int) error {
			limited, cancel := context.WithTimeout(ctx, time.Duration(10+i%20)*time.Millisecond)
			defer cancel()
			if i%40 == 0 {
				runtime.GC() // what is shared must outlast the Clients
			}
			return wait(limited)
		}, func() { spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a") }); err != nil {
			Fail(err.Error())
		}
		Expect(len(spec.Subscriptions(ctx, on.Client))).To(BeNumerically("<=", 1))
		GinkgoWriter.Println(count.Most.Load(), "connections at most,", count.All.Load(), "in all")
		Expect(count.Most.Load()).To(BeNumerically("<=", 4+6), "a pool of 4, which go-redis exceeds by a few, and the subscription")
		Eventually(func() []string { return spec.Subscriptions(ctx, on.Client) }).WithTimeout(12*time.Second).Should(BeEmpty(), "10 s after the last waiter")
		Eventually(func() []string { return on.Keys(ctx) }).Should(ConsistOf("a"), "nobody is left in line")
	},
		Entry("of New, closed", func(ctx context.Context) error {
			locks := redislock.New(client)
			_, err := locks.Obtain(ctx, "a", time.Minute, queue)
			_ = locks.Close()
			return err
		}),
		on.InFakeTime(
			Entry("of New", func(ctx context.Context) error {
				_, err := redislock.New(client).Obtain(ctx, "a", time.Minute, queue)
				return err
			}),
			Entry("of functions of the package", func(ctx context.Context) error {
				_, err := redislock.Obtain(ctx, client, "a", time.Minute, queue)
				return err
			}),
			Entry("with separate calls", func(ctx context.Context) error {
				_, err := redislock.New(client, redislock.WithSeparateCalls()).Obtain(ctx, "a", time.Minute, queue)
				return err
			}),
		),
	)

	It("share the subscription whatever made them, and Close of one ends the waits of no other", func(ctx SpecContext) {
		held := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a", "b")
		all := []*redislock.Client{
			redislock.New(client), redislock.New(client), redislock.New(client, redislock.WithSeparateCalls()),
			redislock.New(client, redislock.WithTracer(&redislock.Tracer{})),
			redislock.NewQuorum([]redislock.RedisClient{client, on.Client, spec.Connect(&redis.Options{Addr: on.Addr, DB: on.Client.Options().DB})}),
		}
		var queued []*spec.Waiter
		for i, locks := range all {
			DeferCleanup(locks.Close)
			key := "a"
			if i == len(all)-1 {
				key = "b" // it is three servers for that one, so it stands in line three times
			}
			w := &spec.Waiter{Done: make(chan struct{})}
			ctx, cancel := context.WithCancel(ctx)
			w.Cancel = cancel
			go func() { // ends with the wait
				defer close(w.Done)
				w.Lock, w.Err = locks.Obtain(ctx, key, time.Minute, queue)
			}()
			Eventually(func() int { return len(spec.Line(ctx, on.Client, "a")) + min(1, len(spec.Line(ctx, on.Client, "b"))) }).Should(Equal(i + 1))
			queued = append(queued, w)
		}
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		Eventually(func() []string { return spec.Subscriptions(ctx, on.Client) }).Should(HaveLen(3), "one for each Redis client")
		dials := count.All.Load()
		Expect(all[0].Close()).To(Succeed())
		Expect(queued[0].Over()).To(Equal(redislock.ErrClosed))
		Expect(all[1].Close()).To(Succeed())
		Expect(queued[1].Over()).To(Equal(redislock.ErrClosed))
		Expect(spec.Subscriptions(ctx, on.Client)).To(HaveLen(3))
		queued[4].Cancel()
		Expect(queued[4].Over()).To(MatchError(context.Canceled))
		Eventually(func() int { return len(spec.Line(ctx, on.Client, "b")) }).Should(BeZero()) // it leaves through the client as well
		sent := spec.CountCalls(client)
		Expect(held.Release(ctx)).To(Succeed())
		lock := queued[2].Granted()
		Expect(sent.Count()).To(BeZero(), "it was handed the key")
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(queued[3].Granted().Release(ctx)).To(Succeed())
		for _, locks := range all {
			Expect(locks.Close()).To(Succeed())
		}
		Expect(count.All.Load()-dials).To(BeNumerically("<=", 3), "nobody has subscribed again")
		Eventually(func() []string { return spec.Subscriptions(ctx, on.Client) }).WithTimeout(2 * time.Second).Should(BeEmpty())
	})

	It("share the renewals, and Close of one ends the contexts of its own locks only", func(ctx SpecContext) {
		const ttl = 2 * time.Second
		trips := &spec.PipelineCount{}
		client.AddHook(trips)
		all := make([]*redislock.Client, 50)
		kept := make([]context.Context, len(all))
		for i := range all {
			all[i] = redislock.New(client)
			DeferCleanup(all[i].Close)
			lock := spec.Obtain(ctx, all[i], ttl, nil, fmt.Sprint("key", i))
			var stop context.CancelFunc
			kept[i], stop = lock.KeepAlive(ctx)
			DeferCleanup(stop)
		}
		Expect(schedulers()).To(Equal(1))
		time.Sleep(2 * ttl)
		rounds, together := trips.Counts()
		Expect(together).To(BeNumerically(">=", 4*len(all)))
		Expect(rounds).To(BeNumerically("<", together/4), "many are renewed in one pipeline")
		for i := range 10 {
			Expect(all[i].Close()).To(Succeed())
			Expect(context.Cause(kept[i])).To(Equal(redislock.ErrClosed))
		}
		again, stop := spec.Obtain(ctx, all[10], ttl, nil, "again").KeepAlive(ctx)
		defer stop()
		time.Sleep(ttl)
		for _, kept := range append(kept[10:], again) {
			Expect(kept.Err()).NotTo(HaveOccurred())
		}
		for _, locks := range all {
			Expect(locks.Close()).To(Succeed())
		}
		Eventually(schedulers).Should(BeZero())
	})

	It("share pipelines", func(ctx SpecContext) {
		proxy := on.NewProxy() // without a way to go, each call could be over before the next begins
		proxy.Add(faultproxy.Rule{Action: faultproxy.DelayReply(time.Millisecond)})
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB})
		trips := &spec.PipelineCount{}
		client.AddHook(trips)
		all := make([]*redislock.Client, 64)
		for i := range all {
			all[i] = redislock.New(client)
			Expect(spec.Obtain(ctx, all[i], time.Minute, nil, "first").Release(ctx)).To(Succeed())
		}
		Expect(everywhere(64, 10, func(i int) error {
			lock, err := all[i%64].Obtain(ctx, fmt.Sprint("key", i%64), time.Minute, nil)
			if err == nil {
				err = lock.Release(ctx)
			}
			return err
		}, nil)).To(Succeed())
		_, together := trips.Counts()
		Expect(together).To(BeNumerically(">", 0))
	})

	It("notice a hook that was added after the first of them, before their calls share", func(ctx SpecContext) {
		Expect(spec.Obtain(ctx, redislock.New(client), time.Minute, nil, "a").Release(ctx)).To(Succeed())
		hook := &spec.PrefixHook{Prefix: func(context.Context) string { return "tenant:" }}
		client.AddHook(hook)
		locks := redislock.New(client)
		Expect(everywhere(64, 5, func(i int) error {
			lock, err := locks.Obtain(ctx, fmt.Sprint("key", i%64), time.Minute, nil)
			if err == nil {
				err = lock.Release(ctx)
			}
			return err
		}, nil)).To(Succeed())
		Expect(hook.Pipelined.Load()).To(BeZero())
	})
})

var _ = spec.DescribeQuorum("Clients that share servers with others", func(on *spec.Quorum) {
	It("stand in the same lines, in the same order everywhere", func(ctx SpecContext) {
		servers := func(clients func(i int) redislock.RedisClient) (all []redislock.RedisClient) {
			for i := range on.Servers {
				all = append(all, clients(i))
			}
			return all
		}
		shared := func(i int) redislock.RedisClient { return on.Servers[i].Client }
		own := func(i int) redislock.RedisClient { return on.Servers[i].Own }
		mixed := func(i int) redislock.RedisClient {
			if i%2 == 0 {
				return shared(i)
			}
			return own(i)
		}
		backwards := func(i int) redislock.RedisClient { return shared(len(on.Servers) - 1 - i) }
		var all []*redislock.Client
		for _, clients := range []func(int) redislock.RedisClient{shared, shared, own, mixed, backwards} {
			all = append(all, redislock.NewQuorum(servers(clients)))
		}
		var holders, grants atomic.Int32
		err := everywhere(4*len(all), 5, func(i int) error {
			lock, err := all[i%len(all)].Obtain(ctx, "a", time.Minute, &redislock.Options{Queue: true})
			if err != nil {
				return err
			}
			if holders.Add(1) > 1 {
				return fmt.Errorf("%d holders", holders.Load())
			}
			grants.Add(1)
			time.Sleep(time.Millisecond)
			holders.Add(-1)
			return lock.Release(ctx)
		}, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(grants.Load()).To(Equal(int32(20 * len(all))))
		Expect(len(spec.Subscriptions(ctx, on.Servers[0].Own))).To(BeNumerically("<=", 2), "one for each Redis client")
		for _, locks := range all {
			Expect(locks.Close()).To(Succeed())
		}
	})
})

// everywhere does something n times in each of so many goroutines, and returns the first error that is not a refusal. It
// calls first before.
func everywhere(goroutines, n int, f func(i int) error, first func()) error {
	if first != nil {
		first()
	}
	var wait sync.WaitGroup
	errs := make(chan error, goroutines*n)
	for g := range goroutines {
		wait.Go(func() {
			for i := range n {
				if err := f(g + goroutines*i); err != nil && !strings.HasPrefix(err.Error(), redislock.ErrNotObtained.Error()) {
					errs <- err
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs
}

// schedulers returns how many goroutines renew locks.
func schedulers() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "created by github.com/redislock/redislock/internal/schedule.")
}

// owner is a client type of a caller who keeps the Client in it: both refer to each other.
type owner struct {
	redis.Scripter
	locks *redislock.Client
}

var _ = Describe("What the Clients of a Redis client share", func() {
	DescribeTable("keeps no Redis client alive, and nothing is left of it", func(ctx SpecContext, use func() func() bool) {
		before := place.CountResources()
		gone := use()
		Eventually(func() bool {
			runtime.GC()
			return gone() && place.CountResources() <= before
		}).WithTimeout(10 * time.Second).Should(BeTrue())
	},
		Entry("of a *redis.Client", func() func() bool {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer client.Close()
			locks := redislock.New(client)
			Expect(place.CountResources()).To(BeNumerically(">", 0))
			Expect(locks.Close()).To(Succeed())
			p := weak.Make(client)
			return func() bool { return p.Value() == nil }
		}),
		Entry("of a *redis.Client whose Clients were not closed", func() func() bool {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
			defer client.Close()
			_, err := redislock.New(client).Obtain(context.Background(), "a", time.Minute, nil)
			Expect(err).To(HaveOccurred())
			p := weak.Make(client)
			return func() bool { return p.Value() == nil }
		}),
		Entry("of a *redis.ClusterClient", func() func() bool {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
			defer client.Close()
			redislock.New(client)
			p := weak.Make(client)
			return func() bool { return p.Value() == nil }
		}),
		Entry("of a pointer that has the Client in it", func() func() bool {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer client.Close()
			own := &owner{Scripter: client}
			own.locks = redislock.New(own)
			p := weak.Make(own)
			return func() bool { return p.Value() == nil }
		}),
		Entry("of a struct that can be compared", func() func() bool {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer client.Close()
			redislock.New(struct{ redis.Scripter }{client})
			redislock.New(struct{ redis.Scripter }{client})
			p := weak.Make(client)
			return func() bool { return p.Value() == nil }
		}),
	)

	It("is nothing for a type that cannot be compared", func() {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		before := place.CountResources()
		type incomparable struct {
			redis.Scripter
			_ []int
		}
		Expect(redislock.New(incomparable{Scripter: client}).Close()).To(Succeed())
		Expect(redislock.New(struct{ redis.Scripter }{incomparable{Scripter: client}}).Close()).To(Succeed())
		Expect(place.CountResources()).To(BeNumerically("<=", before))
	})
})
