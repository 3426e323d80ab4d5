package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/spec"
)

var _ = describeSchedules("a Release for what lasts long or comes late", func(on *schedule) {
	// away makes server 2, which has "a", refuse connections for so long, from before during. Then the key is to be freed.
	away := func(ctx SpecContext, d time.Duration, during func()) {
		GinkgoHelper()
		on.Servers[2].Memory.Refuse()
		during()
		time.Sleep(d)
		Expect(on.Servers[2].Memory.Memory.Keys()).To(Equal([]string{"a"}))
		on.Servers[2].Memory.Revive()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	}

	DescribeTable("goes on for as long as the keys last at a server that has missed a Refresh to a shorter ttl",
		func(ctx SpecContext, handle func(lock *redislock.Lock) (*redislock.Lock, error)) {
			lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
			Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			lock, err := handle(lock)
			Expect(err).NotTo(HaveOccurred())
			away(ctx, 10*time.Second, func() {
				Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
				Expect(lock.Release(ctx)).To(Succeed())
			})
		},
		Entry("by its owner", func(lock *redislock.Lock) (*redislock.Lock, error) { return lock, nil }),
		Entry("through Attach", func(lock *redislock.Lock) (*redislock.Lock, error) {
			return on.other.Attach(context.Background(), lock.Keys(), lock.Token())
		}),
	)

	It("goes on for as long as a mend without an answer may make the keys last", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
		on.Servers[2].Memory.Memory.Del("a")
		mends := on.Break(2, ours("obtain", 1, replyLost), ours("obtain", 0, requestLost))
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token())))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		time.Sleep(500 * time.Millisecond)
		Expect(mends[1].Count()).To(BeNumerically(">", 0))
		away(ctx, 10*time.Second, func() {
			Expect(lock.Release(ctx)).To(Succeed())
		})
	})

	It("goes on for as long as an older mend may make the keys last, whatever a Refresh has made of them", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
		on.Servers[2].Memory.Memory.Del("a")
		mends := on.Break(2, ours("obtain", 1, stuck(700*time.Millisecond)), ours("obtain", 0, passes))
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(mends[1].Count()).To(Equal(1))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		time.Sleep(600 * time.Millisecond)
		Expect(on.Servers[2].Own.PTTL(ctx, "a").Val()).To(BeNumerically(">", time.Minute))
		away(ctx, 10*time.Second, func() {
			Expect(lock.Release(ctx)).To(Succeed())
		})
	})

	DescribeTable("frees what a mend acquires after it, although the server is away then",
		func(ctx SpecContext, ttl time.Duration, handle func(lock *redislock.Lock) (*redislock.Lock, error)) {
			lock, err := handle(on.everywhere(ctx, on.other, time.Second, nil, "a"))
			Expect(err).NotTo(HaveOccurred())
			on.Servers[2].Memory.Memory.Del("a")
			on.Break(2, ours("obtain", 1, stuck(1500*time.Millisecond)), ours("obtain", 0, requestLost),
				theirs("obtain", 1, stuck(1500*time.Millisecond)), theirs("obtain", 0, requestLost))
			on.start = time.Now()
			Expect(lock.Refresh(ctx, ttl, nil)).To(Succeed())
			on.at(time.Second)
			Expect(lock.Release(ctx)).To(Succeed())
			on.at(1100 * time.Millisecond)
			Expect(on.LeftKeys(ctx)).To(BeEmpty())
			on.at(1550 * time.Millisecond)
			Expect(has(ctx, on.Quorum, 2)).To(Equal(int64(1)))
			away(ctx, 8*time.Second, func() {})
		},
		Entry("by its owner", time.Hour, func(lock *redislock.Lock) (*redislock.Lock, error) { return lock, nil }),
		Entry("through Attach", time.Minute, func(lock *redislock.Lock) (*redislock.Lock, error) {
			return on.Locks.Attach(context.Background(), lock.Keys(), lock.Token())
		}),
	)

	It("through Attach goes on for a minute, although mends to a shorter ttl were not answered", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.other, time.Minute, nil, "a")
		attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		mends := on.Break(2, ours("obtain", 0, requestLost), ours("refresh", 0, requestLost))
		on.start = time.Now()
		for at := time.Duration(0); at < 2*time.Second; at += 600 * time.Millisecond {
			on.at(at)
			Expect(attached.Refresh(ctx, time.Second, nil)).To(Succeed())
		}
		on.at(2300 * time.Millisecond)
		Expect(mends[0].Count()).To(BeNumerically(">", 0))
		away(ctx, 12*time.Second, func() {
			Expect(attached.Release(ctx)).To(Succeed())
		})
	})
})
