package redislock_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
)

var _ = describeFaulty("The cleanup of an abandoned obtain", func(on *faultyRedis) {
	abandon := func(ctx context.Context, locks *redislock.Client) {
		GinkgoHelper()
		on.broken("obtain", 1, faultproxy.SwallowReply())
		_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
	}
	cleaned := func(ctx context.Context) {
		GinkgoHelper()
		Expect(on.keys(ctx)).To(ConsistOf("a"))
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	}

	DescribeTable("gets through", func(ctx SpecContext, action faultproxy.Action) {
		on.broken("release", 2, action)
		abandon(ctx, on.timingOut(100*time.Millisecond))
		cleaned(ctx)
	},
		Entry("when its reply is swallowed", faultproxy.SwallowReply()),
		Entry("when its reply is delayed", faultproxy.DelayReply(200*time.Millisecond)),
		Entry("when its connection is cut", faultproxy.CutAfterReplyBytes(0)),
		Entry("when its request is cut", faultproxy.CutAfterRequestBytes(20)),
		Entry("when it meets a black hole", faultproxy.BlackHole()),
		Entry("when the server is not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")),
		Entry("when the server is busy", faultproxy.RefuseReply("BUSY Redis is busy running a script.")),
	)

	It("hands over no key of another holder, whatever was taken more than once", func(ctx SpecContext) {
		held := obtain(ctx, redislock.New(on.client), time.Minute, nil, "c")
		locks, opt := on.timingOut(5*time.Second), &redislock.Options{Token: "mine"}
		lock := obtain(ctx, locks, time.Minute, opt, "a")
		executed := on.broken("release", 0, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.Release(within(ctx, 20*time.Millisecond))).NotTo(Succeed())
		on.broken("obtain", 1, faultproxy.DelayReply(800*time.Millisecond))
		_, err := locks.Obtain(within(ctx, 300*time.Millisecond), "a", time.Minute, opt)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		executed.Remove()
		waiting := redislock.New(on.client)
		DeferCleanup(waiting.Close)
		_, err = waiting.ObtainMulti(within(ctx, 2*time.Second), []string{"a", "c"}, time.Minute, &redislock.Options{Queue: true})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(on.client.Get(ctx, "c").Val()).To(Equal(held.Token()))
		Expect(held.Release(ctx)).To(Succeed())
	})

	DescribeTable("leaves no place in line to a try that arrives after the lock was released", func(ctx SpecContext, token string) {
		locks, direct := on.connectBy(nil), redislock.New(on.client)
		held := obtain(ctx, direct, time.Minute, nil, "a")
		granted := make(chan *redislock.Lock, 1)
		go func() {
			defer GinkgoRecover()
			granted <- obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true, Token: token}, "a")
		}()
		Eventually(func() int { return on.executed("obtain") }).WithTimeout(soon).Should(Equal(2)) // the second has subscribed
		stuck := on.broken("obtain", 1, faultproxy.DelayRequest(1800*time.Millisecond))
		Eventually(stuck.Hit()).WithTimeout(2 * soon).Should(BeClosed())
		Eventually(func() int { return on.executed("obtain") }).WithTimeout(2 * soon).Should(Equal(3)) // in place of that one
		Expect(held.Release(ctx)).To(Succeed())
		Expect((<-granted).Release(ctx)).To(Succeed())
		before := on.executed("obtain")
		obtain(ctx, direct, time.Minute, nil, "a")
		Eventually(func() int { return on.executed("obtain") }).WithTimeout(2 * soon).Should(Equal(before + 1))
		Eventually(direct.Line).WithArguments(ctx, "a").WithTimeout(soon).Should(BeEmpty())
	},
		Entry("with a random token", ""),
		Entry("with a custom one", "mine"),
	)

	It("frees keys that a waiter was handed while Redis was away for longer than its place in line lasts", func(ctx SpecContext) {
		locks, direct := on.connectBy(nil), redislock.New(on.client)
		held := obtain(ctx, direct, time.Minute, nil, "a")
		waiting, cancel := context.WithCancel(ctx)
		gaveUp := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(waiting, "a", time.Minute, &redislock.Options{Queue: true})
			gaveUp <- err
		}()
		Eventually(func() int { return on.executed("obtain") }).WithTimeout(soon).Should(Equal(2)) // the second has subscribed
		silent := on.proxy.Add(faultproxy.Rule{Match: faultproxy.Command("ping"), Action: faultproxy.BlackHole()})
		Eventually(silent.Hit()).WithTimeout(3 * soon).Should(BeClosed())
		away := on.proxy.Add(faultproxy.Rule{Match: faultproxy.Command("evalsha"), Action: faultproxy.CutAfterRequestBytes(0)})
		Expect(held.Release(ctx)).To(Succeed())
		Expect(on.keys(ctx)).To(ConsistOf("a"), "handed over")
		cancel()
		Expect(<-gaveUp).To(MatchError(redislock.ErrNotObtained))
		time.Sleep(5 * time.Second)
		Expect(on.keys(ctx)).To(ConsistOf("a"))
		away.Remove()
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
	})

	It("goes through a slow dial", func(ctx SpecContext) {
		locks := on.timingOut(200 * time.Millisecond)
		abandonedFor := 150 * time.Millisecond
		abandon(ctx, locks)
		on.proxy.DelayDial(abandonedFor)
		cleaned(ctx)
	})

	It("waits until connections are possible again", func(ctx SpecContext) {
		abandon(ctx, on.timingOut(100*time.Millisecond))
		on.proxy.RefuseConnections(true)
		Consistently(func() []string { return on.keys(ctx) }).WithTimeout(500 * time.Millisecond).Should(ConsistOf("a"))
		on.proxy.RefuseConnections(false)
		cleaned(ctx)
	})

	It("waits for a place in a full pool", func(ctx SpecContext) {
		narrow := connect(&redis.Options{
			Addr: on.proxy.Addr(), PoolSize: 1, ReadTimeout: 100 * time.Millisecond, PoolTimeout: 50 * time.Millisecond,
		})
		Expect(narrow.Ping(ctx).Err()).To(Succeed())
		abandon(ctx, redislock.New(narrow))
		taken := make(chan error, 1)
		go func() { taken <- narrow.BLPop(ctx, time.Second, "queue").Err() }()
		cleaned(ctx)
		Eventually(taken).WithTimeout(20 * time.Second).Should(Receive())
	})

	It("comes again, whatever it has found, if a request was not answered", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayRequest(900*time.Millisecond)) // the resend is granted
		on.broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		_, err := on.timingOut(200*time.Millisecond).Obtain(within(ctx, 300*time.Millisecond), "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int { return on.executed("obtain") }).WithTimeout(3 * time.Second).Should(Equal(2))
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("of a lock that was released ends before its token is used again", func(ctx SpecContext) {
		locks := on.timingOut(200 * time.Millisecond)
		on.broken("obtain", 1, faultproxy.DelayRequest(700*time.Millisecond)) // the resend is granted
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		on.broken("release", 1, faultproxy.DelayReply(150*time.Millisecond))
		Expect(lock.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		again := obtain(ctx, locks, time.Minute, &redislock.Options{Token: lock.Token()}, "a")
		time.Sleep(3 * time.Second)
		on.truthful(ctx, again)
	})

	It("ends with the ttl", func(ctx SpecContext) {
		on.broken("release", 0, faultproxy.CutAfterRequestBytes(0))
		on.broken("obtain", 1, faultproxy.SwallowReply())
		locks := on.timingOut(100 * time.Millisecond)
		_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "a", 400*time.Millisecond, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int { return on.requested("release") }).Should(BeNumerically(">", 1))
		time.Sleep(2 * time.Second) // the second sweep is past the ttl, too
		sent := on.requested("release")
		Consistently(func() int { return on.requested("release") }).WithTimeout(time.Second).Should(Equal(sent))
	})

	It("is waited for by Close, for a while", func(ctx SpecContext) {
		locks := on.timingOut(200 * time.Millisecond)
		abandon(ctx, locks)
		Expect(on.keys(ctx)).To(ConsistOf("a"))
		Expect(locks.Close()).To(Succeed())
		Expect(on.keys(ctx)).To(BeEmpty())
	})
})

