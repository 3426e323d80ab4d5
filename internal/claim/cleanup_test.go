package claim_test

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

var _ = spec.DescribeFaulty("The cleanup of an abandoned obtain", func(on *spec.FaultyRedis) {
	// abandon gives up an obtain that has acquired its key, and whose reply is lost.
	abandon := func(ctx context.Context, locks *redislock.Client) {
		GinkgoHelper()
		on.Broken("obtain", 1, faultproxy.SwallowReply())
		limited, cancel := context.WithCancel(ctx)
		go func() {
			defer GinkgoRecover()
			defer cancel()
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(ConsistOf("a"))
		}()
		_, err := locks.Obtain(limited, "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
	}
	cleaned := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	}

	DescribeTable("gets through", func(ctx SpecContext, action faultproxy.Action) {
		on.Broken("release", 2, action)
		abandon(ctx, on.TimingOut(100*time.Millisecond))
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
		held := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "c")
		locks, opt := on.TimingOut(5*time.Second), &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, locks, time.Minute, opt, "a")
		executed := on.Broken("release", 0, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.Release(spec.Within(ctx, 20*time.Millisecond))).NotTo(Succeed())
		on.Broken("obtain", 1, faultproxy.DelayReply(800*time.Millisecond))
		_, err := locks.Obtain(spec.Within(ctx, 300*time.Millisecond), "a", time.Minute, opt)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		executed.Remove()
		waiting := redislock.New(on.Client)
		DeferCleanup(waiting.Close)
		_, err = waiting.ObtainMulti(spec.Within(ctx, 2*time.Second), []string{"a", "c"}, time.Minute, &redislock.Options{Queue: true})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(on.Client.Get(ctx, "c").Val()).To(Equal(held.Token()))
		Expect(held.Release(ctx)).To(Succeed())
	})

	DescribeTable("leaves no position in line to a try that arrives after the lock was released", func(ctx SpecContext, token string) {
		locks, direct := on.ConnectBy(nil), redislock.New(on.Client)
		held := spec.Obtain(ctx, direct, time.Minute, nil, "a")
		granted := make(chan *redislock.Lock, 1)
		go func() {
			defer GinkgoRecover()
			granted <- spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true, Token: token}, "a")
		}()
		spec.AwaitWaiter(ctx, on.Client, "a")
		stuck := on.Broken("obtain", 1, faultproxy.DelayRequest(1800*time.Millisecond))
		spec.Wake(ctx, on.Client, "a", 0)
		Eventually(stuck.Hit()).WithTimeout(2 * spec.Soon).Should(BeClosed())
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(2 * spec.Soon).Should(Equal(2)) // in place of that one
		Expect(held.Release(ctx)).To(Succeed())
		Expect((<-granted).Release(ctx)).To(Succeed())
		before := on.Executed("obtain")
		spec.Obtain(ctx, direct, time.Minute, nil, "a")
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(2 * spec.Soon).Should(Equal(before + 1))
		Eventually(direct.Line).WithArguments(ctx, "a").WithTimeout(spec.Soon).Should(BeEmpty())
	},
		Entry("with a random token", ""),
		Entry("with a custom one", "mine"),
	)

	// A leave that failed was not sent again, so others waited until the line passed over the waiter.
	It("leaves the line as soon as Redis executes that, however often it has refused before", func(ctx SpecContext) {
		locks, direct := on.ConnectBy(nil), redislock.New(on.Client)
		held := spec.Obtain(ctx, direct, time.Minute, nil, "a")
		waiting, cancel := context.WithCancel(ctx)
		gaveUp := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(waiting, "a", time.Minute, &redislock.Options{Queue: true})
			gaveUp <- err
		}()
		spec.AwaitWaiter(ctx, on.Client, "a")
		down := on.Broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		cancel()
		Expect(<-gaveUp).To(MatchError(context.Canceled))
		Eventually(down.Count).WithTimeout(spec.Soon).Should(BeNumerically(">=", 8)) // more than one round
		Expect(direct.Line(ctx, "a")).To(HaveLen(1))
		down.Remove()
		Eventually(direct.Line).WithArguments(ctx, "a").WithTimeout(2 * time.Second).Should(BeEmpty())
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("frees keys that a waiter was handed while Redis was away for longer than its position in line lasts", func(ctx SpecContext) {
		locks, direct := on.ConnectBy(nil), redislock.New(on.Client)
		held := spec.Obtain(ctx, direct, time.Minute, nil, "a")
		waiting, cancel := context.WithCancel(ctx)
		gaveUp := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(waiting, "a", time.Minute, &redislock.Options{Queue: true})
			gaveUp <- err
		}()
		spec.AwaitWaiter(ctx, on.Client, "a")
		silent := on.Proxy.Add(faultproxy.Rule{Match: faultproxy.Command("ping"), Action: faultproxy.BlackHole()})
		Eventually(silent.Hit()).WithTimeout(3 * spec.Soon).Should(BeClosed())
		away := on.Proxy.Add(faultproxy.Rule{Match: faultproxy.Command("evalsha"), Action: faultproxy.CutAfterRequestBytes(0)})
		Expect(held.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(ConsistOf("a"), "handed over")
		cancel()
		Expect(<-gaveUp).To(MatchError(redislock.ErrNotObtained))
		time.Sleep(5 * time.Second)
		Expect(on.Keys(ctx)).To(ConsistOf("a"))
		away.Remove()
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
	})

	It("goes through a slow dial", func(ctx SpecContext) {
		locks := on.TimingOut(200 * time.Millisecond)
		abandonedFor := 150 * time.Millisecond
		abandon(ctx, locks)
		on.Proxy.DelayDial(abandonedFor)
		cleaned(ctx)
	})

	It("waits until connections are possible again", func(ctx SpecContext) {
		abandon(ctx, on.TimingOut(100*time.Millisecond))
		on.Proxy.RefuseConnections(true)
		Consistently(func() []string { return on.Keys(ctx) }).WithTimeout(500 * time.Millisecond).Should(ConsistOf("a"))
		on.Proxy.RefuseConnections(false)
		cleaned(ctx)
	})

	It("waits for a connection of a full pool", func(ctx SpecContext) {
		narrow := spec.Connect(&redis.Options{
			Addr: on.Proxy.Addr(), PoolSize: 1, ReadTimeout: 100 * time.Millisecond, PoolTimeout: 50 * time.Millisecond,
		})
		Expect(narrow.Echo(ctx, "hello").Err()).To(Succeed())
		abandon(ctx, redislock.New(narrow))
		taken := make(chan error, 1)
		go func() { taken <- narrow.BLPop(ctx, time.Second, "queue").Err() }()
		cleaned(ctx)
		Eventually(taken).WithTimeout(20 * time.Second).Should(Receive())
	})

	It("comes again, whatever it has found, if a request was not answered", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayRequest(900*time.Millisecond)) // the resend is granted
		on.Broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		_, err := on.TimingOut(200*time.Millisecond).Obtain(spec.Within(ctx, 300*time.Millisecond), "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int { return on.Executed("obtain") }).WithTimeout(3 * time.Second).Should(Equal(2))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("of a lock that was released ends before its token is used again", func(ctx SpecContext) {
		locks := on.TimingOut(200 * time.Millisecond)
		on.Broken("obtain", 1, faultproxy.DelayRequest(700*time.Millisecond)) // the resend is granted
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.Broken("release", 1, faultproxy.DelayReply(150*time.Millisecond))
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		again := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: lock.Token()}, "a")
		time.Sleep(3 * time.Second)
		on.Truthful(ctx, again)
	})

	It("ends with the ttl", func(ctx SpecContext) {
		on.Broken("release", 0, faultproxy.CutAfterRequestBytes(0))
		on.Broken("obtain", 1, faultproxy.SwallowReply())
		locks := on.TimingOut(100 * time.Millisecond)
		_, err := locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "a", 400*time.Millisecond, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int { return on.Requested("release") }).Should(BeNumerically(">", 1))
		time.Sleep(2 * time.Second) // the second sweep is past the ttl, too
		sent := on.Requested("release")
		Consistently(func() int { return on.Requested("release") }).WithTimeout(time.Second).Should(Equal(sent))
	})

	It("is waited for by Close, for a while", func(ctx SpecContext) {
		locks := on.TimingOut(200 * time.Millisecond)
		on.Broken("release", 1, faultproxy.DelayRequest(150*time.Millisecond))
		abandon(ctx, locks)
		Expect(on.Keys(ctx)).To(ConsistOf("a"))
		Expect(locks.Close()).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})
})

