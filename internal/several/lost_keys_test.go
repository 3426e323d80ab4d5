package several_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("of a lock of two keys, one of which a majority has lost,", func(on *spec.Quorum) {
	keys := []string{"a", "b"}

	// losing obtains the lock, and deletes "b" at as many servers as a majority needs, beginning with one of them.
	losing := func(ctx context.Context, first int) *redislock.Lock {
		GinkgoHelper()
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, keys...)
		for _, s := range on.Servers { // a late grant would have the key
			Eventually(func() int64 { return s.Own.Exists(ctx, keys...).Val() }).Should(BeEquivalentTo(2))
		}
		for i := range len(on.Servers)/2 + 1 {
			Expect(on.Servers[(first+i)%len(on.Servers)].Own.Del(ctx, "b").Val()).To(BeEquivalentTo(1))
		}
		return lock
	}
	namesIt := func(err error) {
		GinkgoHelper()
		var lost *redislock.LostError
		Expect(errors.As(err, &lost)).To(BeTrue(), "%v", err)
		Expect(lost.Keys).To(Equal([]string{"b"}))
	}

	It("Refresh and Release name it", func(ctx SpecContext) {
		for first := range on.Servers {
			lock := losing(ctx, first)
			Expect(lock.TTL(ctx)).To(BeZero())
			namesIt(lock.Refresh(ctx, time.Minute, nil))
			namesIt(lock.Release(ctx))
			Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
		}
	})

	It("Release names it without a Refresh", func(ctx SpecContext) {
		for first := range on.Servers {
			namesIt(losing(ctx, first).Release(ctx))
			Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
		}
	})

	It("an attached handle names it", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, keys...)
		attached, err := on.Locks.Attach(ctx, keys, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		for _, s := range on.Servers[:len(on.Servers)/2+1] {
			Eventually(func() int64 { return s.Own.Del(ctx, "b").Val() }).Should(BeEquivalentTo(1))
		}
		namesIt(attached.Refresh(ctx, time.Minute, nil))
		namesIt(attached.Release(ctx))
	})

	It("KeepAlive names it, and so does the Release that follows", func(ctx SpecContext) {
		lock := losing(ctx, 1)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		_ = lock.Refresh(ctx, time.Minute, nil)
		Eventually(kept.Done()).Should(BeClosed())
		namesIt(context.Cause(kept))
		namesIt(lock.Release(ctx))
	})
})
