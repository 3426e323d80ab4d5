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
})
