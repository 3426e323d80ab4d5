package several_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("a kept lock", func(on *spec.Quorum) {
	It("is kept alive while any context of it lives", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 600*time.Millisecond, nil, "a", "b")
		first, stopFirst := lock.KeepAlive(ctx)
		second, stopSecond := lock.KeepAlive(ctx)
		stopFirst()
		time.Sleep(800 * time.Millisecond)
		Expect(context.Cause(first)).To(Equal(context.Canceled))
		Expect(context.Cause(second)).NotTo(HaveOccurred())
		third, stopThird := lock.KeepAlive(ctx)
		stopSecond()
		time.Sleep(800 * time.Millisecond)
		Expect(context.Cause(third)).NotTo(HaveOccurred())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		stopThird()
		stopThird()
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
		fourth, stopFourth := lock.KeepAlive(ctx)
		defer stopFourth()
		Expect(context.Cause(fourth)).To(MatchError(redislock.ErrLapsed))
	})

	It("ends its contexts with a release and with Close, at once", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(context.Cause(kept)).To(MatchError(context.Canceled))

		lock = spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		kept, stop = lock.KeepAlive(ctx)
		defer stop()
		Expect(on.Locks.Close()).To(Succeed())
		Expect(context.Cause(kept)).To(Equal(redislock.ErrClosed))
		_, err := on.Locks.Obtain(ctx, "b", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = on.Locks.Inspect(ctx, "b")
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = on.Locks.Line(ctx, "b")
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = on.Locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).To(Equal(redislock.ErrClosed))
		time.Sleep(20 * time.Millisecond) // the renewals of all places have ended
		kept, stop = lock.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(Equal(redislock.ErrClosed))
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("guards a function", func(ctx SpecContext) {
		Expect(on.Locks.Do(ctx, []string{"a", "b"}, time.Second, nil, func(ctx context.Context) error {
			time.Sleep(1200 * time.Millisecond)
			_, err := on.Connect().Obtain(ctx, "b", time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			return ctx.Err()
		})).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
	})

	It("gives keys that have lost their expiry a ttl again, so that they expire when its holder dies", func(ctx SpecContext) {
		persist := func() {
			for _, s := range on.Servers {
				s.Own.Persist(ctx, "a")
			}
		}
		endless := func() (n int) {
			for _, s := range on.Servers {
				if s.Own.PTTL(ctx, "a").Val() == -1 {
					n++
				}
			}
			return n
		}
		lock := spec.Obtain(ctx, on.Locks, 600*time.Millisecond, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		persist()
		found, err := on.Connect().Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Eventually(endless).WithTimeout(5 * time.Second).Should(BeZero())
		Expect(found.Until()).To(BeTemporally("<=", time.Now().Add(600*time.Millisecond)))
		Expect(kept.Err()).NotTo(HaveOccurred())
		stop()
		persist()
		found, err = on.Connect().Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Until()).To(BeTemporally("<=", time.Now()))
		Expect(found.Refresh(ctx, 600*time.Millisecond, nil)).To(Succeed())
		Expect(found.Until()).To(BeTemporally(">", time.Now()))
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

var _ = describeSchedules("KeepAlive", func(on *schedule) {
	It("ends its renewals with the last context, even if that began as another one ended", func(ctx SpecContext) {
		for i := range 30 {
			lock := spec.Obtain(ctx, on.Locks, time.Second, nil, fmt.Sprint("key ", i))
			for range 10 {
				before, stop := lock.KeepAlive(ctx)
				go stop()
				<-before.Done()
				kept, stop := lock.KeepAlive(ctx)
				Expect(errors.Is(context.Cause(kept), redislock.ErrInvalid)).To(BeFalse(), "there is still a ttl to renew with")
				stop()
			}
		}
		time.Sleep(3 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "KeepAlive", func(on *spec.Quorum) {
	It("that comes while the last one ends is served", func(ctx SpecContext) {
		on.Warm(ctx)
		lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		spec.Several(lock).StopRenewing() // the last one, which has ended just before this one came, is about to do so
		time.Sleep(2 * time.Second)
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
		stop()
		spec.Several(lock).StopRenewing()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(2 * time.Second).Should(BeEmpty())
	})
})
