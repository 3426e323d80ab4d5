package claim_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// wait waits in line for "a".
func wait(ctx context.Context, locks *redislock.Client, fence string) <-chan *redislock.Lock {
	granted := make(chan *redislock.Lock, 1)
	go func() {
		defer GinkgoRecover()
		granted <- spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true, FenceKey: fence}, "a")
	}()
	return granted
}

// grantedWithALateTry returns a lock of "a" whose obtain has waited in line, and when one of its tries was sent, which takes
// 1.8 s to arrive.
func grantedWithALateTry(
	ctx context.Context, on *spec.FaultyRedis, locks, direct *redislock.Client, fence string,
) (lock *redislock.Lock, hit time.Time) {
	GinkgoHelper()
	held := spec.Obtain(ctx, direct, time.Minute, &redislock.Options{FenceKey: fence}, "a")
	granted := wait(ctx, locks, fence)
	spec.AwaitWaiter(ctx, on.Client, "a")
	stuck := on.Broken("obtain", 1, faultproxy.DelayRequest(1800*time.Millisecond))
	spec.Wake(ctx, on.Client, "a", 0)
	Eventually(stuck.Hit()).WithTimeout(2 * spec.Soon).Should(BeClosed())
	hit = time.Now()
	Eventually(func() int { return on.Executed("obtain") }).WithTimeout(2 * spec.Soon).Should(Equal(2)) // in place of that one
	Expect(held.Release(ctx)).To(Succeed())
	return <-granted, hit
}

var _ = spec.DescribeFaulty("The release of a lock that was lost", func(on *spec.FaultyRedis) {
	DescribeTable("leaves no position in line to a try that arrives while it is under way", func(ctx SpecContext, fence string) {
		locks, direct := on.ConnectBy(nil), redislock.New(on.Client)
		lock, hit := grantedWithALateTry(ctx, on, locks, direct, fence)
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
		lock, hit := grantedWithALateTry(ctx, on, locks, direct, "")
		next := wait(ctx, direct, "")
		time.Sleep(time.Until(hit.Add(1650 * time.Millisecond)))
		on.Broken("release", 1, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect((<-next).Release(ctx)).To(Succeed())
	})
})
