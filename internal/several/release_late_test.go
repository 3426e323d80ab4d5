package several_test

import (
	"context"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
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

	// lateGrant obtains "a", and returns before it knows that server 2 has granted it. No release gets through to server 1, and
	// those to server 2 meet that rule.
	lateGrant := func(ctx SpecContext, ttl time.Duration, release faultproxy.Rule) *redislock.Lock {
		GinkgoHelper()
		on.Break(1, ours("release", 0, requestLost))
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(20*time.Millisecond)), release)
		on.start = time.Now()
		return spec.Obtain(ctx, on.Locks, ttl, nil, "a")
	}
	slow := ours("release", 0, faultproxy.DelayRequest(300*time.Millisecond))

	It("frees what a server grants after it, and waits for that if a majority would otherwise have the keys", func(ctx SpecContext) {
		lock := lateGrant(ctx, 10*time.Second, slow)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(has(ctx, on.Quorum, 2)).To(BeZero())
		Expect(time.Since(on.start)).To(BeNumerically("~", 300*time.Millisecond, 10*time.Millisecond))
	})

	It("fails until such a server has freed the keys", func(ctx SpecContext) {
		lock := lateGrant(ctx, time.Minute, slow)
		for range 2 {
			Expect(lock.Release(spec.Within(ctx, 100*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			Expect(has(ctx, on.Quorum, 2)).To(Equal(int64(1)))
		}
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(has(ctx, on.Quorum, 2)).To(BeZero())
		Expect(time.Since(on.start)).To(BeNumerically("<", 500*time.Millisecond))
	})

	DescribeTable("returns an error of such a server soon, and can be repeated",
		func(ctx SpecContext, answer string, pursued bool) {
			lock := lateGrant(ctx, time.Hour, ours("release", 0, faultproxy.RefuseReply(answer)))
			Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("server 3 (127.0.0.1:0): redislock: release \"a\": " + answer)))
			Expect(time.Since(on.start)).To(BeNumerically("<", 10*time.Second))
			on.Heal(2)
			if !pursued {
				Expect(lock.Release(ctx)).To(Succeed())
			}
			Eventually(has).WithArguments(ctx, on.Quorum, 2).WithTimeout(5 * time.Second).Should(BeZero())
		},
		Entry("that may pass", "LOADING Redis is loading the dataset in memory", true),
		Entry("that stays", "NOPERM this user has no permissions", false),
	)

	It("does not take for lost what an earlier Release has just freed at such a server", func(ctx SpecContext) {
		on.Break(1, ours("release", 1, faultproxy.DelayRequest(150*time.Millisecond)))
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(100*time.Millisecond)), ours("release", 1, faultproxy.DelayReply(300*time.Millisecond)))
		on.start = time.Now()
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		time.AfterFunc(100*time.Millisecond, func() { on.Servers[1].Memory.Memory.Del("a") })
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.at(120 * time.Millisecond)
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(on.start)).To(BeNumerically("~", 170*time.Millisecond, 5*time.Millisecond))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("has the result of an earlier one that is about to free such a server", func(ctx SpecContext) {
		lock := lateGrant(ctx, time.Minute, slow)
		const many = 8
		results := make(chan error, many)
		for range many {
			go func() { results <- lock.Release(ctx) }()
			time.Sleep(5 * time.Millisecond)
		}
		for range many {
			Expect(<-results).NotTo(HaveOccurred())
		}
		Expect(time.Since(on.start)).To(BeNumerically("~", 300*time.Millisecond, 10*time.Millisecond))
	})

	It("leaves no goroutine for each try while a server does not answer the obtain", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(1, ours("release", 0, requestLost))
		on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(8*time.Second)))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		before := runtime.NumGoroutine()
		for range 100 {
			Expect(lock.Release(spec.Within(ctx, 5*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		}
		time.Sleep(time.Second)
		Expect(runtime.NumGoroutine()).To(BeNumerically("<", before+20))
	})

	It("does not take a server for free whose obtain is still stuck when the lock has lapsed", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(0, ours("refresh", 1, faultproxy.SwallowReply()))
		on.Break(1, ours("refresh", 1, faultproxy.SwallowReply()), ours("release", 0, requestLost))
		on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(3500*time.Millisecond).And(faultproxy.DelayReply(8*time.Second))))
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, 2*time.Second, nil, "a")
		Expect(lock.Refresh(spec.Within(ctx, 300*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
		on.at(2100 * time.Millisecond)
		Expect(lock.Release(ctx)).NotTo(Succeed())
		on.at(3600 * time.Millisecond)
		Expect(has(ctx, on.Quorum, 1) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
		Expect(lock.Release(ctx)).NotTo(Succeed())
	})

	It("does not count a server as freed by a lost sending that has overtaken the obtain", func(ctx SpecContext) {
		on.Break(1, ours("release", 0, requestLost))
		slow := faultproxy.DelayRequest(30 * time.Millisecond).And(faultproxy.DelayReply(150 * time.Millisecond))
		on.Break(2, ours("obtain", 1, slow), ours("release", 1, requestLost))
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Expect(lock.Release(ctx)).To(Succeed())
		spec.Obtain(ctx, on.other, time.Second, nil, "a")
	})

	DescribeTable("does not count it as freed although the obtain is not answered for longer than anybody waits",
		func(ctx SpecContext, cut time.Duration, next time.Duration) {
			locks := on.connect(ctx, patient)
			on.Break(1, ours("release", 0, requestLost))
			slow := faultproxy.DelayRequest(30 * time.Millisecond).And(faultproxy.DelayReply(2 * time.Second))
			on.Break(2, ours("obtain", 1, slow), ours("release", 1, requestLost))
			on.start = time.Now()
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			go func() { _ = lock.Release(spec.Within(ctx, cut)) }()
			on.at(next)
			Expect(lock.Release(ctx)).NotTo(Succeed())
			on.Heal(1)
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
		},
		Entry("by one that joins", 10*time.Second, 50*time.Millisecond),
		Entry("by one that follows", 100*time.Millisecond, 400*time.Millisecond),
	)

	DescribeTable("does not count it as freed by sendings that came before the obtain, if an earlier one",
		func(ctx SpecContext, cut time.Duration) {
			locks := on.connect(ctx, patient)
			on.Break(1, ours("release", 0, requestLost))
			on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(600*time.Millisecond)),
				ours("release", 1, requestLost), ours("release", 1, passes), ours("release", 0, requestLost))
			on.start = time.Now()
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			Expect(lock.Release(spec.Within(ctx, cut))).NotTo(Succeed())
			on.at(700 * time.Millisecond)
			Expect(has(ctx, on.Quorum, 1) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
			Expect(lock.Release(ctx)).NotTo(Succeed())
		},
		Entry("has failed", 450*time.Millisecond),
		Entry("was cut short", 100*time.Millisecond),
	)

	DescribeTable("through Attach does not count a server as freed that a mend gives the keys",
		func(ctx SpecContext, back time.Duration, obtains ...faultproxy.Rule) {
			lock := on.everywhere(ctx, on.other, time.Minute, nil, "a")
			attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			on.Servers[2].Memory.Memory.Del("a")
			on.Break(1, ours("release", 0, requestLost))
			mends := on.Break(2, append(obtains, ours("release", 1, requestLost))...)
			Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			Expect(mends[0].Count()).To(Equal(1))
			on.start = time.Now()
			Expect(attached.Release(spec.Within(ctx, 10*time.Second))).NotTo(Succeed())
			on.at(back)
			Expect(has(ctx, on.Quorum, 1) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
		},
		Entry("late", 1500*time.Millisecond, ours("obtain", 1, faultproxy.DelayRequest(1500*time.Millisecond).And(faultproxy.DelayReply(2*time.Second)))),
		Entry("after its connection was cut", 650*time.Millisecond, ours("obtain", 1, stuck(700*time.Millisecond)), ours("obtain", 0, requestLost)),
	)

	It("counts a server as freed that has granted meanwhile, if the reply to the release is lost", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(100*time.Millisecond)), ours("release", 1, replyLost))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.Servers[1].Memory.Memory.Del("a")
		time.Sleep(10 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	DescribeTable("has freed the keys itself where the grant is late",
		func(ctx SpecContext, waits time.Duration, rules ...faultproxy.Rule) {
			locks := on.connect(ctx, patient)
			on.Break(2, rules...)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			time.Sleep(waits)
			on.Servers[1].Memory.Memory.Del("a")
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(has(ctx, on.Quorum, 2)).To(BeZero())
		},
		Entry("that of a resend, and the reply to the release is lost", 30*time.Millisecond,
			ours("obtain", 1, replyLost), ours("obtain", 1, faultproxy.DelayReply(100*time.Millisecond)), ours("release", 1, replyLost)),
		Entry("and comes while the release is sent again", 30*time.Millisecond,
			ours("obtain", 1, faultproxy.DelayReply(100*time.Millisecond)), ours("release", 1, replyLost),
			ours("release", 1, faultproxy.DelayReply(120*time.Millisecond))),
		Entry("and the release overtakes the obtain, and has a late reply", time.Duration(0),
			ours("obtain", 1, faultproxy.DelayRequest(30*time.Millisecond)), ours("release", 1, faultproxy.DelayReply(150*time.Millisecond))),
		Entry("and the release overtakes the obtain", time.Duration(0),
			ours("obtain", 1, faultproxy.DelayRequest(30*time.Millisecond)), ours("release", 1, faultproxy.DelayReply(10*time.Millisecond))),
	)

	DescribeTable("does not count a server as freed where the hold has run out, and a mend is late",
		func(ctx SpecContext, handle func(lock *redislock.Lock) *redislock.Lock, back time.Duration, obtains ...faultproxy.Rule) {
			lock := handle(on.everywhere(ctx, on.other, time.Minute, nil, "a"))
			on.Break(1, ours("release", 0, requestLost), theirs("release", 0, requestLost))
			mends := on.Break(2, append(obtains, ours("refresh", 0, requestLost), theirs("refresh", 0, requestLost),
				ours("release", 1, requestLost), theirs("release", 1, requestLost))...)
			on.Servers[2].Memory.Memory.Del("a")
			Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
			time.Sleep(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			time.Sleep(time.Second)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			Expect(mends[0].Count() + mends[1].Count()).To(BeNumerically(">", 0))
			on.start = time.Now()
			Expect(lock.Release(spec.Within(ctx, 10*time.Second))).NotTo(Succeed())
			on.at(back)
			Expect(has(ctx, on.Quorum, 1) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
		},
		Entry("through Attach", func(lock *redislock.Lock) *redislock.Lock {
			attached, err := on.Locks.Attach(context.Background(), lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			return attached
		}, 1500*time.Millisecond,
			ours("obtain", 1, faultproxy.DelayRequest(1500*time.Millisecond).And(faultproxy.DelayReply(2*time.Second))), theirs("obtain", 1, passes)),
		Entry("its connection having been cut", func(lock *redislock.Lock) *redislock.Lock { return lock }, 650*time.Millisecond,
			theirs("obtain", 1, stuck(700*time.Millisecond)), theirs("obtain", 0, requestLost)),
	)

	It("does not know what became of a server that answers late, and another one that waits for it does", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond)), ours("release", 0, faultproxy.DelayRequest(320*time.Millisecond)))
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.Servers[1].Memory.Memory.Del("a")
		first := make(chan error, 1)
		go func() { first <- lock.Release(ctx) }()
		on.at(150 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		err := <-first
		Expect(err).To(MatchError(ContainSubstring("server 3")))
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
	})

	It("does not wait for such a grant if a majority has freed the keys", func(ctx SpecContext) {
		lock := lateGrant(ctx, 10*time.Second, slow)
		on.Heal(1)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(time.Since(on.start)).To(BeNumerically("<", 10*time.Millisecond))
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

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
