package place_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

const (
	maxTTL  = 30 * time.Second // of the guards below
	deposed = 3 * time.Second
)

// pending is a call in a goroutine of its own.
type pending struct {
	done chan struct{} // closed when the call has returned; what follows may be read then
	err  error
	at   time.Time
}

func start(call func() error) *pending {
	p := &pending{done: make(chan struct{})}
	go func() { // ends with the call
		defer close(p.done)
		p.err = call()
		p.at = time.Now()
	}()
	time.Sleep(10 * time.Millisecond) // its first request was answered
	return p
}

var _ = spec.DescribeForgetful("while a deposed master may go on granting,", func(on *spec.Forgetful) {
	ctx := context.Background()
	var locks *redislock.Client
	var lock *redislock.Lock
	var lostAt time.Time // when the server forgot
	refreshes := func() int { return on.Requests(spec.Running("refresh")) }
	begin := func(ttl time.Duration) {
		GinkgoHelper()
		locks = on.Connect(redislock.WithGuard(maxTTL, deposed))
		on.Open(ctx, maxTTL, deposed)
		lock = spec.Obtain(ctx, locks, ttl, &redislock.Options{Metadata: "me"}, "a", "b")
	}
	forget := func() {
		GinkgoHelper()
		on.LoseMemory()
		lostAt = time.Now()
	}

	It("a Refresh waits, without a strategy, and then puts the keys back", func() {
		begin(10 * time.Second)
		forget()
		refresh := start(func() error { return lock.Refresh(ctx, 10*time.Second, nil) })
		time.Sleep(deposed - 20*time.Millisecond)
		Expect(refresh.done).NotTo(BeClosed())
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		<-refresh.done
		Expect(refresh.err).NotTo(HaveOccurred())
		Expect(refresh.at.Sub(lostAt)).To(BeNumerically("~", deposed, 10*time.Millisecond))
		Expect(refreshes()).To(Equal(2))
		Expect(on.Own.Get(ctx, "b").Val()).To(Equal(lock.Token() + " me"))
		Expect(time.Until(lock.Until())).To(BeNumerically(">", 9*time.Second))
	})

	It("renewals wait, and then put the keys back", func() {
		begin(10 * time.Second)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(3 * time.Second) // a renewal is due soon
		forget()
		time.Sleep(deposed - 10*time.Millisecond)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		time.Sleep(time.Second)
		Expect(on.Own.Get(ctx, "b").Val()).To(Equal(lock.Token() + " me"))
		Expect(refreshes()).To(Equal(2), "one that was not executed, and one that was")
		Expect(kept.Err()).NotTo(HaveOccurred())
		postponed := spec.EventsOf[redislock.Refreshed](on.Seen)[0]
		Expect(postponed.Renewal).To(BeTrue())
		Expect(postponed.Err).To(MatchError(MatchRegexp(
			`^redislock: renew .*: the guard has closed, because Redis may have forgotten locks; it renews none for another `)))
		Expect(spec.EventsOf[redislock.Restored](on.Seen)).To(Equal([]redislock.Restored{{Keys: lock.Keys(), Back: lock.Keys()}}))
		time.Sleep(time.Minute)
		Expect(kept.Err()).NotTo(HaveOccurred())
	})

	It("many kept locks wait, and then put their keys back in some round trips", func() {
		begin(10 * time.Second)
		var all []context.Context
		for range 200 {
			kept, stop := spec.Obtain(ctx, locks, 10*time.Second, nil, lockName(len(all))).KeepAlive(ctx)
			defer stop()
			all = append(all, kept)
		}
		time.Sleep(3 * time.Second)
		forget()
		time.Sleep(deposed + 2*time.Second)
		for i, kept := range all {
			Expect(kept.Err()).NotTo(HaveOccurred())
			Expect(on.Own.Exists(ctx, lockName(i)).Val()).To(BeEquivalentTo(1))
		}
		Expect(refreshes()).To(BeNumerically("<=", 450))
	})

	It("a lock that cannot wait so long lapses, and the error says why", func() {
		begin(4 * time.Second)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(1200 * time.Millisecond) // a renewal is due soon
		forget()
		until := lock.Until()
		<-kept.Done()
		Expect(time.Now()).To(BeTemporally("~", until, 5*time.Millisecond))
		Expect(context.Cause(kept)).To(And(MatchError(redislock.ErrLapsed), MatchError(ContainSubstring("the guard has closed"))))
		time.Sleep(time.Minute)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty(), "nothing puts the keys back")
		Expect(lock.Until()).To(Equal(until))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		lost := spec.EventsOf[redislock.Lost](on.Seen)
		Expect(lost).To(HaveLen(1))
		Expect(lost[0].Cause).To(Equal(redislock.LossLapsed))
	})

	Describe("the wait of a Refresh ends", func() {
		It("with its ctx", func() {
			begin(10 * time.Second)
			forget()
			limited, cancel := context.WithCancel(ctx)
			refresh := start(func() error { return lock.Refresh(limited, 10*time.Second, nil) })
			cancel()
			<-refresh.done
			Expect(refresh.at).To(BeTemporally("~", time.Now(), time.Millisecond))
			Expect(refresh.err).To(And(MatchError(context.Canceled), MatchError(ContainSubstring("the guard has closed"))))
			time.Sleep(20 * time.Second)
			Expect(refreshes()).To(Equal(1))
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})

		It("with the validity of the lock", func() {
			begin(2 * time.Second)
			until := lock.Until()
			forget()
			refresh := start(func() error { return lock.Refresh(ctx, 10*time.Second, nil) })
			<-refresh.done
			Expect(refresh.at).To(BeTemporally("~", until, 5*time.Millisecond))
			Expect(refresh.err).To(And(MatchError(redislock.ErrLapsed), MatchError(ContainSubstring("the guard has closed"))))
			time.Sleep(20 * time.Second)
			Expect(refreshes()).To(Equal(1))
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})

		It("with a Release, after which it puts nothing back", func() {
			begin(10 * time.Second)
			forget()
			refresh := start(func() error { return lock.Refresh(ctx, 10*time.Second, nil) })
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(time.Millisecond)
			Expect(refresh.done).To(BeClosed())
			Expect(refresh.err).To(MatchError(redislock.ErrNotObtained))
			time.Sleep(deposed + time.Second)
			Expect(refreshes()).To(Equal(1))
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})
	})

	It("a strategy that tries again after a Release puts nothing back", func() {
		begin(10 * time.Second)
		on.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: 1, Action: faultproxy.RefuseReply("ERR not now")})
		refresh := start(func() error {
			return lock.Refresh(ctx, 10*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(4 * time.Second)})
		})
		forget()
		_, _ = locks.Obtain(ctx, "c", time.Second, nil) // the guard closes
		Expect(lock.Release(ctx)).To(Succeed())
		<-refresh.done
		Expect(refresh.err).To(MatchError(redislock.ErrNotObtained))
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	})

	It("Close does not wait for a Refresh that waits, which goes on", func() {
		begin(10 * time.Second)
		forget()
		refresh := start(func() error { return lock.Refresh(ctx, 10*time.Second, nil) })
		began := time.Now()
		Expect(locks.Close()).To(Succeed())
		Expect(time.Since(began)).To(BeNumerically("<", 10*time.Millisecond))
		<-refresh.done
		Expect(refresh.err).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("nothing is renewed either where nothing was forgotten, because the server cannot know", func() {
		begin(10 * time.Second)
		on.Identity.Begin()
		left := on.Own.PTTL(ctx, "a").Val()
		refresh := start(func() error { return lock.Refresh(ctx, 20*time.Second, nil) })
		Expect(on.Own.PTTL(ctx, "a").Val()).To(BeNumerically("<=", left))
		<-refresh.done
		Expect(refresh.err).NotTo(HaveOccurred())
		Expect(on.Own.PTTL(ctx, "a").Val()).To(BeNumerically("~", 20*time.Second, 10*time.Millisecond))
	})
})

