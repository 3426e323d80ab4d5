package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = describeSchedules("a Release", func(on *schedule) {
	It("frees a key that a server still has after another one was taken there", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // the place is asked again, and refuses
		time.Sleep(time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("frees such a key also while the server is being asked again", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(200*time.Millisecond)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("frees a server that was not to count, because its fence counter could not be raised", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, fenced, "a")
		on.Servers[2].Memory.Memory.FlushAll()
		Expect(on.Servers[2].Own.Set(ctx, "fence", "no number", 0).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token())))
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	// lag makes the fence counter of server 2 lower than those of the others.
	lag := func(ctx SpecContext) {
		for _, s := range on.Servers {
			s.Memory.SkewClock(spec.Ours, 900*time.Millisecond)
		}
		on.Break(2, ours("obtain", 0, requestLost), ours("release", 0, requestLost))
		Expect(spec.Obtain(ctx, on.Locks, time.Minute, fenced, "a").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
	}

	DescribeTable("frees what a late obtain got with a low fencing token, after a mend that overtook it was refused",
		func(ctx SpecContext, refreshAt time.Duration, asked int, next faultproxy.Action) {
			lag(ctx)
			obtains := on.Break(2, theirs("obtain", 1, faultproxy.DelayRequest(90*time.Millisecond)), theirs("obtain", 1, passes),
				theirs("obtain", 1, next))
			on.start = time.Now()
			lock := spec.Obtain(ctx, on.other, time.Minute, fenced, "a")
			Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
			on.at(refreshAt)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
			on.at(89 * time.Millisecond)
			Expect(obtains[1].Count() + obtains[2].Count()).To(Equal(asked))
			on.Servers[2].Memory.Memory.Del("a")
			on.at(91 * time.Millisecond)
			Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
			Expect(on.Servers[2].Own.Get(ctx, "fence").Int64()).To(BeNumerically("<", lock.FenceToken()))
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(10 * time.Second)
			Expect(on.LeftKeys(ctx)).To(BeEmpty())
		},
		Entry("and the next one is not sent yet", 88*time.Millisecond, 1, passes),
		Entry("and so is the next one, after the Release", 70*time.Millisecond, 2, faultproxy.DelayReply(100*time.Millisecond)),
	)

	It("frees what a late obtain got back after a server forgot, although a Refresh from before says later that it is gone",
		func(ctx SpecContext) {
			locks, _ := twoClients(ctx, on.Quorum, patient)
			on.start = time.Now()
			obtains := on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(90*time.Millisecond)), ours("obtain", 0, passes),
				ours("refresh", 1, faultproxy.DelayReply(50*time.Millisecond)))
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			on.at(20 * time.Millisecond)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins a mend
			on.at(30 * time.Millisecond)
			Expect(obtains[1].Count()).To(Equal(1))
			on.Servers[2].Memory.Memory.Del("a")
			on.at(50 * time.Millisecond)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // server 2 does not have the key, and says so at 100 ms
			on.at(95 * time.Millisecond)
			Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
			for _, i := range []int{0, 1} { // the next mend waits for renewals
				on.Break(i, ours("refresh", 0, faultproxy.DelayReply(time.Second)))
			}
			on.at(120 * time.Millisecond)
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(10 * time.Second)
			Expect(on.LeftKeys(ctx)).To(BeEmpty())
		})

	// missedBy obtains a lock, attaches to it, and makes another caller have the key at server 2, which the owner notices.
	missedBy := func(ctx SpecContext) (lock, attached *redislock.Lock) {
		lock = on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		attached, err := on.other.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(time.Second) // the five mends are over
		return lock, attached
	}

	It("frees what another handle got back", func(ctx SpecContext) {
		lock, attached := missedBy(ctx)
		on.Servers[2].Memory.Memory.Del("a")
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("through Attach frees what the owner got back while a mend that is then refused was under way", func(ctx SpecContext) {
		lock, attached := missedBy(ctx)
		on.Break(2, theirs("obtain", 1, faultproxy.DelayReply(500*time.Millisecond)))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("a")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(attached.Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("does not race with the release of what mends may have left", func(ctx SpecContext) {
		for range 20 {
			lock := spec.Obtain(ctx, on.Locks, 3*time.Second, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			time.Sleep(100 * time.Millisecond)
			for i := 1; i < 3; i++ { // one server after the other forgets, and cuts connections for a moment
				on.Servers[i].Memory.Memory.FlushAll()
				on.Break(i, anyones("obtain", 0, faultproxy.CutClient()))
				time.Sleep(1500 * time.Millisecond)
				on.Heal(i)
				time.Sleep(3 * time.Second)
			}
			Expect(kept.Err()).NotTo(HaveOccurred())
			time.Sleep(time.Second)
			stop()
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(3 * time.Second)
		}
	})

	It("that is sent twice takes away nothing that was obtained again", func(ctx SpecContext) {
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(9950*time.Millisecond)), ours("release", 1, stuck(3*time.Second)))
		time.AfterFunc(10*time.Second, func() { on.Break(2, noRequests) })
		lock := spec.Obtain(ctx, on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = time.Minute }), 10*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		on.at(4 * time.Second)
		on.Break(1, noRequests)
		on.at(13500 * time.Millisecond)
		expectExclusive(ctx, on.other, lock)
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a Release", func(on *spec.Quorum) {
	It("frees the keys at a server that was away for some seconds", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Hour, nil, "a")
		time.Sleep(time.Second)
		on.Servers[2].Memory.Refuse()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(5 * time.Second)
		on.Servers[2].Memory.Revive()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("leaves nothing of an obtain that was sent twice at a server, and was granted there when the lock had ended", func(ctx SpecContext) {
		locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = 300 * time.Millisecond })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "b").Release(ctx)).To(Succeed())
		sent := on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(900*time.Millisecond)), ours("obtain", 0, passes))
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(sent[0].Count() + sent[1].Count()).To(Equal(2))
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("that comes before a Refresh is confirmed is final: the Refresh obtains nothing again", func(ctx SpecContext) {
		on.Warm(ctx)
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token())))
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed()) // the Refresh would obtain it again
		for i := range on.Servers {
			on.Break(i, lateReplies(50*time.Millisecond))
		}
		refreshed := make(chan error)
		go func() { refreshed <- lock.Refresh(ctx, time.Hour, nil) }()
		time.Sleep(10 * time.Millisecond)
		_ = lock.Release(ctx)
		Eventually(refreshed).Should(Receive())
		Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(2 * time.Second).Should(BeEmpty())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 1, "a Release for whose cleanup there was no room", func(on *spec.Quorum) {
	It("does not free the keys of the next lock with the same custom token", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		on.Break(0, ours("release", 0, faultproxy.DelayRequest(100*time.Millisecond)))
		DeferCleanup(spec.FillCleanups(on.Locks))
		Expect(lock.Release(spec.Within(ctx, 10*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		lock = spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(on.Servers[0].Memory.Has(lock, 59*time.Second)).To(BeTrue())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})
