package several_test

import (
	"cmp"
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("connections that die without a sign", func(on *spec.Quorum) {
	const readTimeout = 3 * time.Second

	var locks *redislock.Client
	var proxies []*faultproxy.Proxy
	BeforeEach(func() {
		proxies = nil
		var clients []redislock.RedisClient
		for _, s := range on.Servers {
			if s.Memory != nil {
				s.Memory.LeaveQuestions(false)
				proxies = append(proxies, s.Memory.Proxy)
				clients = append(clients, s.Memory.Connect(spec.Ours, func(o *redis.Options) { o.ReadTimeout = readTimeout }))
				continue
			}
			proxy, err := faultproxy.New(s.Real.Addr())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(proxy.Close)
			proxies = append(proxies, proxy)
			clients = append(clients, spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: readTimeout}))
		}
		locks = redislock.NewQuorum(clients)
		DeferCleanup(locks.Close)
	})

	// use makes each call with dead connections to the first n servers. It returns how long the slowest took.
	use := func(ctx context.Context, n int) (most time.Duration) {
		GinkgoHelper()
		var lock, other *redislock.Lock
		for name, call := range map[string]func() error{
			"obtain": func() (err error) {
				other, err = locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
				return err
			},
			"refresh": func() error { return lock.Refresh(ctx, time.Minute, nil) },
			"ttl":     func() error { _, err := lock.TTL(ctx); return err },
			"inspect": func() error { _, err := locks.Inspect(ctx, "held"); return err },
			"release": func() error { return lock.Release(ctx) },
		} {
			lock = spec.Obtain(ctx, locks, time.Minute, nil, "held"+name)
			time.Sleep(20 * time.Millisecond) // nothing is on its way any more
			for _, proxy := range proxies[:n] {
				proxy.ForsakeAll()
			}
			time.Sleep(5 * time.Millisecond) // see transport.justHeard
			start := time.Now()
			Expect(call()).To(Succeed(), name)
			took := time.Since(start)
			AddReportEntry(name, took.String(), ReportEntryVisibilityFailureOrVerbose)
			most = max(most, took)
			if name != "release" {
				Expect(lock.Release(ctx)).To(Succeed())
			}
		}
		Expect(other.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(20 * time.Second).Should(BeEmpty())
		time.Sleep(readTimeout + 2*time.Second) // what was lost is released once more
		return most
	}

	It("to one server cost no more than one that hangs", func(ctx SpecContext) {
		Expect(use(ctx, 1)).To(BeNumerically("<", spec.Bound(on.Kind, 110*time.Millisecond, time.Second)))
	})

	lateObtain := anyones("obtain", 1, faultproxy.DelayRequest(1500*time.Millisecond))

	It("to a server that executes an obtain after the Release leave no key there", func(ctx SpecContext) {
		fault := proxies[0].Add(lateObtain)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(2 * time.Second)
		Expect(fault.Count()).To(Equal(1))
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("to a server that executes an obtain after an obtain that was given up leave no key there", func(ctx SpecContext) {
		for _, proxy := range proxies {
			proxy.Add(lateObtain)
		}
		_, err := locks.ObtainMulti(spec.Within(ctx, 20*time.Millisecond), []string{"a", "b"}, time.Minute, nil)
		Expect(err).To(HaveOccurred())
		time.Sleep(2 * time.Second)
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("to all servers hold up each call for less than 2 s", func(ctx SpecContext) {
		Expect(use(ctx, len(proxies))).To(BeNumerically("<", 2*time.Second))
	})
})

// A false alarm: the connections live, but one message is late.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a call that counts as lost and is executed late", func(on *spec.Quorum) {
	var locks, other *redislock.Client
	BeforeEach(func(ctx SpecContext) {
		for _, s := range on.Servers {
			s.Memory.LeaveQuestions(false)
		}
		locks, other = twoClients(ctx, on, func(o *redis.Options) { o.ReadTimeout = 3 * time.Second })
	})
	delay := func(i int, script string, d time.Duration) {
		on.Servers[i].Memory.Add(ours(script, 1, faultproxy.DelayRequest(d)))
	}
	waiters := func(ctx context.Context) (n int) {
		for _, s := range on.Servers {
			n += len(spec.Line(ctx, s.Own, "a"))
		}
		return n
	}

	It("leaves nobody in line if it is the obtain of a waiter who has had the lock since", func(ctx SpecContext) {
		holder := spec.Obtain(ctx, other, time.Minute, nil, "a")
		start := time.Now()
		for i := range on.Servers {
			delay(i, "obtain", 2800*time.Millisecond)
		}
		waiter := make(chan error)
		go func() {
			lock, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Queue: true})
			waiter <- cmp.Or(err, lock.Release(ctx))
		}()
		time.Sleep(1500 * time.Millisecond)
		Expect(waiters(ctx)).To(Equal(len(on.Servers)))
		Expect(holder.Release(ctx)).To(Succeed())
		Expect(<-waiter).To(Succeed())
		holder = spec.Obtain(ctx, other, time.Minute, nil, "a")
		time.Sleep(3100*time.Millisecond - time.Since(start))
		Expect(waiters(ctx)).To(BeZero())
		Expect(holder.Release(ctx)).To(Succeed())
		Expect(spec.Obtain(ctx, other, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})

	It("leaves nobody in line at a server that has refused the copy", func(ctx SpecContext) {
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", 0).Err()).To(Succeed())
		delay(2, "obtain", 2*time.Second)
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		time.Sleep(600 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(1700 * time.Millisecond)
		Expect(waiters(ctx)).To(BeZero())
	})

	It("leaves no key at a server that has refused the copy", func(ctx SpecContext) {
		for _, early := range []bool{true, false} {
			Expect(on.Servers[2].Own.Set(ctx, "a", "another", 0).Err()).To(Succeed())
			time.Sleep(5 * time.Millisecond) // see transport.justHeard
			start := time.Now()
			delay(2, "obtain", 2*time.Second)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			time.Sleep(800 * time.Millisecond)
			Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
			if early {
				Expect(lock.Release(ctx)).To(Succeed())
			}
			time.Sleep(2100*time.Millisecond - time.Since(start))
			if !early {
				Expect(lock.Release(ctx)).To(Succeed())
			}
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(8 * time.Second).Should(BeEmpty())
		}
	})

	It("finds that the keys were deleted before, if it is a release", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(10 * time.Millisecond)
		for i, s := range on.Servers {
			Expect(s.Own.Del(ctx, "a").Err()).To(Succeed())
			delay(i, "release", 400*time.Millisecond)
		}
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("mints no fencing token that a later holder has", func(ctx SpecContext) {
		for i := range on.Servers {
			delay(i, "obtain", 1500*time.Millisecond)
		}
		before := int64(0)
		for _, client := range []*redislock.Client{locks, other, other} {
			lock := spec.Obtain(ctx, client, time.Minute, fenced, "a")
			Expect(lock.FenceToken()).To(BeNumerically(">", before))
			before = lock.FenceToken()
			time.Sleep(time.Second)
			Expect(lock.Release(ctx)).To(Succeed())
		}
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(8 * time.Second).Should(BeEmpty())
	})
})
