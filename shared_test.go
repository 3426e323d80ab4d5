package redislock_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

var (
	readers = &redislock.Options{Shared: []string{"a"}}
	pool    = &redislock.Options{Permits: map[string]int{"a": 2}}
)

// queued returns the options for a waiter in line.
func queued(opt *redislock.Options) *redislock.Options {
	some := *opt
	some.Queue = true
	return &some
}

var _ = spec.DescribeOnRedis("Keys that several may hold", func(on *spec.Redis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})

	It("are shared by readers, and exclude a writer", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		two := spec.Obtain(ctx, locks, time.Hour, readers, "a")
		spec.Refused(ctx, locks, nil, "a")
		spec.Release(ctx, one)
		spec.Refused(ctx, locks, nil, "a")
		spec.Release(ctx, two)
		writer := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		spec.Refused(ctx, locks, readers, "a")
		spec.Release(ctx, writer)
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("have as many holders as any of them allows", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, pool, "a")
		two := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Permits: map[string]int{"a": 3}}, "a")
		spec.Refused(ctx, locks, &redislock.Options{Permits: map[string]int{"a": 3}}, "a")
		spec.Refused(ctx, locks, readers, "a")
		spec.Release(ctx, one)
		three := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		four := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		spec.Refused(ctx, locks, readers, "a")
		spec.Release(ctx, two, three, four)
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("are part of one lock with exclusive ones, all or none", func(ctx SpecContext) {
		mix := &redislock.Options{Shared: []string{"{q}:catalog"}, Permits: map[string]int{"{q}:gpu": 1}, Metadata: "me"}
		one := spec.Obtain(ctx, locks, time.Minute, mix, "{q}:account", "{q}:catalog", "{q}:gpu")
		mix = &redislock.Options{Shared: []string{"{q}:catalog"}, Permits: map[string]int{"{q}:gpu": 2}}
		spec.Refused(ctx, locks, mix, "{q}:other", "{q}:catalog", "{q}:gpu")
		Expect(on.Client.Exists(ctx, "{q}:other").Val()).To(BeZero())
		spec.Release(ctx, one)
		two := spec.Obtain(ctx, locks, time.Minute, mix, "{q}:account", "{q}:catalog", "{q}:gpu")
		three := spec.Obtain(ctx, locks, time.Minute, mix, "{q}:other", "{q}:catalog", "{q}:gpu")
		spec.Release(ctx, two, three)
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("end for each holder by itself", func(ctx SpecContext) {
		short := spec.Obtain(ctx, locks, 100*time.Millisecond, readers, "a")
		long := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		Eventually(func() (time.Duration, error) { return short.TTL(ctx) }).WithTimeout(time.Second).Should(BeZero())
		Expect(short.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(long.TTL(ctx)).To(BeNumerically("~", time.Minute, 2*time.Second))
		Expect(short.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(long.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "new"})).To(Succeed())
		status, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].HolderCount).To(Equal(1))
		Expect(status[0].Holders).To(HaveLen(1))
		Expect(status[0].Metadata).To(Equal("new"))
		Expect(status[0].TTL).To(BeNumerically("~", time.Hour, 2*time.Second))
		spec.Release(ctx, long)
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("show all their holders", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Shared: []string{"a"}, Metadata: "one"}, "a")
		two := spec.Obtain(ctx, locks, time.Hour, &redislock.Options{Permits: map[string]int{"a": 3}, Metadata: "two"}, "a")
		status, err := locks.Inspect(ctx, "a", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[1]).To(Equal(redislock.Status{Key: "b"}))
		got := status[0]
		Expect(got.Token).To(Equal(two.Token()))
		Expect(got.HolderCount).To(Equal(2))
		Expect(got.Holders[0].TTL).To(BeNumerically("~", time.Hour, 2*time.Second))
		Expect(got.Holders[1].TTL).To(BeNumerically("~", time.Minute, 2*time.Second))
		got.Holders[0].TTL, got.Holders[1].TTL = 0, 0
		Expect(got.Holders).To(Equal([]redislock.Holder{
			{Token: two.Token(), Metadata: "two", Limit: 3}, {Token: one.Token(), Metadata: "one"},
		}))
		_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		Expect(err).To(MatchError(ContainSubstring("(two) and 1 more for")))
		attached, err := locks.Attach(ctx, []string{"a"}, one.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Metadata()).To(Equal("one"))
		Expect(attached.TTL(ctx)).To(BeNumerically("~", time.Minute, 2*time.Second))
		spec.Release(ctx, attached, two)
		Expect(one.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("are not locked alone by a token that shares them", func(ctx SpecContext) {
		mine := func(opt redislock.Options) *redislock.Options {
			opt.Token = "me"
			return &opt
		}
		shared := spec.Obtain(ctx, locks, time.Minute, mine(*readers), "a")
		spec.Refused(ctx, locks, mine(redislock.Options{}), "a")
		for _, opt := range []redislock.Options{{Queue: true}, {RetryStrategy: redislock.LinearBackoff(time.Millisecond)}} {
			_, err := locks.Obtain(ctx, "a", time.Minute, mine(opt))
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(err).To(MatchError(ContainSubstring(`the token me shares "a"`)))
		}
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).Should(BeZero())
		again := spec.Obtain(ctx, locks, time.Hour, mine(*pool), "a")
		status, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].HolderCount).To(Equal(1))
		Expect(status[0].Holders[0].Limit).To(Equal(2))
		spec.Release(ctx, shared)
		Expect(again.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		alone := spec.Obtain(ctx, locks, time.Minute, mine(redislock.Options{}), "a")
		spec.Obtain(ctx, locks, time.Minute, mine(*readers), "a")
		spec.Refused(ctx, locks, readers, "a")
		spec.Release(ctx, alone)
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty())
	})

	It("are handed on in line: readers together, a writer alone", func(ctx SpecContext) {
		writer := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		one := spec.StartWaiter(ctx, locks, time.Minute, queued(readers), "a")
		two := spec.StartWaiter(ctx, locks, time.Minute, queued(readers), "a")
		three := spec.StartWaiter(ctx, locks, time.Minute, queued(&redislock.Options{}), "a")
		four := spec.StartWaiter(ctx, locks, time.Minute, queued(readers), "a")
		spec.Release(ctx, writer)
		first, second := one.Granted(), two.Granted()
		Consistently(three.Done).WithTimeout(50 * time.Millisecond).ShouldNot(BeClosed())
		spec.Refused(ctx, locks, readers, "a")
		spec.Release(ctx, first)
		Consistently(three.Done).WithTimeout(50 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, second)
		third := three.Granted()
		Consistently(four.Done).WithTimeout(50 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, third)
		spec.Release(ctx, four.Granted())
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty())
	})
})
