package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
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
		locks, other := twoClients(ctx, on, func(opt *redis.Options) {
			opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1
		})
		Expect(spec.Obtain(ctx, other, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		start = time.Now()
		first := []*faultproxy.Fault{
			on.Break(0, ours("obtain", 1, stuck(5*time.Second)), noRequests)[0],
			on.Break(1, ours("obtain", 1, stuck(5*time.Second)), noRequests)[0],
		}
		time.AfterFunc(1500*time.Millisecond, func() { on.Heal(0, 1) })
		lock, err := locks.Obtain(spec.Within(ctx, 4*time.Second), "a", time.Second,
			&redislock.Options{Queue: true, FenceKey: "fence"})
		Expect(err).NotTo(HaveOccurred())
		Expect(first[0].Count() + first[1].Count()).To(Equal(2))
		pass(ctx, lock, other)
		expectGone(ctx, lock)
	})
})
