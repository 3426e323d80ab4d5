package place_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeFaulty("A Release that has freed nothing says so", func(on *spec.FaultyRedis) {
	It("also if there is no room to go on, and others join", func(ctx SpecContext) {
		locks := on.ConnectBy(nil)
		DeferCleanup(spec.FillCleanups(locks))
		var held []*redislock.Lock
		for i := range 20 {
			held = append(held, spec.Obtain(ctx, locks, time.Minute, nil, fmt.Sprint("key", i)))
		}
		on.Broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		for _, lock := range held {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					defer GinkgoRecover()
					Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("MASTERDOWN")))
				})
			}
			all.Wait()
		}
		Expect(on.Keys(ctx)).To(HaveLen(len(held)))
	})

	It("also if its keys have expired while an obtain was under way that had been lost", func(ctx SpecContext) {
		on.Proxy.LeaveQuestions(false)
		locks := on.ConnectBy(func(opt *redis.Options) { opt.ReadTimeout = 10 * time.Second })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "warm").Release(ctx)).To(Succeed())
		time.Sleep(5 * time.Millisecond)                               // until the next call asks whether its connection lives
		on.Broken("obtain", 1, faultproxy.DelayRequest(6*time.Second)) // another one is granted
		lock := spec.Obtain(ctx, locks, 2*time.Second, nil, "a")
		on.Broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		Expect(lock.Release(ctx)).NotTo(Succeed())
		time.Sleep(3 * time.Second)
		other := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
		Expect(lock.Release(spec.Within(ctx, time.Second))).NotTo(Succeed())
		on.Truthful(ctx, other)
	})
})

