package place_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// The connection of the first request dies without a sign, so a copy of it goes at once.
var _ = spec.DescribeFaulty("A Release that was sent again before its first request was answered", func(on *spec.FaultyRedis) {
	const loading = "LOADING Redis is loading the dataset in memory"
	var locks *redislock.Client
	BeforeEach(func(ctx SpecContext) {
		on.Proxy.LeaveQuestions(false)
		locks = on.ConnectBy(nil)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "warm").Release(ctx)).To(Succeed())
	})

	// losing obtains a lock, and deletes some of its keys.
	losing := func(ctx context.Context, gone []string, keys ...string) *redislock.Lock {
		GinkgoHelper()
		lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
		Expect(on.Client.Del(ctx, gone...).Err()).To(Succeed())
		time.Sleep(5 * time.Millisecond) // until the next call asks whether its connection lives
		return lock
	}
	namesIt := func(err error) {
		GinkgoHelper()
		Expect(err).To(HaveField("Keys", []string{"a"}))
	}
	late := faultproxy.DelayReply(500 * time.Millisecond)

	It("reports the loss if the server refuses the first request late", func(ctx SpecContext) {
		lock := losing(ctx, []string{"a"}, "a")
		on.Broken("release", 1, faultproxy.RefuseReply(loading).And(late))
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("reports the loss if the server did not know the script of the first request", func(ctx SpecContext) {
		lock := losing(ctx, []string{"a", "b"}, "a", "b")
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		on.Broken("release", 1, late)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("names the key that the first request has found lost", func(ctx SpecContext) {
		for _, action := range []faultproxy.Action{late, faultproxy.DelayRequest(400 * time.Millisecond)} {
			lock := losing(ctx, []string{"a"}, "a", "b")
			on.Broken("release", 1, action)
			namesIt(lock.Release(ctx))
		}
	})

	DescribeTable("learns in the background what the first request has found, if ctx ends",
		func(ctx SpecContext, takes, cut time.Duration, keys []string, found func(error)) {
			lock := losing(ctx, []string{"a"}, keys...)
			on.Broken("release", 1, late)
			second := on.Broken("release", 1, faultproxy.DelayReply(takes))
			leaves, cancel := context.WithCancel(ctx)
			go func() {
				<-second.Hit()
				time.Sleep(cut)
				cancel()
			}()
			Expect(lock.Release(leaves)).To(MatchError(context.Canceled))
			found(lock.Release(ctx))
		},
		Entry("before the second is answered", 60*time.Millisecond, time.Duration(0), []string{"a"}, isLost),
		Entry("after the second was answered", time.Millisecond, 60*time.Millisecond, []string{"a"}, isLost),
		Entry("before the second is answered, and one key is lost", 60*time.Millisecond, time.Duration(0), []string{"a", "b"}, namesIt),
	)

	It("reports the loss with the next call if the second request is refused for good", func(ctx SpecContext) {
		lock := losing(ctx, []string{"a"}, "a")
		on.Broken("release", 1, late)
		on.Broken("release", 1, faultproxy.RefuseReply("NOPERM this user has no permissions"))
		if err := lock.Release(ctx); err != redislock.ErrLockNotHeld { // in a pipeline that is refused, it is sent again by itself
			Expect(err).To(MatchError(ContainSubstring("NOPERM")))
		}
		time.Sleep(time.Second)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("does not take for lost what the second request has freed before Until, although that was sent again later", func(ctx SpecContext) {
		lock, began := spec.Obtain(ctx, locks, 400*time.Millisecond, nil, "a"), time.Now()
		time.Sleep(200 * time.Millisecond)
		on.Broken("release", 1, faultproxy.DelayRequest(400*time.Millisecond))
		second := on.Broken("release", 1, faultproxy.CutAfterReplyBytes(0).And(faultproxy.DelayReply(80*time.Millisecond)))
		sent := make(chan time.Duration, 1)
		go func() {
			<-second.Hit()
			sent <- time.Since(began)
		}()
		err := lock.Release(ctx)
		if on.Kind == spec.OnServer && <-sent > 350*time.Millisecond {
			Skip("the machine is busy")
		}
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("returns the same as others that run at the same time", func(ctx SpecContext, gone []string, found func(error)) {
		lock := losing(ctx, gone, "a", "b")
		on.Broken("release", 2, faultproxy.DelayReply(600*time.Millisecond))
		var all sync.WaitGroup
		errs := make([]error, 3)
		for k := range errs {
			all.Go(func() { errs[k] = lock.Release(ctx) })
		}
		all.Wait()
		for _, err := range errs {
			found(err)
		}
	},
		Entry("if nothing was lost", []string{"c"}, func(err error) { Expect(err).NotTo(HaveOccurred()) }),
		Entry("if the lock was lost", []string{"a", "b"}, isLost),
	)
})

func isLost(err error) {
	GinkgoHelper()
	Expect(err).To(Equal(redislock.ErrLockNotHeld))
}
