package redislock_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

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

	It("does not come back by what an earlier round has sent", func(ctx SpecContext) {
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
			&redislock.Options{Queue: true, FenceKey: "fence"})
		Expect(err).NotTo(HaveOccurred())
		pass(ctx, lock, other)
		expectGone(ctx, lock)
	})
})