var _ = spec.DescribeFaulty("A Release to which a reply is lost", func(on *spec.FaultyRedis) {
	const loading = "LOADING Redis is loading the dataset in memory"
	replyLost := faultproxy.CutAfterReplyBytes(0)
	const inOrder = "some milliseconds decide which reply is first"

	It("names only the key of which the loss was known", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Minute, nil, "a", "b")
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(BeAssignableToTypeOf(&redislock.LostError{}))
		on.Broken("release", 1, replyLost)
		err := lock.Release(ctx)
		Expect(err).To(HaveField("Keys", []string{"a"}))
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("says that all keys are lost if that was known", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Minute, nil, "a", "b")
		Expect(on.Client.Del(ctx, "a", "b").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
		on.Broken("release", 1, replyLost)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("names no key that came back", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Minute, nil, "a", "b")
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(BeAssignableToTypeOf(&redislock.LostError{}))
		Expect(on.Client.Set(ctx, "a", lock.Token(), time.Minute).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		on.Broken("release", 1, replyLost)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("reports the loss if all its tries before Until were refused", func(ctx SpecContext) {
		ended := make(chan struct{})
		tracer := &redislock.Tracer{CleanedUp: func(context.Context, redislock.CleanedUp) { close(ended) }}
		locks := redislock.New(spec.Connect(&redis.Options{Addr: on.Proxy.Addr()}), redislock.WithTracer(tracer))
		lock := spec.Obtain(ctx, locks, 600*time.Millisecond, nil, "a")
		down := on.Broken("release", 0, faultproxy.RefuseReply(loading))
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("LOADING")))
		Eventually(on.Keys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty()) // expired
		Eventually(ended).WithTimeout(5*time.Second).Should(BeClosed(), "otherwise the next Release joins this one")
		on.Broken("release", 1, faultproxy.CutAfterRequestBytes(0))
		down.Remove()
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("reports the loss if the only request before Until was refused", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), 200*time.Millisecond, nil, "a")
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(faultproxy.DelayReply(300*time.Millisecond)))
		on.Broken("release", 1, faultproxy.CutAfterRequestBytes(0))
		go func() { // miniredis lets no key expire by itself
			time.Sleep(250 * time.Millisecond)
			_ = on.Client.Del(context.Background(), "a").Err()
		}()
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(on.Requested("release")).To(Equal(3))
	})

	DescribeTable("does not take for lost what it has freed, although the keys would have expired", func(ctx SpecContext, late bool) {
		on.Proxy.LeaveQuestions(false)
		locks := on.ConnectBy(func(opt *redis.Options) { opt.ReadTimeout = 10 * time.Second })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "warm").Release(ctx)).To(Succeed())
		time.Sleep(5 * time.Millisecond) // until the next call asks whether its connection lives
		if late {
			on.Broken("obtain", 1, faultproxy.DelayRequest(6*time.Second)) // another one is granted
		}
		lock := spec.Obtain(ctx, locks, 2*time.Second, nil, "a")
		down := on.Broken("release", 0, replyLost)
		Expect(lock.Release(ctx)).NotTo(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty(), "it has freed the key")
		time.Sleep(3 * time.Second)
		down.Remove()
		Expect(lock.Release(spec.Within(ctx, time.Second))).NotTo(Equal(redislock.ErrLockNotHeld))
	},
		Entry("with no obtain under way", false),
		Entry("with an obtain under way", true),
	)

	It("does not take for lost what it has freed, although a Refresh that was under way finds nothing", func(ctx SpecContext) {
		on.OnlyInFakeTime(inOrder)
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Minute, nil, "a")
		late := on.Broken("refresh", 1, faultproxy.DelayRequest(30*time.Millisecond))
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
		<-late.Hit()
		on.Broken("release", 1, replyLost)
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(faultproxy.DelayReply(60*time.Millisecond)))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-refreshed).To(Equal(redislock.ErrNotObtained))
	})

	It("reports the loss that a Refresh has found before any request that may have freed the keys", func(ctx SpecContext) {
		on.OnlyInFakeTime(inOrder)
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Minute, nil, "a")
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		refresh := on.Broken("refresh", 1, faultproxy.DelayReply(60*time.Millisecond))
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
		<-refresh.Hit()
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(faultproxy.DelayReply(120*time.Millisecond)))
		on.Broken("release", 1, replyLost)
		released := make(chan error, 1)
		go func() { released <- lock.Release(ctx) }()
		Expect(<-refreshed).To(Equal(redislock.ErrNotObtained))
		Expect(on.Requested("release")).To(Equal(1))
		Expect(<-released).To(Equal(redislock.ErrLockNotHeld))
	})

	// refreshing returns a lock that a Refresh is about to prolong, which is executed and not answered yet. Of the requests of
	// its next Release, the first is refused, and the second frees the key after Until, and its reply is lost. Only then is the
	// Refresh answered.
	refreshing := func(ctx context.Context) (lock *redislock.Lock, refreshed <-chan error) {
		GinkgoHelper()
		refused, late := faultproxy.RefuseReply(loading), faultproxy.DelayReply
		lock = spec.Obtain(ctx, on.ConnectBy(nil), 400*time.Millisecond, nil, "a")
		began, answer := time.Now(), make(chan error, 1)
		refresh := on.Broken("refresh", 1, late(590*time.Millisecond))
		go func() { answer <- lock.Refresh(ctx, time.Minute, nil) }()
		<-refresh.Hit()
		time.Sleep(time.Until(began.Add(300 * time.Millisecond)))
		on.Broken("release", 1, refused.And(late(150*time.Millisecond)))
		on.Broken("release", 1, replyLost.And(late(100*time.Millisecond))) // after Until
		on.Broken("release", 1, refused.And(late(100*time.Millisecond)))
		return lock, answer
	}

	It("does not take for lost what it has freed after the first Until, although a Refresh is confirmed only then", func(ctx SpecContext) {
		on.OnlyInFakeTime(inOrder)
		lock, refreshed := refreshing(ctx)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-refreshed).To(Succeed())
	})

	It("does not take for lost what it has freed after the first Until, although a renewal is confirmed only then", func(ctx SpecContext) {
		on.OnlyInFakeTime(inOrder)
		refused, late := faultproxy.RefuseReply(loading), faultproxy.DelayReply
		lock := spec.Obtain(ctx, on.ConnectBy(nil), 400*time.Millisecond, nil, "a")
		began := time.Now()
		renewal := on.Broken("refresh", 0, late(400*time.Millisecond))
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		<-renewal.Hit()
		Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		time.Sleep(time.Until(began.Add(300 * time.Millisecond)))
		on.Broken("release", 1, refused.And(late(150*time.Millisecond)))
		on.Broken("release", 1, replyLost.And(late(100*time.Millisecond))) // after Until
		on.Broken("release", 1, refused.And(late(100*time.Millisecond)))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("says the same as another one, although a Refresh is confirmed between the two calls", func(ctx SpecContext) {
		on.OnlyInFakeTime(inOrder)
		lock, refreshed := refreshing(ctx)
		first := make(chan error, 1)
		go func() { first <- lock.Release(ctx) }()
		Expect(<-refreshed).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-first).NotTo(HaveOccurred())
	})
})

var _ = spec.DescribeFaulty("A Release that joins another one, and leaves,", func(on *spec.FaultyRedis) {
	var locks *redislock.Client
	var first chan error

	// leave returns when a Release of the lock has left another one, whose request takes that time.
	leave := func(ctx SpecContext, takes time.Duration) {
		on.Proxy.LeaveQuestions(false)
		locks = on.ConnectBy(func(opt *redis.Options) { opt.ReadTimeout = 10 * time.Second })
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "mine"}, "a")
		slow := on.Broken("release", 1, faultproxy.DelayRequest(takes))
		first = make(chan error, 1)
		go func() { first <- lock.Release(ctx) }()
		<-slow.Hit()
		Expect(lock.Release(spec.Within(ctx, 20*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
	}

	It("is waited for by the next obtain with the same token", func(ctx SpecContext) {
		leave(ctx, 500*time.Millisecond)
		again := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "mine"}, "a")
		Expect(<-first).NotTo(HaveOccurred())
		on.Truthful(ctx, again)
	})

	It("is waited for by Close", func(ctx SpecContext) {
		leave(ctx, 300*time.Millisecond)
		Expect(locks.Close()).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
		Expect(<-first).NotTo(HaveOccurred())
	})
})

