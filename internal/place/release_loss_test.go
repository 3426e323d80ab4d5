package place_test

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

var _ = spec.DescribeFaulty("A Release to which a reply is lost reports the loss", func(on *spec.FaultyRedis) {
	const loading = "LOADING Redis is loading the dataset in memory"
	replyLost, late := faultproxy.CutAfterReplyBytes(0), faultproxy.DelayReply

	BeforeEach(func() { on.OnlyInFakeTime("some milliseconds decide which reply is first") })

	// without returns a lock of these keys, of which "a" is then deleted. What it sends next is answered late.
	without := func(ctx context.Context, keys ...string) (lock *redislock.Lock, next *faultproxy.Fault) {
		GinkgoHelper()
		lock = spec.Obtain(ctx, on.ConnectBy(nil), 400*time.Millisecond, nil, keys...)
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		return lock, on.Broken("refresh", 1, late(60*time.Millisecond))
	}

	It("that a renewal has found before any request that may have freed the keys", func(ctx SpecContext) {
		lock, renewal := without(ctx, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		<-renewal.Hit()
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(late(120*time.Millisecond)))
		on.Broken("release", 1, replyLost)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("that a renewal has found meanwhile, by its keys", func(ctx SpecContext) {
		lock, renewal := without(ctx, "a", "b")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		<-renewal.Hit()
		on.Broken("release", 1, replyLost.And(late(120*time.Millisecond)))
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"a"}))
	})

	It("that a renewal has found after the end of its KeepAlive", func(ctx SpecContext) {
		lock, renewal := without(ctx, "a")
		_, stop := lock.KeepAlive(ctx)
		<-renewal.Hit()
		stop()
		time.Sleep(100 * time.Millisecond) // the reply has come
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Broken("release", 1, replyLost)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("that a Refresh has found after its ctx had ended", func(ctx SpecContext) {
		lock, _ := without(ctx, "a")
		Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
		time.Sleep(100 * time.Millisecond) // the reply has come
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Broken("release", 1, replyLost)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("that the last of two Refreshes has found after their ctx had ended", func(ctx SpecContext) {
		lock, _ := without(ctx, "a", "b")
		Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
		Expect(on.Client.Del(ctx, "b").Err()).To(Succeed())
		on.Broken("refresh", 1, late(60*time.Millisecond))
		Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
		time.Sleep(100 * time.Millisecond)
		on.Broken("release", 1, replyLost)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	confirmedLater := func(ctx SpecContext, refreshAt, renewalAt time.Duration) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), 400*time.Millisecond, nil, "a")
		began := time.Now()
		after := func(d time.Duration) time.Duration { return time.Until(began.Add(d)) }
		refreshed := make(chan error, 1)
		refresh := func() {
			time.Sleep(after(refreshAt))
			executed := on.Broken("refresh", 1, late(after(560*time.Millisecond)))
			go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
			<-executed.Hit()
		}
		renew := func() {
			time.Sleep(after(renewalAt))
			renewal := on.Broken("refresh", 1, faultproxy.DelayRequestUntil(began.Add(450*time.Millisecond)))
			_, stop := lock.KeepAlive(ctx)
			<-renewal.Hit()
			stop()
		}
		if refreshAt < renewalAt {
			refresh()
			renew()
		} else {
			renew()
			refresh()
		}
		time.Sleep(after(350 * time.Millisecond))
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(late(60*time.Millisecond)))
		on.Broken("release", 1, replyLost.And(late(100*time.Millisecond))) // after Until
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(late(200*time.Millisecond)))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-refreshed).To(Succeed())
	}
	DescribeTable("but not what a renewal finds after the keys were freed, although a Refresh is confirmed even later", confirmedLater,
		Entry("that begins after the renewal", 340*time.Millisecond, time.Duration(0)),
		Entry("that has begun before the renewal", time.Duration(0), 20*time.Millisecond),
	)

	DescribeTable("but not what a renewal finds after the keys were freed", func(ctx SpecContext, token string, more ...faultproxy.Action) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Second, &redislock.Options{Token: token}, "a")
		began := time.Now()
		renewal := on.Broken("refresh", 1, faultproxy.DelayRequestUntil(began.Add(500*time.Millisecond)))
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		<-renewal.Hit()
		time.Sleep(time.Until(began.Add(450 * time.Millisecond)))
		on.Broken("release", 1, replyLost)
		for _, action := range more {
			on.Broken("release", 1, action)
		}
		Expect(lock.Release(ctx)).To(Succeed())
	},
		Entry("while Redis is loading", "", faultproxy.RefuseReply(loading).And(late(100*time.Millisecond)), replyLost),
		Entry("while more replies are lost", "", replyLost.And(late(100*time.Millisecond)), replyLost),
		Entry("while Redis is loading, with a custom token", "mine", faultproxy.RefuseReply(loading).And(late(100*time.Millisecond)), replyLost),
	)
})