func lockName(i int) string { return "lock-" + time.Duration(i).String() }

var _ = spec.DescribeForgetful("under a guard, a lock that has lapsed", func(on *spec.Forgetful) {
	ctx := context.Background()
	var lock *redislock.Lock
	refreshes := func() int { return on.Requests(spec.Running("refresh")) }
	late := func(times int, action faultproxy.Action) {
		on.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: times, Action: action})
	}
	BeforeEach(func() {
		on.Open(ctx, maxTTL, 0)
		lock = spec.Obtain(ctx, on.Connect(redislock.WithGuard(maxTTL, 0)), 5*time.Second, nil, "a")
	})

	It("is not refreshed: nothing is sent, although the key is still there", func() {
		Expect(on.Own.PExpire(ctx, "a", time.Minute).Err()).To(Succeed())
		time.Sleep(5 * time.Second)
		for range 2 {
			Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		}
		Expect(refreshes()).To(BeZero())
	})

	It("does not come back with an answer that arrives after Until", func() {
		until := lock.Until()
		late(1, faultproxy.DelayReply(5*time.Second))
		err := lock.Refresh(ctx, 20*time.Second, nil)
		Expect(err).To(MatchError(redislock.ErrLapsed))
		Expect(time.Now()).To(BeTemporally("~", until, 5*time.Millisecond))
		time.Sleep(time.Second) // the answer has come
		Expect(on.Own.PTTL(ctx, "a").Val()).To(BeNumerically(">", 10*time.Second))
		Expect(lock.Until()).To(BeTemporally("<=", until))
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	})

	It("does not come back with renewals that are answered after Until, and its contexts have ended", func() {
		until := lock.Until()
		late(0, faultproxy.DelayReply(6*time.Second))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		<-kept.Done()
		Expect(time.Now()).To(BeTemporally("~", until, 5*time.Millisecond))
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
		time.Sleep(4 * time.Second) // the answers have come
		Expect(refreshes()).To(BeNumerically(">", 2))
		Expect(lock.Until()).To(Equal(until))
		again, stopAgain := lock.KeepAlive(ctx)
		defer stopAgain()
		Expect(context.Cause(again)).To(MatchError(redislock.ErrLapsed))
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(spec.EventsOf[redislock.Lost](on.Seen)).To(HaveLen(1))
	})

	It("does not come back with a Refresh that another handle has sent", func() {
		attached, err := on.ConnectBy(spec.Theirs, redislock.WithGuard(maxTTL, 0)).Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		time.Sleep(6 * time.Second)
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(attached.Until()).To(BeTemporally(">", time.Now()))
	})
})

