package several_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/spec"
)

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a lapsed lock", func(on *spec.Quorum) {
	var start time.Time
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }

	BeforeEach(func() {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) })
	})

	// pass has "a" held by another once the lock has lapsed, and waits until the stuck requests have acquired it for the lock.
	pass := func(ctx context.Context, lock *redislock.Lock, other *redislock.Client) {
		GinkgoHelper()
		at(3500 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		second := spec.Obtain(ctx, other, time.Second, &redislock.Options{FenceKey: "fence"}, "a")
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
		locks, other := on.TwoClients(ctx, func(opt *redis.Options) {
			opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1
		})
		Expect(spec.Obtain(ctx, other, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		start = time.Now()
		for i := range 2 {
			var obtains atomic.Int64
			on.Fates(i, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
				switch {
				case w.Owner != 1 || reply || time.Since(start) > 1500*time.Millisecond:
				case spec.RunsScript(data, "obtain") && obtains.Add(1) == 1:
					f.Cut, f.Delay = true, 5*time.Second // stuck
				default:
					f.Lost = true
				}
			})
		}
		lock, err := locks.Obtain(spec.Within(ctx, 4*time.Second), "a", time.Second,
			&redislock.Options{Queue: true, FenceKey: "fence"})
		Expect(err).NotTo(HaveOccurred())
		pass(ctx, lock, other)
		expectGone(ctx, lock)
	})
})