var _ = spec.DescribeFaulty("A Release of a lock of which a try was answered long after it was abandoned", func(on *spec.FaultyRedis) {
	It("frees nothing that another Client obtains next with the same token", func(ctx SpecContext) {
		on.OnlyInFakeTime("it waits for long")
		locks := on.ConnectBy(func(opt *redis.Options) { opt.ReadTimeout = time.Hour })
		Expect(on.Client.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		time.AfterFunc(time.Second, func() {
			on.Broken("obtain", 1, faultproxy.DelayReply(12*time.Second)) // which is granted
			_ = on.Client.Del(context.Background(), "a").Err()
		})
		opt := &redislock.Options{Token: "mine", Queue: true}
		lock := spec.Obtain(spec.Within(ctx, 20*time.Second), locks, time.Minute, opt, "a")
		time.Sleep(20 * time.Second)
		before := on.Requested("release")
		Expect(lock.Release(ctx)).To(Succeed())
		again := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, &redislock.Options{Token: "mine"}, "a")
		time.Sleep(time.Second)
		Expect(on.Requested("release")).To(Equal(before + 1))
		on.Truthful(ctx, again)
	})
})

var _ = spec.DescribeFaulty("A Release through Attach", func(on *spec.FaultyRedis) {
	It("goes on for a minute, however short the ttl is that the handle has sent", func(ctx SpecContext) {
		owner := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
		attached, err := on.ConnectBy(nil).Attach(ctx, []string{"a"}, owner.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, 500*time.Millisecond, nil)).To(Succeed())
		Expect(owner.Refresh(ctx, time.Minute, nil)).To(Succeed())
		down := on.Broken("release", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		Expect(attached.Release(ctx)).NotTo(Succeed())
		time.Sleep(time.Second)
		down.Remove()
		Eventually(on.Keys).WithArguments(ctx).WithTimeout(6 * time.Second).Should(BeEmpty())
	})
})

var _ = spec.DescribeForgetful("Under a guard, a Release", func(on *spec.Forgetful) {
	ctx := context.Background()
	var locks *redislock.Client
	var lock *redislock.Lock
	rule := func(script string, times int, action faultproxy.Action) *faultproxy.Fault {
		return on.Add(faultproxy.Rule{Client: spec.Ours, Match: spec.Running(script), Times: times, Action: action})
	}
	obtain := func() {
		locks = on.Connect(redislock.WithGuard(maxTTL, 0))
		on.Open(ctx, maxTTL, 0)
		lock = spec.Obtain(ctx, locks, 15*time.Second, nil, "a")
	}

	It("returns when a renewal has ended, although the obtain was sent twice", func() {
		rule("obtain", 1, faultproxy.CutAfterReplyBytes(0))
		obtain()
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		<-rule("refresh", 1, faultproxy.DelayRequest(100*time.Millisecond)).Hit()
		Expect(on.Own.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Release(spec.Within(ctx, 800*time.Millisecond))).To(Equal(redislock.ErrLockNotHeld))
	})

	DescribeTable("frees what a Refresh puts back after a Release that was cut", func(crowded bool) {
		obtain()
		room := func() {}
		if crowded {
			room = spec.FillCleanups(locks)
		}
		rule("refresh", 1, faultproxy.DelayRequest(time.Second))
		rule("release", 1, faultproxy.DelayReply(200*time.Millisecond))
		refresh := start(func() error { return lock.Refresh(ctx, 15*time.Second, nil) })
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		time.Sleep(400 * time.Millisecond)
		if !crowded {
			rule("release", 1, faultproxy.RefuseReply("NOPERM this user has no permissions"))
		}
		on.LoseMemory()
		<-refresh.done
		time.Sleep(500 * time.Millisecond)
		Expect(spec.LocksIn(ctx, on.Own)).NotTo(BeEmpty())
		room()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	},
		Entry("and whose next release was refused", false),
		Entry("and had no room for the next release", true),
	)
})

var _ = spec.DescribeForgetful("Under a guard, a Release after a renewal without an answer", func(on *spec.Forgetful) {
	DescribeTable("frees what that puts back later", func(token string) {
		ctx := context.Background()
		locks := on.Connect(redislock.WithGuard(maxTTL, 0))
		on.Open(ctx, maxTTL, 0)
		lock := spec.Obtain(ctx, locks, 15*time.Second, &redislock.Options{Token: token}, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		late := on.Add(faultproxy.Rule{
			Client: spec.Ours, Match: spec.Running("refresh"), Times: 1,
			Action: faultproxy.CutClient().And(faultproxy.DelayRequest(500 * time.Millisecond)),
		})
		<-late.Hit()
		time.Sleep(time.Millisecond)
		stop()
		on.LoseMemory()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(600 * time.Millisecond)
		Expect(on.Own.Get(ctx, "a").Val()).To(Equal(lock.Token()), "the renewal has arrived")
		time.Sleep(5 * time.Second)
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	},
		Entry("with a random token", ""),
		Entry("with a custom one", "mine"),
	)
})