var _ = describeFaulty("Re-entry by a custom token", func(on *faultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.connectBy(nil)
	})

	var held *redislock.Lock
	me := &redislock.Options{Token: "me"}

	BeforeEach(func(ctx SpecContext) {
		held = obtain(ctx, locks, time.Minute, me, "held")
	})

	It("abandoned on its way releases only what a late reply reports as newly taken", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		_, err := locks.ObtainMulti(within(ctx, 50*time.Millisecond), []string{"new", "held"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() []string { return on.keys(ctx) }).Should(ConsistOf("held"))
		Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
	})

	It("is not undone by the cleanup of an earlier one", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "new", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		lock := obtain(ctx, locks, time.Minute, me, "new")
		Consistently(func() []string { return on.keys(ctx) }).WithTimeout(500 * time.Millisecond).Should(ConsistOf("held", "new"))
		on.truthful(ctx, lock)
	})

	It("is not undone by an abandoned Release", func(ctx SpecContext) {
		on.proxy.CutAll()
		on.proxy.RefuseConnections(true)
		Expect(held.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.proxy.RefuseConnections(false)
		lock := obtain(ctx, locks, time.Minute, me, "held")
		Consistently(func() []string { return on.keys(ctx) }).WithTimeout(time.Second).Should(ConsistOf("held"))
		on.truthful(ctx, lock)
	})

	It("leaves the other keys of an abandoned Release to be released", func(ctx SpecContext) {
		three := obtain(ctx, locks, time.Minute, me, "one", "two", "three")
		on.proxy.CutAll()
		on.proxy.RefuseConnections(true)
		Expect(three.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.proxy.RefuseConnections(false)
		lock := obtain(ctx, locks, time.Minute, me, "two")
		third := obtain(ctx, locks, time.Minute, me, "three")
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(ConsistOf("held", "two", "three"))
		Consistently(func() []string { return on.keys(ctx) }).WithTimeout(1500 * time.Millisecond).Should(ConsistOf("held", "two", "three"))
		on.truthful(ctx, lock)
		on.truthful(ctx, third)
	})

	It("leaves the other keys of an abandoned obtain as they were, or released", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		_, err := locks.ObtainMulti(within(ctx, 50*time.Millisecond), []string{"held", "one", "two"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		lock := obtain(ctx, locks, time.Minute, me, "two")
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(ConsistOf("held", "two"))
		Consistently(func() []string { return on.keys(ctx) }).WithTimeout(1500 * time.Millisecond).Should(ConsistOf("held", "two"))
		on.truthful(ctx, lock)
	})

	It("that is refused gives back what an abandoned one acquires", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		_, err := locks.ObtainMulti(within(ctx, 50*time.Millisecond), []string{"one", "two"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		other := obtain(ctx, locks, time.Minute, nil, "blocked")
		_, err = locks.ObtainMulti(ctx, []string{"one", "blocked"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(other.Release(ctx)).To(Succeed())
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(3 * time.Second).Should(ConsistOf("held"))
	})

	It("that is refused gives back what an abandoned Release has not freed", func(ctx SpecContext) {
		on.proxy.CutAll()
		on.proxy.RefuseConnections(true)
		Expect(held.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		other := obtain(ctx, redislock.New(on.client), time.Minute, nil, "blocked")
		on.proxy.RefuseConnections(false)
		_, err := locks.ObtainMulti(ctx, []string{"held", "blocked"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(other.Release(ctx)).To(Succeed())
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("and released again leaves nothing of an abandoned one that arrives later", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond))
		_, err := locks.ObtainMulti(within(ctx, 50*time.Millisecond), []string{"one", "two"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(obtain(ctx, locks, time.Minute, me, "one").Release(ctx)).To(Succeed())
		Expect(on.keys(ctx)).To(ConsistOf("held"))
		time.Sleep(400 * time.Millisecond) // until it has arrived
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(3 * time.Second).Should(ConsistOf("held"))
	})

	It("does not wait for a cleanup that is about to be sent again", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.DelayReply(100*time.Millisecond))
		down := on.broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "new", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int { return on.requested("release") }).WithTimeout(3 * time.Second).Should(Equal(9))
		down.Remove()
		on.truthful(ctx, obtain(within(ctx, soon), locks, time.Minute, me, "new"))
	})

	// Such a cleanup was resent every 50 to 64 ms from then on, until its ttl was over.
	DescribeTable("that gives up leaves what it has hurried to its own pace", func(ctx SpecContext, key string) {
		on.broken("obtain", 1, faultproxy.DelayReply(100*time.Millisecond))
		down := on.broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		if key == "held" {
			Expect(held.Release(ctx)).NotTo(Succeed())
		} else {
			_, err := locks.Obtain(within(ctx, 50*time.Millisecond), key, time.Minute, me)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
		}
		Eventually(func() int { return on.requested("release") }).WithTimeout(soon).Should(BeNumerically(">=", 4))
		_, err := locks.Obtain(within(ctx, 700*time.Millisecond), key, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		sent := on.requested("release")
		Expect(sent).To(BeNumerically(">=", 10), "hurried")
		time.Sleep(time.Second) // its own pauses last 1 to 4 s by now
		Expect(on.requested("release")).To(BeNumerically("<=", sent+7), "the rest of a round, and one more")
		down.Remove()
		on.truthful(ctx, obtain(within(ctx, soon), locks, time.Minute, me, key)) // hurries it again
	},
		Entry("if that is the cleanup of an abandoned one", "new"),
		Entry("if that is a Release", "held"),
	)

	It("waits for a cleanup that is on the wire, but not past its ctx", func(ctx SpecContext) {
		on.broken("release", 1, faultproxy.DelayReply(300*time.Millisecond))
		Expect(held.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "held", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		on.truthful(ctx, obtain(ctx, locks, time.Minute, me, "held"))
		Expect(on.keys(ctx)).To(ConsistOf("held"))
	})

	It("abandoned without a reply releases nothing, because the keys may belong to an earlier hold", func(ctx SpecContext) {
		on.broken("obtain", 1, faultproxy.SwallowReply())
		_, err := on.timingOut(100*time.Millisecond).Obtain(within(ctx, 50*time.Millisecond), "held", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Consistently(func() int { return on.requested("release") }).WithTimeout(1500 * time.Millisecond).Should(BeZero())
		Expect(held.Release(ctx)).To(Succeed())
	})
})