var _ = spec.DescribeFaulty("Re-entry by a custom token", func(on *spec.FaultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.ConnectBy(nil)
	})

	var held *redislock.Lock
	me := &redislock.Options{Token: "me"}

	BeforeEach(func(ctx SpecContext) {
		held = spec.Obtain(ctx, locks, time.Minute, me, "held")
	})

	It("abandoned on its way releases only what a late reply reports as newly taken", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		_, err := locks.ObtainMulti(spec.Within(ctx, 50*time.Millisecond), []string{"new", "held"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() []string { return on.Keys(ctx) }).Should(ConsistOf("held"))
		Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
	})

	It("is not undone by the cleanup of an earlier one", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		_, err := locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "new", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		lock := spec.Obtain(ctx, locks, time.Minute, me, "new")
		Consistently(func() []string { return on.Keys(ctx) }).WithTimeout(500 * time.Millisecond).Should(ConsistOf("held", "new"))
		on.Truthful(ctx, lock)
	})

	It("is not undone by an abandoned Release", func(ctx SpecContext) {
		on.Proxy.CutAll()
		on.Proxy.RefuseConnections(true)
		Expect(held.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.Proxy.RefuseConnections(false)
		lock := spec.Obtain(ctx, locks, time.Minute, me, "held")
		Consistently(func() []string { return on.Keys(ctx) }).WithTimeout(time.Second).Should(ConsistOf("held"))
		on.Truthful(ctx, lock)
	})

	It("leaves the other keys of an abandoned Release to be released", func(ctx SpecContext) {
		three := spec.Obtain(ctx, locks, time.Minute, me, "one", "two", "three")
		on.Proxy.CutAll()
		on.Proxy.RefuseConnections(true)
		Expect(three.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.Proxy.RefuseConnections(false)
		lock := spec.Obtain(ctx, locks, time.Minute, me, "two")
		third := spec.Obtain(ctx, locks, time.Minute, me, "three")
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(ConsistOf("held", "two", "three"))
		Consistently(func() []string { return on.Keys(ctx) }).WithTimeout(1500 * time.Millisecond).Should(ConsistOf("held", "two", "three"))
		on.Truthful(ctx, lock)
		on.Truthful(ctx, third)
	})

	It("leaves the other keys of an abandoned obtain as they were, or released", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		_, err := locks.ObtainMulti(spec.Within(ctx, 50*time.Millisecond), []string{"held", "one", "two"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		lock := spec.Obtain(ctx, locks, time.Minute, me, "two")
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(ConsistOf("held", "two"))
		Consistently(func() []string { return on.Keys(ctx) }).WithTimeout(1500 * time.Millisecond).Should(ConsistOf("held", "two"))
		on.Truthful(ctx, lock)
	})

	It("that is refused gives back what an abandoned one acquires", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		_, err := locks.ObtainMulti(spec.Within(ctx, 50*time.Millisecond), []string{"one", "two"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		other := spec.Obtain(ctx, locks, time.Minute, nil, "blocked")
		_, err = locks.ObtainMulti(ctx, []string{"one", "blocked"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(other.Release(ctx)).To(Succeed())
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(3 * time.Second).Should(ConsistOf("held"))
	})

	It("that is refused gives back what an abandoned Release has not freed", func(ctx SpecContext) {
		on.Proxy.CutAll()
		on.Proxy.RefuseConnections(true)
		Expect(held.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		other := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "blocked")
		on.Proxy.RefuseConnections(false)
		_, err := locks.ObtainMulti(ctx, []string{"held", "blocked"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(other.Release(ctx)).To(Succeed())
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("and released again leaves nothing of an abandoned one that arrives later", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond))
		_, err := locks.ObtainMulti(spec.Within(ctx, 50*time.Millisecond), []string{"one", "two"}, time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(spec.Obtain(ctx, locks, time.Minute, me, "one").Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(ConsistOf("held"))
		time.Sleep(400 * time.Millisecond) // until it has arrived
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(3 * time.Second).Should(ConsistOf("held"))
	})

	It("waits for the pause of a freeing that has failed, which is up to 4 s", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(100*time.Millisecond))
		down := on.Broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		_, err := locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "new", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int { return on.Requested("release") }).WithTimeout(spec.Soon).Should(BeNumerically(">=", 9))
		_, err = locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "new", time.Minute, me)
		Expect(err).To(And(MatchError(redislock.ErrNotObtained), MatchError(ContainSubstring("MASTERDOWN"))))
		down.Remove()
		on.Truthful(ctx, spec.Obtain(spec.Within(ctx, 6*time.Second), locks, time.Minute, me, "new"))
	})

	It("waits for a cleanup that is on the wire, but not past its ctx", func(ctx SpecContext) {
		on.Broken("release", 1, faultproxy.DelayReply(300*time.Millisecond))
		Expect(held.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		_, err := locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "held", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		on.Truthful(ctx, spec.Obtain(ctx, locks, time.Minute, me, "held"))
		Expect(on.Keys(ctx)).To(ConsistOf("held"))
	})

	It("abandoned without a reply releases nothing, because the keys may belong to an earlier hold", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.SwallowReply())
		_, err := on.TimingOut(100*time.Millisecond).Obtain(spec.Within(ctx, 50*time.Millisecond), "held", time.Minute, me)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Consistently(func() int { return on.Requested("release") }).WithTimeout(1500 * time.Millisecond).Should(BeZero())
		Expect(held.Release(ctx)).To(Succeed())
	})
})