var _ = spec.DescribeFaulty("A loss that is found after the end of a Refresh", func(on *spec.FaultyRedis) {
	late := faultproxy.DelayReply

	BeforeEach(func() { on.OnlyInFakeTime("some milliseconds decide which reply is first") })

	// abandoned refreshes the lock of "a" after that was deleted, and returns before the loss is found.
	abandoned := func(ctx context.Context, lock *redislock.Lock) {
		GinkgoHelper()
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		on.Broken("refresh", 1, late(60*time.Millisecond))
		Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), time.Hour, nil)).To(MatchError(context.DeadlineExceeded))
	}

	It("ends what was derived from a kept context", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.ConnectBy(nil), time.Hour, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		derived, cancel := context.WithCancel(kept)
		defer cancel()
		abandoned(ctx, lock)
		Eventually(derived.Done()).WithTimeout(time.Second).Should(BeClosed())
	})

	It("is an event whose ctx has not ended", func(ctx SpecContext) {
		ended := make(chan error, 1)
		tracer := &redislock.Tracer{Lost: func(ctx context.Context, _ redislock.Lost) { ended <- ctx.Err() }}
		locks := redislock.New(spec.Connect(&redis.Options{Addr: on.Proxy.Addr()}), redislock.WithTracer(tracer))
		DeferCleanup(locks.Close)
		abandoned(ctx, spec.Obtain(ctx, locks, time.Minute, nil, "a"))
		Expect(<-ended).NotTo(HaveOccurred())
	})

	DescribeTable("does not end a lock that a later Refresh has confirmed", func(ctx SpecContext, begin func(context.Context, *redislock.Lock)) {
		opt := &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, on.ConnectBy(nil), 400*time.Millisecond, opt, "a")
		begin(ctx, lock)
		spec.Obtain(ctx, redislock.New(on.Client), time.Minute, opt, "a") // another handle gets the key back
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(50*time.Second)))
		spec.Release(ctx, lock)
	},
		Entry("by an abandoned Refresh", abandoned),
		Entry("by a renewal after the end of its KeepAlive", func(ctx context.Context, lock *redislock.Lock) {
			Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
			renewal := on.Broken("refresh", 1, late(60*time.Millisecond))
			_, stop := lock.KeepAlive(ctx)
			<-renewal.Hit()
			stop()
			time.Sleep(10 * time.Millisecond) // until it was executed
		}),
	)
})

var _ = spec.DescribeForgetful("A loss that is found after the end of a Refresh", func(on *spec.Forgetful) {
	It("does not end a lock whose keys a guard has put back since", func(ctx SpecContext) {
		on.Open(ctx, maxTTL, 0)
		lock := spec.Obtain(ctx, on.Connect(redislock.WithGuard(maxTTL, 0)), 20*time.Second, nil, "a")
		Expect(on.Own.Del(ctx, "a").Err()).To(Succeed())
		on.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: 1, Action: faultproxy.DelayReply(300 * time.Millisecond)})
		Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), 20*time.Second, nil)).To(MatchError(context.DeadlineExceeded))
		on.LoseMemory()
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		time.Sleep(time.Second)
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(15*time.Second)))
		spec.Release(ctx, lock)
	})
})
