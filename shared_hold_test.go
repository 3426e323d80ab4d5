package redislock_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// permits returns options for one of n permits.
func permits(n int) *redislock.Options { return &redislock.Options{Permits: map[string]int{"a": n}} }

// withToken returns the options with a token of the caller.
func withToken(token string, opt *redislock.Options) *redislock.Options {
	some := *opt
	some.Token = token
	return &some
}

var _ = spec.DescribeOnRedis("A hold of a key that several may hold", func(on *spec.Redis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})
	AfterEach(func(ctx SpecContext) {
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(Or(BeEmpty(), Equal([]string{"fence"})))
	})
	status := func(ctx context.Context) redislock.Status {
		GinkgoHelper()
		found, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		return found[0]
	}

	It("has a higher fencing token than those before it", func(ctx SpecContext) {
		opt := &redislock.Options{Shared: []string{"a"}, FenceKey: "fence"}
		one, two := spec.Obtain(ctx, locks, time.Minute, opt, "a"), spec.Obtain(ctx, locks, time.Minute, opt, "a")
		Expect(two.FenceToken()).To(BeNumerically(">", one.FenceToken()))
		spec.Release(ctx, one, two)
		writer := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a")
		Expect(writer.FenceToken()).To(BeNumerically(">", two.FenceToken()))
		waiter := spec.StartWaiter(ctx, locks, time.Minute, queued(opt), "a")
		spec.Release(ctx, writer)
		three := waiter.Granted()
		Expect(three.FenceToken()).To(BeNumerically(">", writer.FenceToken()))
		waiter = spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence", Queue: true}, "a")
		spec.Release(ctx, three) // hands the key over
		writer = waiter.Granted()
		Expect(writer.FenceToken()).To(BeNumerically(">", three.FenceToken()))
		spec.Release(ctx, writer)
	})

	It("is one hold if its token shares the key again, and the smaller limit stays", func(ctx SpecContext) {
		for _, opts := range [][]*redislock.Options{{permits(2), permits(3)}, {permits(3), permits(2)}, {readers, permits(2)}, {permits(2), readers}} {
			one := spec.Obtain(ctx, locks, time.Minute, withToken("me", opts[0]), "a")
			again := spec.Obtain(ctx, locks, time.Hour, withToken("me", opts[1]), "a")
			Expect(status(ctx).HolderCount).To(Equal(1))
			Expect(status(ctx).Holders[0].Limit).To(Equal(2))
			other := spec.Obtain(ctx, locks, time.Minute, readers, "a")
			spec.Refused(ctx, locks, readers, "a")
			Expect(one.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
			spec.Release(ctx, again, other)
			Expect(one.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		}
	})

	It("stays exclusive if its token shares the key", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, withToken("me", &redislock.Options{}), "a")
		again := spec.Obtain(ctx, locks, time.Minute, withToken("me", readers), "a")
		spec.Refused(ctx, locks, readers, "a")
		Expect(again.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "new"})).To(Succeed())
		Expect(again.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
		Expect(status(ctx).Metadata).To(Equal("new"))
		Expect(status(ctx).HolderCount).To(BeZero())
		Expect(one.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
		spec.Release(ctx, again)
		Expect(one.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("does not become exclusive, and its token does not wait for itself", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, withToken("me", readers), "a")
		for _, opt := range []redislock.Options{
			{}, {Explain: true}, {Queue: true}, {Queue: true, Explain: true}, {RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)},
		} {
			opt.Token = "me"
			began := time.Now()
			_, err := locks.Obtain(spec.Within(ctx, 2*time.Second), "a", time.Minute, &opt)
			if opt.Queue || opt.RetryStrategy != nil {
				Expect(time.Since(began)).To(BeNumerically("<", time.Second), "it waits for itself")
				Expect(err).To(MatchError(redislock.ErrInvalid))
			} else {
				Expect(err).To(MatchError(redislock.ErrNotObtained))
			}
		}
		spec.Release(ctx, one)
	})

	It("tells the Tracer who refuses a caller", func(ctx SpecContext) {
		var seen redislock.Refused
		traced := redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			Refused: func(_ context.Context, e redislock.Refused) { seen = e },
		}))
		DeferCleanup(traced.Close)
		one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		two := spec.Obtain(ctx, locks, time.Hour, &redislock.Options{Shared: []string{"a"}, Metadata: "two"}, "a")
		_, err := traced.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		why := spec.Refusal(err)
		Expect(*why).To(And(HaveField("Holders", 2), HaveField("Token", two.Token()), HaveField("Metadata", "two")))
		Expect(seen.Holder).To(Equal(two.Token()))
		Expect(seen.Metadata).To(Equal("two"))
		spec.Release(ctx, one, two)
	})

	It("is renewed for itself, and its end does not end the others", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, 300*time.Millisecond, readers, "a")
		two := spec.Obtain(ctx, locks, 300*time.Millisecond, &redislock.Options{Shared: []string{"a"}, Metadata: "two"}, "a")
		first, stop := one.KeepAlive(ctx)
		defer stop()
		second, stop := two.KeepAlive(ctx)
		defer stop()
		time.Sleep(700 * time.Millisecond)
		Expect(status(ctx).HolderCount).To(Equal(2))
		Expect(on.Client.ZRem(ctx, houseOfA, one.Token()).Val()).To(Equal(int64(1)))
		Eventually(first.Done()).Should(BeClosed())
		Expect(context.Cause(first)).To(MatchError(redislock.ErrLockNotHeld))
		time.Sleep(700 * time.Millisecond)
		Expect(second.Err()).NotTo(HaveOccurred())
		Expect(status(ctx)).To(And(HaveField("HolderCount", 1), HaveField("Metadata", "two")))
		stop()
		spec.Release(ctx, two)
	})

	It("is attached to as part of a mix", func(ctx SpecContext) {
		opt := &redislock.Options{Shared: []string{"a"}, Permits: map[string]int{"{a}c": 3}, Metadata: "me"}
		one := spec.Obtain(ctx, locks, time.Minute, opt, "{a}b", "a", "{a}c")
		spec.Obtain(ctx, locks, 100*time.Millisecond, readers, "a")
		found, err := locks.Attach(ctx, []string{"a", "{a}b", "{a}c"}, one.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Metadata()).To(Equal("me"))
		Expect(found.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "new"})).To(Succeed())
		Expect(one.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
		_, err = locks.Attach(ctx, []string{"a", "{a}b"}, "other")
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
		spec.Release(ctx, found)
	})

	Describe("in a Do", func() {
		nothing := func(context.Context) error { return nil }

		DescribeTable("covers an inner one with its limit or a larger one", func(ctx SpecContext, outer, inner *redislock.Options, works bool) {
			called := false
			err := locks.Do(ctx, []string{"a"}, time.Minute, outer, func(ctx context.Context) error {
				sent := spec.CountCalls(on.Client)
				err := locks.Do(ctx, []string{"a"}, time.Minute, inner, func(context.Context) error {
					called = true
					return nil
				})
				Expect(sent.Count()).To(BeZero())
				return err
			})
			Expect(called).To(Equal(works))
			if works {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(redislock.ErrInvalid))
			}
		},
			Entry("exclusive, exclusive", &redislock.Options{}, nil, true),
			Entry("exclusive, shared", nil, readers, true),
			Entry("exclusive, two permits", nil, permits(2), true),
			Entry("one permit, shared", permits(1), readers, true),
			Entry("two permits, three", permits(2), permits(3), true),
			Entry("two permits, shared", permits(2), readers, true),
			Entry("shared, shared", readers, readers, true),
			Entry("shared, two permits", readers, permits(2), false),
			Entry("shared, exclusive", readers, nil, false),
			Entry("shared, one permit", readers, permits(1), false),
			Entry("three permits, two", permits(3), permits(2), false),
			Entry("two permits, exclusive", permits(2), &redislock.Options{}, false),
		)

		DescribeTable("acquires the keys that the outer one lacks as they are named", func(ctx SpecContext, opt *redislock.Options, limit int) {
			Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(ctx context.Context) error {
				return locks.Do(ctx, []string{"a", "{a}b"}, time.Minute, opt, func(ctx context.Context) error {
					found, err := locks.Inspect(ctx, "{a}b")
					Expect(err).NotTo(HaveOccurred())
					if limit == 1 {
						Expect(found[0].HolderCount).To(BeZero())
					} else {
						Expect(found[0].Holders[0].Limit).To(Equal(limit))
					}
					return locks.Do(ctx, []string{"{a}b", "a"}, time.Minute, &redislock.Options{Shared: []string{"a", "{a}b"}}, nothing)
				})
			})).To(Succeed())
		},
			Entry("both shared", &redislock.Options{Shared: []string{"a", "{a}b"}}, 0),
			Entry("one shared", &redislock.Options{Shared: []string{"a"}}, 1),
			Entry("a permit for the covered one", &redislock.Options{Permits: map[string]int{"a": 1}}, 1),
			Entry("permits for both", &redislock.Options{Permits: map[string]int{"a": 1, "{a}b": 4}}, 4),
		)
	})
})

