package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var (
	readers       = &redislock.Options{Shared: []string{"a"}}
	queuedReaders = &redislock.Options{Shared: []string{"a"}, Queue: true}
	queuedWriters = &redislock.Options{Queue: true}
)

var _ = spec.DescribeQuorum("keys that several may hold", func(on *spec.Quorum) {
	empty := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	}

	It("are shared by readers, and exclude a writer", func(ctx SpecContext) {
		one := spec.Obtain(ctx, on.Locks, time.Minute, readers, "a")
		two := spec.Obtain(ctx, on.Locks, time.Hour, readers, "a")
		spec.Refused(ctx, on.Locks, nil, "a")
		spec.Release(ctx, one)
		spec.Refused(ctx, on.Locks, nil, "a")
		spec.Release(ctx, two)
		var writer *redislock.Lock
		Eventually(func() (err error) { // the third server may release later
			writer, err = on.Locks.Obtain(ctx, "a", time.Minute, nil)
			return err
		}).Should(Succeed())
		spec.Refused(ctx, on.Locks, readers, "a")
		spec.Release(ctx, writer)
		empty(ctx)
	})

	It("stay shared where a minority has lost them, and exclude a writer while a majority has them", func(ctx SpecContext) {
		one := spec.Obtain(ctx, on.Locks, time.Minute, readers, "a")
		two := spec.Obtain(ctx, on.Locks, time.Minute, readers, "a")
		Eventually(func() (n int64) {
			for _, s := range on.Servers {
				n += s.Own.ZCard(ctx, "a{a}:redislock:house").Val()
			}
			return n
		}).Should(Equal(int64(2 * len(on.Servers))))
		for _, s := range on.Servers[:on.Spare()] {
			Expect(s.Own.FlushAll(ctx).Err()).To(Succeed())
		}
		spec.Refused(ctx, on.Locks, nil, "a")
		Expect(one.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(two.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "new"})).To(Succeed())
		for _, s := range on.Servers[:on.Spare()] { // both are mended
			Eventually(func() int64 { return s.Own.ZCount(ctx, "a{a}:redislock:house", "1", "+inf").Val() }).Should(Equal(int64(2)))
		}
		status, err := on.Locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].HolderCount).To(Equal(2))
		Expect(status[0].Holders).To(HaveLen(2))
		found := map[string]string{}
		for _, holder := range status[0].Holders {
			found[holder.Token] = holder.Metadata
			Expect(holder.Limit).To(BeZero())
			Expect(holder.TTL).To(BeNumerically("~", time.Minute, 5*time.Second))
		}
		Expect(found).To(Equal(map[string]string{one.Token(): "", two.Token(): "new"}))
		spec.Release(ctx, one, two)
		empty(ctx)
	})

	It("show only holders that a majority has", func(ctx SpecContext) {
		one := spec.Obtain(ctx, on.Locks, time.Minute, readers, "a")
		for _, s := range on.Servers[:on.Spare()] {
			stray := redislock.New(s.Own)
			DeferCleanup(stray.Close)
			spec.Obtain(ctx, stray, time.Hour, readers, "a")
		}
		status, err := on.Locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].HolderCount).To(Equal(1))
		Expect(status[0].Token).To(Equal(one.Token()))
		Expect(status[0].TTL).To(BeNumerically("<=", time.Minute))
		spec.Release(ctx, one)
	})

	It("take no permit above 1, and send nothing", func(ctx SpecContext) {
		sent := on.CountCalls(nil)
		for _, queue := range []bool{false, true} {
			opt := &redislock.Options{Permits: map[string]int{"a": 2}, Queue: queue}
			_, err := on.Locks.Obtain(ctx, "a", time.Minute, opt)
			Expect(err).To(MatchError(redislock.ErrInvalid))
			err = on.Locks.Do(ctx, []string{"a"}, time.Minute, opt, func(context.Context) error { return nil })
			Expect(err).To(MatchError(redislock.ErrInvalid))
		}
		Expect(sent.Count()).To(BeZero())
		one := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Permits: map[string]int{"a": 1}}, "a")
		spec.Refused(ctx, on.Locks, readers, "a")
		spec.Release(ctx, one)
	})

	It("have a higher fencing token with each grant", func(ctx SpecContext) {
		opt := &redislock.Options{Shared: []string{"a"}, FenceKey: "fence"}
		var last int64
		var all []*redislock.Lock
		for range 5 {
			lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
			Expect(lock.FenceToken()).To(BeNumerically(">", last))
			last, all = lock.FenceToken(), append(all, lock)
		}
		spec.Release(ctx, all...)
		empty(ctx)
	})

	It("are attached to by each holder", func(ctx SpecContext) {
		opt := &redislock.Options{Shared: []string{"a"}, Metadata: "me"}
		one := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a", "b")
		two := spec.Obtain(ctx, on.Locks, time.Hour, readers, "a")
		found, err := on.Locks.Attach(ctx, []string{"a", "b"}, one.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Metadata()).To(Equal("me"))
		Expect(found.TTL(ctx)).To(BeNumerically("~", time.Minute, 5*time.Second))
		Expect(found.Refresh(ctx, time.Hour, nil)).To(Succeed())
		spec.Release(ctx, found)
		_, err = on.Locks.Attach(ctx, []string{"a"}, one.Token())
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
		Expect(two.Refresh(ctx, time.Minute, nil)).To(Succeed())
		spec.Release(ctx, two)
		empty(ctx)
	})

	It("say who is in the way, and how many", func(ctx SpecContext) {
		one := spec.Obtain(ctx, on.Locks, time.Minute, readers, "a")
		two := spec.Obtain(ctx, on.Locks, time.Hour, &redislock.Options{Shared: []string{"a"}, Metadata: "two"}, "a")
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		why := spec.Refusal(err)
		Expect(why.Key).To(Equal("a"))
		Expect(why.Holders).To(Equal(2))
		Expect(why.Token).To(Equal(two.Token()))
		Expect(why.Metadata).To(Equal("two"))
		spec.Release(ctx, one, two)
		empty(ctx)
	})

	It("are handed on in line: readers together, a writer alone", func(ctx SpecContext) {
		writer := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		one := spec.StartWaiter(ctx, on.Locks, time.Minute, queuedReaders, "a")
		two := spec.StartWaiter(ctx, on.Locks, time.Minute, queuedReaders, "a")
		three := spec.StartWaiter(ctx, on.Locks, time.Minute, queuedWriters, "a")
		four := spec.StartWaiter(ctx, on.Locks, time.Minute, queuedReaders, "a")
		spec.Release(ctx, writer)
		first, second := one.Granted(), two.Granted()
		Consistently(three.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		spec.Refused(ctx, on.Locks, readers, "a")
		spec.Release(ctx, first)
		Consistently(three.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, second)
		third := three.Granted()
		Consistently(four.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, third)
		spec.Release(ctx, four.Granted())
		empty(ctx)
	})

	It("do not make waiters wake each other while only a minority is free", func(ctx SpecContext) {
		for _, s := range on.Servers[on.Spare():] {
			Expect(s.Own.Set(ctx, "a", "a writer", time.Minute).Err()).To(Succeed())
		}
		var waiters []*spec.Waiter
		const readers = 24
		for range readers {
			waiters = append(waiters, spec.StartWaiter(ctx, on.Locks, time.Minute, queuedReaders, "a"))
		}
		calls := on.CountCalls(spec.Running("obtain"))
		time.Sleep(4 * time.Second)
		AddReportEntry("calls", calls.Count(), ReportEntryVisibilityFailureOrVerbose)
		Expect(calls.Count()).To(BeNumerically("<", 4*6*readers*len(on.Servers)), "six tries a second of each")
		for _, s := range on.Servers[on.Spare():] {
			Expect(s.Own.Del(ctx, "a").Err()).To(Succeed())
		}
		for _, w := range waiters {
			spec.Release(ctx, w.Granted())
		}
		empty(ctx)
	})

	It("let those behind go on when one in the middle leaves", func(ctx SpecContext) {
		reader := spec.Obtain(ctx, on.Locks, time.Minute, readers, "a")
		one := spec.StartWaiter(ctx, on.Locks, time.Minute, queuedWriters, "a")
		two := spec.StartWaiter(ctx, on.Locks, time.Minute, queuedReaders, "a")
		one.Cancel()
		Expect(one.Over()).To(MatchError(context.Canceled))
		spec.Release(ctx, two.Granted(), reader)
		empty(ctx)
	})

	It("are all served in line when readers and writers come and go", func(ctx SpecContext) {
		done := make(chan error)
		const callers, rounds = 8, 5
		for i := range callers {
			go func() {
				defer GinkgoRecover()
				var err error
				for range rounds {
					opt := queuedReaders
					if i%4 == 0 {
						opt = queuedWriters
					}
					var lock *redislock.Lock
					if lock, err = on.Locks.Obtain(spec.Within(ctx, time.Minute), "a", 10*time.Second, opt); err != nil {
						break
					}
					time.Sleep(2 * time.Millisecond)
					if err = lock.Release(ctx); err != nil {
						break
					}
				}
				done <- err
			}()
		}
		for range callers {
			Expect(<-done).To(Succeed())
		}
		empty(ctx)
	})

	It("are kept alive for each holder, and one holder's loss does not end the others", func(ctx SpecContext) {
		one := spec.Obtain(ctx, on.Locks, 600*time.Millisecond, readers, "a")
		two := spec.Obtain(ctx, on.Locks, 600*time.Millisecond, readers, "a")
		first, stop := one.KeepAlive(ctx)
		defer stop()
		second, stop := two.KeepAlive(ctx)
		defer stop()
		for _, s := range on.Servers {
			s.Own.ZRem(ctx, "a{a}:redislock:house", one.Token())
		}
		Eventually(first.Done()).WithTimeout(5 * time.Second).Should(BeClosed())
		time.Sleep(1500 * time.Millisecond)
		Expect(context.Cause(first)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(second.Err()).NotTo(HaveOccurred())
		spec.Refused(ctx, on.Locks, nil, "a")
		spec.Release(ctx, two)
		empty(ctx)
	})
})
