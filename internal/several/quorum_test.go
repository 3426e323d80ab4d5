package several_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

var _ = spec.DescribeQuorum("a lock", func(on *spec.Quorum) {
	It("is on all servers, and on none after its release", func(ctx SpecContext) {
		sent := time.Now()
		lock, err := on.Locks.ObtainMulti(ctx, []string{"a", "b", "a"}, time.Minute, &redislock.Options{Metadata: "me and you"})
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Key()).To(Equal("a"))
		Expect(lock.Keys()).To(Equal([]string{"a", "b"}))
		Expect(lock.Token()).To(HaveLen(22))
		Expect(lock.Metadata()).To(Equal("me and you"))
		Expect(lock.FenceToken()).To(BeZero())
		Expect(lock.Until()).To(BeTemporally("~", sent.Add(59_399*time.Millisecond), 500*time.Millisecond))
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Minute, time.Second))
		for _, key := range lock.Keys() {
			Eventually(on.Values).WithArguments(ctx, key).Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me and you")))
		}
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
		Expect(lock.TTL(ctx)).To(BeZero())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("shares no key with another, and a refused obtain leaves nothing behind", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "b", "c")
		Eventually(on.Values).WithArguments(ctx, "c").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		for _, keys := range [][]string{{"a", "b"}, {"c"}, {"c", "d", "e"}} {
			_, err := on.Connect().ObtainMulti(ctx, keys, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		}
		Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(50 * time.Millisecond).Should(HaveLen(2 * len(on.Servers)))
		spec.Obtain(ctx, on.Locks, time.Minute, nil, "a", "d")
	})

	It("is obtained after a retry, and by a waiter in line", func(ctx SpecContext) {
		for _, opt := range []*redislock.Options{
			{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}, {Queue: true},
		} {
			lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a", "b")
			done := make(chan error)
			go func() {
				next, err := on.Locks.ObtainMulti(ctx, []string{"b", "c"}, time.Minute, opt)
				if err == nil {
					err = next.Release(ctx)
				}
				done <- err
			}()
			Consistently(done).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(done).Should(Receive(BeNil()))
		}
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("lasts as a Refresh says, which may replace the metadata", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "one"}, "a", "b")
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "two"})).To(Succeed())
		Expect(lock.Metadata()).To(Equal("two"))
		Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(time.Hour-36*time.Second), 2*time.Second))
		Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" two")))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Second, 200*time.Millisecond))
		Expect(lock.Until()).To(BeTemporally("<", time.Now().Add(time.Second)))
		Expect(lock.Refresh(ctx, time.Millisecond, nil)).To(MatchError(redislock.ErrInvalid))
	})

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

	It("can be attached to", func(ctx SpecContext) {
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

	It("shows who holds and who waits", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "me"}, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me")))
		waiting, giveUp := context.WithCancel(ctx)
		gone := make(chan error)
		go func() {
			_, err := on.Locks.Obtain(waiting, "a", time.Minute, &redislock.Options{Queue: true, Metadata: "next"})
			gone <- err
		}()
		Eventually(func() []redislock.Waiter { line, _ := on.Locks.Line(ctx, "a"); return line }).Should(HaveLen(1))
		line, err := on.Locks.Line(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(line[0].Metadata).To(Equal("next"))
		statuses, err := on.Locks.Inspect(ctx, "a", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].WaitingSince).To(BeTemporally("~", time.Now(), 5*time.Second))
		Expect(statuses[0].TTL).To(BeNumerically("~", time.Minute, time.Second))
		statuses[0].WaitingSince, statuses[0].TTL = time.Time{}, 0
		Expect(statuses).To(Equal([]redislock.Status{
			{Key: "a", Token: lock.Token(), Metadata: "me", Waiters: 1}, {Key: "b"},
		}))
		giveUp()
		Eventually(gone).Should(Receive(MatchError(context.Canceled)))
		Eventually(func() []redislock.Waiter { line, _ := on.Locks.Line(ctx, "a"); return line }).Should(BeEmpty())
	})

	It("says what is in the way", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "me"}, "a")
		_, err := on.Locks.ObtainMulti(ctx, []string{"b", "a"}, time.Minute, &redislock.Options{Explain: true})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		var refused *redislock.RefusedError
		Expect(errors.As(err, &refused)).To(BeTrue())
		Expect(refused.Key).To(Equal("a"))
		Expect(refused.Token).To(Equal(lock.Token()))
		Expect(refused.Metadata).To(Equal("me"))
	})

	DescribeTable("is on all servers again, although another had left its key on one, and others try again and again",
		func(ctx SpecContext, opt *redislock.Options) {
			Expect(on.Servers[0].Own.Set(ctx, "a", "another's", 300*time.Millisecond).Err()).To(Succeed())
			lock := spec.Obtain(ctx, on.Connect(), 600*time.Millisecond, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			tries, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer cancel()
			_, err := on.Locks.Obtain(tries, "a", time.Minute, opt)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
			Expect(context.Cause(kept)).NotTo(HaveOccurred())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		},
		Entry("with a strategy", &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}),
		Entry("in line", &redislock.Options{Queue: true}),
	)

	It("does not span slots", func(ctx SpecContext) {
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, &redislock.Options{AcrossSlots: true})
		Expect(err).To(MatchError(redislock.ErrInvalid))
	})
})

// The torture run found this.
var _ = Describe("TTL on a quorum of 5", Label(spec.InMemory), func() {
	It("is at once that of the last Refresh, also where some servers receive it later", func(ctx SpecContext) {
		on := &spec.Quorum{Kind: spec.InMemory}
		on.Begin(ctx, 5)
		delay := func(servers []*spec.Server, action faultproxy.Action) (heal func()) {
			for _, s := range servers {
				s.Memory.Add(faultproxy.Rule{Client: spec.Ours, Action: action})
			}
			return func() {
				for _, s := range servers {
					s.Memory.RemoveAll()
				}
			}
		}
		for _, s := range on.Servers {
			s.Memory.SetLatency(nil)
		}
		for _, slow := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} { // before and after they do
			lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(5, lock.Token())))
			heal := delay(on.Servers[3:], faultproxy.DelayRequest(50*time.Millisecond))
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			heal()
			heal = delay(on.Servers[:3], faultproxy.DelayReply(slow))
			left, err := lock.TTL(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeNumerically(">", 59*time.Second))
			heal()
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})
})