var _ = spec.DescribeFaulty("an obtain of a shared key that is executed late", func(on *spec.FaultyRedis) {
	for name, opt := range map[string]*redislock.Options{"a reader": readers, "a permit": pool, "a waiting reader": queued(readers)} {
		It("leaves no hold: "+name, func(ctx SpecContext) {
			if spec.Pipelined {
				Skip("the fault is one of a call that goes by itself")
			}
			locks := on.TimingOut(time.Second)
			other := redislock.New(on.Client)
			DeferCleanup(other.Close)
			reader := spec.Obtain(ctx, other, time.Minute, readers, "a")
			on.Broken("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond))
			_, err := locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "a", time.Minute, opt)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Eventually(func() int { return on.Executed("release") }).WithTimeout(5 * time.Second).Should(BeNumerically(">", 0))
			Eventually(func() int {
				status, err := other.Inspect(ctx, "a")
				Expect(err).NotTo(HaveOccurred())
				return status[0].HolderCount + 10*status[0].Waiters
			}).WithTimeout(5 * time.Second).Should(Equal(1))
			Expect(reader.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(reader.Release(ctx)).To(Succeed())
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
		})
	}
})

var _ = spec.DescribeForgetful("sharers under a guard", func(on *spec.Forgetful) {
	const maxTTL = 10 * time.Second
	connect := func() *redislock.Client { return on.Connect(redislock.WithGuard(maxTTL, 0)) }

	for name, opts := range map[string][]*redislock.Options{
		"readers": {readers, readers, readers}, "three with permits for three": {permits(3), permits(3), permits(3)},
	} {
		It("come back together: "+name, func(ctx SpecContext) {
			on.Open(ctx, maxTTL, 0)
			locks := connect()
			var all []*redislock.Lock
			for _, opt := range opts {
				one := *opt
				one.Metadata = "me"
				all = append(all, spec.Obtain(ctx, locks, 5*time.Second, &one, "a"))
			}
			Expect(on.Own.FlushAll(ctx).Err()).To(Succeed())
			_, err := locks.Obtain(ctx, "a", time.Second, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			for i, lock := range all {
				Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
				_, err = locks.Obtain(ctx, "a", time.Second, nil) // a writer does not get in between
				Expect(err).To(MatchError(redislock.ErrNotObtained))
				status, err := locks.Inspect(ctx, "a")
				Expect(err).NotTo(HaveOccurred())
				Expect(status[0].HolderCount).To(Equal(i + 1))
				Expect(status[0].Metadata).To(Equal("me"))
			}
			for _, lock := range all {
				Expect(lock.Release(ctx)).To(Succeed())
			}
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})
	}

	It("beyond the limit do not come back", func(ctx SpecContext) {
		on.Open(ctx, maxTTL, 0)
		locks := connect()
		one := spec.Obtain(ctx, locks, 5*time.Second, pool, "a")
		two := spec.Obtain(ctx, locks, 5*time.Second, pool, "a")
		Expect(on.Own.ZRem(ctx, houseOfA, one.Token(), "limit "+one.Token()).Err()).To(Succeed())
		three := spec.Obtain(ctx, locks, 5*time.Second, pool, "a") // what one has lost is another's
		Expect(on.Own.FlushAll(ctx).Err()).To(Succeed())
		Expect(three.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		Expect(two.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		Expect(one.Refresh(ctx, 5*time.Second, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(two.Release(ctx)).To(Succeed())
		Expect(three.Release(ctx)).To(Succeed())
		Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
	})
})
