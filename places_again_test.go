package redislock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// Schedules that a reviewer has found, on fake time: a place that has keys of a custom token before the obtain. Server 2 is
// further away than the others, so it answers when the lock is made.
var _ = describeQuorumOf(inMemory, 3, "a place that has keys of a custom token", func(on *quorum) {
	var locks, other *redislock.Client
	opt := &redislock.Options{Token: "job"}

	BeforeEach(func(ctx SpecContext) {
		if redislock.AlwaysTogether {
			Skip("these are schedules of calls that go by themselves")
		}
		locks, other = on.twoClients(ctx, nil)
		on.fates(2, func(f *fate, w *wire, reply bool, _ []byte) {
			if w.owner == 1 && !reply {
				f.delay = 3 * time.Millisecond
			}
		})
		DeferCleanup(func() { time.Sleep(20 * time.Second) })
	})

	// leave leaves "a" behind at a server, for that long.
	leave := func(ctx context.Context, i int, ttl time.Duration) {
		GinkgoHelper()
		Expect(on.servers[i].own.Set(ctx, "a", "job", ttl).Err()).To(Succeed())
	}

	expectLasting := func(ctx context.Context) {
		GinkgoHelper()
		Expect(on.values(ctx, "a")).To(Equal(same(3, "job")))
		Expect(on.servers[2].own.PTTL(ctx, "a").Val()).To(BeNumerically(">", 50*time.Second))
	}

	It("has them for the ttl of the lock", func(ctx SpecContext) {
		leave(ctx, 2, 200*time.Millisecond)
		lock := obtain(ctx, locks, time.Minute, opt, "a", "b")
		time.Sleep(time.Second)
		expectLasting(ctx)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(on.left(ctx)).To(BeEmpty())
	})

	It("has them for the ttl of the lock, also if it answers while the fence counters are made alike", func(ctx SpecContext) {
		Expect(on.servers[0].own.Set(ctx, "fence", 5_000_000_000_000_000, 0).Err()).To(Succeed())
		leave(ctx, 2, 200*time.Millisecond)
		on.fates(1, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 1 && !reply && runs(data, "fence") {
				f.delay = 10 * time.Millisecond
			}
		})
		lock := obtain(ctx, locks, time.Minute, &redislock.Options{Token: "job", FenceKey: "fence"}, "a", "b")
		time.Sleep(time.Second)
		expectLasting(ctx)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("does not count until it has been asked again", func(ctx SpecContext) {
		leave(ctx, 2, 200*time.Millisecond)
		var obtains atomic.Int64
		on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 1 && !reply {
				f.delay, f.lost = 3*time.Millisecond, !runs(data, "obtain") || obtains.Add(1) > 1
			}
		})
		lock := obtain(ctx, locks, 3*time.Second, opt, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(2*time.Second)))
		Expect(on.servers[1].own.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(within(ctx, 300*time.Millisecond), 3*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})

	It("is released once with the lock, and another process may use the token then", func(ctx SpecContext) {
		leave(ctx, 2, 300*time.Millisecond)
		lock := obtain(ctx, locks, time.Minute, opt, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(on.values(ctx, "a")).To(Equal(same(3, "job")))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(on.left(ctx)).To(BeEmpty())
		obtain(ctx, other, time.Minute, opt, "a")
		time.Sleep(2 * time.Second)
		Expect(on.values(ctx, "a")).To(Equal(same(3, "job")))
	})

	It("is released once with the lock, also if that was obtained inside another", func(ctx SpecContext) {
		outer := obtain(ctx, locks, time.Minute, opt, "a")
		time.Sleep(100 * time.Millisecond)
		lock := obtain(ctx, locks, time.Minute, opt, "a", "b")
		time.Sleep(100 * time.Millisecond)
		Expect(on.values(ctx, "b")).To(Equal(same(3, "job")))
		Expect(lock.Release(ctx)).To(Succeed())
		_ = outer.Release(ctx) // "a" is gone
		time.Sleep(100 * time.Millisecond)
		Expect(on.left(ctx)).To(BeEmpty())
		obtain(ctx, other, time.Minute, opt, "a", "b")
		time.Sleep(2 * time.Second)
		Expect(on.values(ctx, "a")).To(Equal(same(3, "job")))
	})

	It("counts when the lock has lapsed and is refreshed", func(ctx SpecContext) {
		leave(ctx, 2, 300*time.Millisecond)
		lock := obtain(ctx, locks, time.Minute, opt, "a")
		time.Sleep(100 * time.Millisecond)
		for i := range on.servers {
			on.fates(i, cutsOff(1))
		}
		Expect(lock.Refresh(within(ctx, 300*time.Millisecond), time.Second, nil)).NotTo(Succeed())
		time.Sleep(2 * time.Second)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.fates(1, nil)
		on.fates(2, nil)
		Expect(lock.Refresh(within(ctx, time.Second), time.Minute, nil)).To(Succeed())
	})

	DescribeTable("gives back what it took if it cannot give the others the ttl", func(ctx SpecContext, queue bool) {
		leave(ctx, 0, 50*time.Millisecond)
		Expect(on.servers[2].own.Set(ctx, "a", "other", time.Minute).Err()).To(Succeed())
		var obtains atomic.Int64
		on.fates(0, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 1 && !reply && runs(data, "obtain") && obtains.Add(1) == 2 {
				f.delay = 80 * time.Millisecond
			}
		})
		time.AfterFunc(60*time.Millisecond, func() { on.servers[0].own.Set(ctx, "a", "other", time.Minute) })
		_, err := locks.ObtainMulti(within(ctx, 3*time.Second), []string{"a", "b"}, time.Minute,
			&redislock.Options{Token: "job", Queue: queue})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		time.Sleep(2 * time.Second)
		Expect(on.left(ctx)).To(ConsistOf(on.servers[0].name+": a", on.servers[2].name+": a"))
	}, Entry("at once", false), Entry("in line", true))
})

