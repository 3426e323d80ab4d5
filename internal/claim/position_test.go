package claim_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeFaulty("The release of a lock that was lost", func(on *spec.FaultyRedis) {
	DescribeTable("leaves no position in line to a try that arrives while it is under way", func(ctx SpecContext, fence string) {
		locks, direct := on.ConnectBy(nil), redislock.New(on.Client)
		held := spec.Obtain(ctx, direct, time.Minute, &redislock.Options{FenceKey: fence}, "a")
		granted := make(chan *redislock.Lock, 1)
		go func() {
			defer GinkgoRecover()
			granted <- spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true, FenceKey: fence}, "a")
		}()
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(spec.Soon).Should(Equal(2))
		stuck := on.Broken("obtain", 1, faultproxy.DelayRequest(1800*time.Millisecond))
		Eventually(stuck.Hit()).WithTimeout(2 * spec.Soon).Should(BeClosed())
		hit := time.Now()
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(2 * spec.Soon).Should(Equal(3)) // in place of that one
		Expect(held.Release(ctx)).To(Succeed())
		lock := <-granted
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		spec.Obtain(ctx, direct, time.Minute, nil, "a")
		time.Sleep(time.Until(hit.Add(1650 * time.Millisecond)))
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		time.Sleep(500 * time.Millisecond)
		Expect(direct.Line(ctx, "a")).To(BeEmpty())
	},
		Entry("without a fence key", ""),
		Entry("with one", "fence"),
	)
})

var _ = spec.DescribeFaulty("The release of a lock whose reply is lost", func(on *spec.FaultyRedis) {
	It("does not take its own work for a loss when a late try is answered after it", func(ctx SpecContext) {
		locks, direct := on.ConnectBy(nil), redislock.New(on.Client)
		DeferCleanup(direct.Close)
		held := spec.Obtain(ctx, direct, time.Minute, nil, "a")
		granted := make(chan *redislock.Lock, 1)
		wait := func(locks *redislock.Client) {
			defer GinkgoRecover()
			granted <- spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		}
		go wait(locks)
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(spec.Soon).Should(Equal(2))
		stuck := on.Broken("obtain", 1, faultproxy.DelayRequest(1800*time.Millisecond))
		Eventually(stuck.Hit()).WithTimeout(2 * spec.Soon).Should(BeClosed())
		hit := time.Now()
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(2 * spec.Soon).Should(Equal(3)) // in place of that one
		Expect(held.Release(ctx)).To(Succeed())
		lock := <-granted
		go wait(direct)
		time.Sleep(time.Until(hit.Add(1650 * time.Millisecond)))
		on.Broken("release", 1, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect((<-granted).Release(ctx)).To(Succeed())
	})
})