var _ = spec.DescribeForgetful("under a guard, Release", func(on *spec.Forgetful) {
	ctx := context.Background()
	var locks *redislock.Client
	obtain := func(opt *redislock.Options) (lock *redislock.Lock, stop context.CancelFunc) {
		GinkgoHelper()
		lock = spec.Obtain(ctx, locks, 15*time.Second, opt, "a")
		_, stop = lock.KeepAlive(ctx)
		DeferCleanup(func() { stop() })
		return lock, stop
	}
	BeforeEach(func() {
		locks = on.Connect(redislock.WithGuard(maxTTL, 0))
		on.Open(ctx, maxTTL, 0)
	})
	renewals := func(times int, action faultproxy.Action) *faultproxy.Fault {
		return on.Add(faultproxy.Rule{Client: spec.Ours, Match: spec.Running("refresh"), Times: times, Action: action})
	}
	releases := func() int { return on.Requests(spec.Running("release")) }

	It("during a renewal that is on its way is sent again when that is answered", func() {
		lock, _ := obtain(nil)
		fault := renewals(1, faultproxy.DelayRequest(2*time.Second))
		<-fault.Hit()
		on.LoseMemory()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(1900 * time.Millisecond)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		time.Sleep(200 * time.Millisecond)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty(), "the renewal has put the key back, and a release has freed it")
		Expect(releases()).To(Equal(2))
		Expect(spec.EventsOf[redislock.Lost](on.Seen)).To(BeEmpty())
	})

	It("during a Refresh that its caller has abandoned is sent again when that is answered", func() {
		lock, stop := obtain(nil)
		stop()
		renewals(1, faultproxy.DelayRequest(2*time.Second))
		Expect(lock.Refresh(spec.Within(ctx, time.Second), 15*time.Second, nil)).To(MatchError(context.DeadlineExceeded))
		on.LoseMemory()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(1200 * time.Millisecond)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		Expect(releases()).To(Equal(2))
	})

	It("is sent again if a Refresh was executed after it, and has ended before its answer", func() {
		lock, stop := obtain(nil)
		stop()
		renewals(1, faultproxy.DelayRequest(500*time.Millisecond))
		on.Add(faultproxy.Rule{Match: spec.Running("release"), Times: 1, Action: faultproxy.DelayReply(time.Second)})
		on.LoseMemory()
		refresh := start(func() error { return lock.Refresh(ctx, 15*time.Second, nil) })
		Expect(lock.Release(ctx)).To(Succeed())
		<-refresh.done
		time.Sleep(100 * time.Millisecond)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		Expect(releases()).To(Equal(2))
	})

	It("after a renewal whose connection broke is sent again, because that may still arrive", func() {
		lock, stop := obtain(nil)
		fault := renewals(1, faultproxy.CutClient().And(faultproxy.DelayRequest(500*time.Millisecond)))
		<-fault.Hit()
		time.Sleep(time.Millisecond)
		stop() // otherwise another renewal follows, which is answered
		on.LoseMemory()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(600 * time.Millisecond)
		Expect(on.Own.Get(ctx, "a").Val()).To(Equal(lock.Token()), "the renewal has arrived")
		time.Sleep(time.Second)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	})

	It("without a renewal under way is sent once", func() {
		lock, _ := obtain(nil)
		time.Sleep(6 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(releases()).To(Equal(1))
	})

	DescribeTable("during a renewal does not undo a later obtain with the same token", func(action faultproxy.Action) {
		opt := &redislock.Options{Token: "mine"}
		lock, _ := obtain(opt)
		fault := renewals(1, action)
		<-fault.Hit()
		Expect(lock.Release(ctx)).To(Succeed())
		second := spec.Obtain(spec.Within(ctx, 10*time.Second), locks, 15*time.Second, opt, "a")
		time.Sleep(5 * time.Second)
		Expect(on.Own.Get(ctx, "a").Val()).To(Equal("mine"))
		Expect(second.Refresh(ctx, 15*time.Second, nil)).To(Succeed())
		Expect(second.Release(ctx)).To(Succeed())
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	},
		Entry("that is delayed", faultproxy.DelayRequest(2*time.Second)),
		Entry("whose reply is delayed", faultproxy.DelayReply(2*time.Second)),
		Entry("whose reply is lost", faultproxy.CutAfterReplyBytes(0)),
	)

	It("leaves Close a second at most while a renewal hangs", func() {
		lock, _ := obtain(nil)
		fault := renewals(0, faultproxy.BlackHole())
		<-fault.Hit()
		Expect(lock.Release(ctx)).To(Succeed())
		began := time.Now()
		Expect(locks.Close()).To(Succeed())
		Expect(time.Since(began)).To(BeNumerically("<=", 1100*time.Millisecond))
		on.CutAll()
	})
})