var _ = describeQuorumOf(inMemory, 3, "a lapsed lock", func(on *quorum) {
	var start time.Time
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }

	BeforeEach(func() {
		if redislock.AlwaysTogether {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) })
	})

	// pass has "a" held by another once the lock has lapsed, and waits until the stuck requests have acquired it for the lock.
	pass := func(ctx context.Context, lock *redislock.Lock, other *redislock.Client) {
		GinkgoHelper()
		at(3500 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		second := obtain(ctx, other, time.Second, &redislock.Options{FenceKey: "fence"}, "a")
		Expect(second.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		at(4 * time.Second)
		Expect(second.Release(ctx)).To(Succeed())
		at(5200 * time.Millisecond)
	}

	expectGone := func(ctx context.Context, lock *redislock.Lock) {
		GinkgoHelper()
		Expect(lock.Refresh(ctx, time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	}

	for _, token := range []string{"", "job"} {
		It(fmt.Sprintf("does not come back by what an earlier round of the token %q has sent", token), func(ctx SpecContext) {
			locks, other := on.twoClients(ctx, func(opt *redis.Options) {
				opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1
			})
			Expect(obtain(ctx, other, time.Second, nil, "warm").Release(ctx)).To(Succeed())
			start = time.Now()
			for i := range 2 {
				var obtains atomic.Int64
				on.fates(i, func(f *fate, w *wire, reply bool, data []byte) {
					switch {
					case w.owner != 1 || reply || time.Since(start) > 1500*time.Millisecond:
					case runs(data, "obtain") && obtains.Add(1) == 1:
						f.cut, f.delay = true, 5*time.Second // stuck
					default:
						f.lost = true
					}
				})
			}
			lock, err := locks.Obtain(within(ctx, 4*time.Second), "a", time.Second,
				&redislock.Options{Token: token, Queue: true, FenceKey: "fence"})
			Expect(err).NotTo(HaveOccurred())
			pass(ctx, lock, other)
			expectGone(ctx, lock)
		})
	}

	It("does not come back by the first request of an obtain that has found keys of its token", func(ctx SpecContext) {
		locks, other := on.twoClients(ctx, nil)
		for i := range 2 {
			Expect(on.servers[i].own.Set(ctx, "a", "job", time.Second).Err()).To(Succeed())
			var obtains atomic.Int64
			on.fates(i, func(f *fate, w *wire, reply bool, data []byte) {
				if w.owner == 1 && !reply && runs(data, "obtain") && obtains.Add(1) == 1 {
					f.cut, f.delay = true, 5*time.Second // stuck
				}
			})
		}
		on.fates(2, cutsOff(1))
		start = time.Now()
		lock := obtain(ctx, locks, time.Second, &redislock.Options{Token: "job"}, "a")
		pass(ctx, lock, other)
		Expect(on.values(ctx, "a")).To(Equal([]string{"job", "job", ""}))
		expectGone(ctx, lock)
	})
})
