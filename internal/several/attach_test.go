package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("Attach", func(on *spec.Quorum) {
	It("gives a handle of the lock of another", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "me"}, "a", "b")
		Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me")))
		other := on.Connect()
		found, err := other.Attach(ctx, []string{"a", "b"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Metadata()).To(Equal("me"))
		Expect(found.Until()).To(BeTemporally("~", lock.Until(), time.Second))
		_, err = other.Attach(ctx, []string{"a", "c"}, lock.Token())
		Expect(spec.LostKeys(err)).To(Equal([]string{"c"}))
		_, err = other.Attach(ctx, []string{"a"}, "another")
		Expect(err).To(Equal(redislock.ErrLockNotHeld))
		kept, stop := found.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrInvalid))
		Expect(found.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Eventually(lock.TTL).WithArguments(ctx).Should(BeNumerically(">", 59*time.Minute)) // the last server may be behind
		Expect(found.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("never says that a lock is not held that servers which fail may hold", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		spare := on.Spare()
		Expect(on.Servers[spare].Own.Del(ctx, "a").Err()).To(Succeed())
		on.Fail(spare, (*spec.Server).Hang)
		_, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).To(HaveOccurred())
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
		for _, s := range on.Servers[:spare] {
			Expect(err).To(MatchError(ContainSubstring(s.Name + ": no answer from Redis")))
		}
		on.Fail(spare, (*spec.Server).Restore)
		Expect(on.Locks.Attach(ctx, []string{"a"}, lock.Token())).NotTo(BeNil())
	})

	It("and every method return soon if a minority hangs for ever", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		on.Fail(on.Spare(), (*spec.Server).Hang)
		start := time.Now()
		found, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		_, err = on.Locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(found.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(found.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(found.Release(ctx)).To(Succeed())
		Expect(time.Since(start)).To(BeNumerically("<", time.Second))
	})
})

var _ = describeSchedules("an attached handle", func(on *schedule) {
	It("frees by its Release what the owner of the lock has acquired since", func(ctx SpecContext) {
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond)))
		lock := spec.Obtain(ctx, on.Locks, time.Hour, nil, "a")
		attached, err := on.other.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(attached.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("asks a server that did not answer Attach", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.other, time.Minute, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Hang()
		attached, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		on.Servers[2].Memory.Resume()
		time.Sleep(time.Second)
		on.Servers[1].Memory.Memory.FlushAll()
		Expect(attached.TTL(ctx)).To(BeNumerically("~", time.Minute, 5*time.Second))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
	})

	DescribeTable("is refreshed, if one server answers that it has forgotten, and another had not answered Attach", func(
		ctx SpecContext, delays ...time.Duration,
	) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		on.Servers[2].Memory.Hang()
		attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		on.Servers[2].Memory.Resume()
		time.Sleep(time.Second)
		on.Servers[1].Memory.Memory.FlushAll()
		for i, delay := range delays {
			on.Servers[i].Memory.SetLatency(spec.Always(100*time.Microsecond + delay))
		}
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(attached.Until()).To(BeTemporally("~", time.Now().Add(time.Minute), time.Second))
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	},
		Entry("before both of the others", 5*time.Millisecond, time.Duration(0), 10*time.Millisecond),
		Entry("between them", time.Duration(0), 5*time.Millisecond, 10*time.Millisecond),
	)
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "an attached handle", func(on *spec.Quorum) {
	It("obtains the keys again where Attach had no answer, and releases them there", func(ctx SpecContext) {
		on.Warm(ctx)
		lock := spec.Obtain(ctx, on.ConnectAs(spec.Theirs, nil), time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		attach := func() *redislock.Lock {
			on.Break(2, faultproxy.Rule{Action: faultproxy.DelayReply(150 * time.Millisecond)})
			attached, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			on.Heal(2)
			time.Sleep(time.Second)
			return attached
		}
		kept := attach()
		Expect(kept.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		_, stop := kept.KeepAlive(ctx)
		time.Sleep(time.Minute)
		Expect(has(ctx, on, 2)).To(Equal(int64(1)))
		stop()
		Expect(kept.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(attach().Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})
})
