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

// Schedules of a second review of what the owner of a majority.Lock does beside it, on fake time. Before, each of them broke
// a promise.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "of the schedules beside the rules,", func(on *spec.Quorum) {
	var locks, other *redislock.Client // of two processes

	everywhere := func(ctx context.Context, ttl time.Duration, keys ...string) *redislock.Lock {
		GinkgoHelper()
		lock := spec.Obtain(ctx, locks, ttl, nil, keys...)
		Eventually(on.Values).WithArguments(ctx, keys[0]).Should(Equal(spec.Same(3, lock.Token())))
		return lock
	}

	BeforeEach(func(ctx SpecContext) {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		locks = on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = 5 * time.Second })
		other = on.ConnectAs(spec.Theirs, nil)
		for _, client := range []*redislock.Client{locks, other} {
			lock := spec.Obtain(ctx, client, time.Second, nil, "a")
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token())))
			Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // from now on, the servers have the scripts
			time.Sleep(100 * time.Millisecond)
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
		}
		on.Heal()
	})

	It("a second Release succeeds if the first one has freed the keys, but has heard nothing", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, "a")
		for i := range on.Servers {
			on.Break(i, ours("release", 0, faultproxy.CutClient()))
		}
		Expect(lock.Release(spec.Within(ctx, 100*time.Millisecond))).NotTo(Succeed())
		on.Heal()
		time.Sleep(5 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("a Refresh does not wait for an earlier one whose reply a server has lost", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, "a")
		silent := on.Break(2, faultproxy.Rule{Client: spec.Ours, Times: 1, Action: faultproxy.SwallowReply()})[0]
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by the others
		time.Sleep(100 * time.Millisecond)
		Expect(silent.Count()).To(Equal(1))
		on.Servers[1].Memory.Refuse()
		start := time.Now()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by servers 0 and 2, which answer
		Expect(time.Since(start)).To(BeNumerically("<", time.Second))
		on.Servers[1].Memory.Revive()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("a lock that others have taken says so, although a server confirms late what came before", func(ctx SpecContext) {
		lock := everywhere(ctx, 3*time.Second, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		late := on.Break(2, ours("refresh", 1, faultproxy.DelayReply(2200*time.Millisecond)))[0]
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		time.Sleep(2500 * time.Millisecond) // a renewal has found that, and a mend was refused
		Expect(late.Count()).To(Equal(1))
		Expect(on.Servers[1].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		time.Sleep(1200 * time.Millisecond)
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("a Release through Attach frees what the owner of the lock has acquired since", func(ctx SpecContext) {
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond)))
		lock := spec.Obtain(ctx, locks, time.Hour, nil, "a")
		attached, err := other.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(attached.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("a Release through Attach goes on for as long as is said, also after a Refresh that a server has missed",
		func(ctx SpecContext) {
			lock := everywhere(ctx, time.Hour, "a")
			attached, err := other.Attach(ctx, []string{"a"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			on.Servers[2].Memory.Refuse()
			Expect(attached.Refresh(ctx, time.Second, nil)).To(Succeed())
			Expect(attached.Release(ctx)).To(Succeed())
			time.Sleep(10 * time.Second)
			on.Servers[2].Memory.Revive()
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
		})

	It("a server counts only when it has the fence counter of the others", func(ctx SpecContext) {
		for _, s := range on.Servers { // the clock of one client is 0.9 s ahead, and a server misses its lock
			s.Memory.SkewClock(spec.Ours, 900*time.Millisecond)
		}
		on.Break(2, noRequests, theirs("obtain", 0, faultproxy.DelayRequest(5*time.Millisecond))) // the others are a majority before it
		opt := &redislock.Options{FenceKey: "fence"}
		Expect(spec.Obtain(ctx, locks, time.Minute, opt, "a").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		lost := on.Servers[2].Memory.Add(theirs("fence", 0, requestLost))
		lock := spec.Obtain(ctx, other, time.Minute, opt, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(lost.Count()).To(BeNumerically(">", 0))
		lost.Remove()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(20 * time.Millisecond)
		on.Servers[0].Memory.Memory.FlushAll() // the others have confirmed the lock for as long as it is valid
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(20 * time.Millisecond)
		on.Servers[1].Memory.Refuse()
		DeferCleanup(on.Servers[1].Memory.Revive)
		last := spec.Obtain(ctx, other, time.Minute, opt, "a")
		Expect(last.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(last.Release(ctx)).To(Succeed())
	})

	Context("if the fence counter of a server is behind,", func() {
		opt := &redislock.Options{FenceKey: "fence"}

		BeforeEach(func(ctx SpecContext) {
			for _, s := range on.Servers { // the clock of one client is 0.9 s ahead, and server 2 misses its lock
				s.Memory.SkewClock(spec.Ours, 900*time.Millisecond)
			}
			on.Break(2, ours("obtain", 0, requestLost), ours("release", 0, requestLost),
				theirs("obtain", 0, faultproxy.DelayRequest(5*time.Millisecond))) // the others are a majority before it
			Expect(spec.Obtain(ctx, locks, time.Minute, opt, "a", "b").Release(ctx)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			on.Servers[2].Memory.Add(anyones("fence", 0, requestLost)) // nothing raises the counter
		})

		It("a Release frees a key that it still has after another one was taken there", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, other, time.Hour, opt, "a", "b")
			on.Break(2, theirs("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond))) // the server is asked again at once
			Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(3, lock.Token())))
			Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			time.Sleep(time.Second) // it has refused
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		})

		It("a Release frees such a key also while the server is being asked again", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, other, time.Hour, opt, "a", "b")
			time.Sleep(20 * time.Second)
			Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			on.Break(2, theirs("obtain", 0, faultproxy.DelayRequest(200*time.Millisecond)))
			Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
			time.Sleep(50 * time.Millisecond)
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(time.Second)
			Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		})
	})

	It("the metadata of a Refresh replaces that of an earlier one, which a server gets late", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, "a")
		late := on.Break(2, ours("refresh", 1, faultproxy.DelayRequest(500*time.Millisecond)))[0]
		Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "first"})).To(Succeed())
		time.Sleep(10 * time.Millisecond)
		Expect(late.Count()).To(Equal(1))
		Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "second"})).To(Succeed())
		time.Sleep(2 * time.Second)
		found, err := other.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(found[0].Metadata).To(Equal("second"))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()+" second")))
		Expect(lock.Release(ctx)).To(Succeed())
	})
})
