package redislock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var (
	waitingReader = queued(readers)
	waitingWriter = &redislock.Options{Queue: true}
	waitingPool   = queued(pool)
)

var _ = spec.DescribeOnRedis("In line for a key that several may hold,", func(on *spec.Redis) {
	var locks, other *redislock.Client // of two processes

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
		other = redislock.New(spec.Connect(&redis.Options{Addr: on.Addr, DB: on.Client.Options().DB, PoolSize: 50}))
		DeferCleanup(other.Close)
	})
	AfterEach(func(ctx SpecContext) { // no position and no hold stays behind
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(10 * time.Second).Should(BeEmpty())
	})
	stays := func(w *spec.Waiter) {
		GinkgoHelper()
		Consistently(w.Done).WithTimeout(60 * time.Millisecond).ShouldNot(BeClosed())
	}
	wait := func(ctx context.Context, opt *redislock.Options) *spec.Waiter {
		GinkgoHelper()
		return spec.StartWaiter(ctx, locks, time.Minute, opt, "a")
	}

	It("readers behind a writer go on when its ctx ends, and those with another limit stay", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		writer, two, three := wait(ctx, waitingWriter), wait(ctx, waitingReader), wait(ctx, waitingReader)
		four := wait(ctx, waitingPool)
		stays(two)
		writer.Cancel()
		Expect(writer.Over()).To(MatchError(context.Canceled))
		second, third := two.Granted(), three.Granted()
		stays(four)
		spec.Release(ctx, one, second)
		spec.Release(ctx, four.Granted(), third)
	})

	It("one who wants a permit goes on when one with another limit leaves", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, pool, "a")
		reader, two := wait(ctx, waitingWriter), wait(ctx, waitingPool)
		three := wait(ctx, waitingPool)
		stays(two)
		reader.Cancel()
		second := two.Granted()
		stays(three)
		spec.Release(ctx, one)
		spec.Release(ctx, second, three.Granted())
	})

	It("a reader behind readers that wait for another key goes on when the writer between them leaves", func(ctx SpecContext) {
		stuck := spec.Obtain(ctx, locks, time.Minute, nil, "{a}b")
		one := spec.StartWaiter(ctx, locks, time.Minute, waitingReader, "a", "{a}b")
		writer, two := wait(ctx, waitingWriter), wait(ctx, waitingReader)
		writer.Cancel()
		spec.Release(ctx, two.Granted(), stuck)
		spec.Release(ctx, one.Granted())
	})

	It("is first come, first served, whatever the limits", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		var all []*spec.Waiter
		opts := []*redislock.Options{
			waitingReader, waitingReader, waitingWriter, waitingPool, waitingPool, waitingPool, waitingWriter, waitingWriter, waitingReader,
		}
		for i, opt := range opts {
			all = append(all, spec.StartWaiter(ctx, []*redislock.Client{locks, other}[i%2], time.Minute, opt, "a"))
		}
		groups := [][]int{{0, 1}, {2}, {3, 4}, {5}, {6}, {7}, {8}} // 3 and 4 fill the pool
		holders := []*redislock.Lock{one}
		for _, group := range groups {
			spec.Release(ctx, holders...)
			holders = nil
			for _, i := range group {
				holders = append(holders, all[i].Granted())
			}
			if next := slices.Max(group) + 1; next < len(all) {
				stays(all[next])
			}
		}
		spec.Release(ctx, holders...)
	})

	It("the next permit follows each release", func(ctx SpecContext) {
		one, two := spec.Obtain(ctx, locks, time.Minute, pool, "a"), spec.Obtain(ctx, locks, time.Minute, pool, "a")
		for range 5 {
			next, after := wait(ctx, waitingPool), wait(ctx, waitingPool)
			spec.Release(ctx, one)
			granted := next.Granted()
			stays(after)
			spec.Release(ctx, two)
			one, two = granted, after.Granted()
		}
		spec.Release(ctx, one, two)
	})

	It("40 callers share 4 permits, and never more hold them", func(ctx SpecContext) {
		var inside, most atomic.Int32
		opt := &redislock.Options{Queue: true, Permits: map[string]int{"a": 4}}
		done := make(chan error, 40)
		start := time.Now()
		for i := range 40 {
			go func() {
				client := []*redislock.Client{locks, other}[i%2]
				lock, err := client.Obtain(spec.Within(ctx, time.Minute), "a", time.Minute, opt)
				if err == nil {
					n := inside.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(20 * time.Millisecond)
					inside.Add(-1)
					err = lock.Release(ctx)
				}
				done <- err
			}()
		}
		for range 40 {
			Expect(<-done).To(Succeed())
		}
		GinkgoWriter.Println("took", time.Since(start), "of an ideal 200 ms")
		Expect(most.Load()).To(Equal(int32(4)))
	})

	It("a thousand readers hold the key together after the writer", func(ctx SpecContext) {
		const n = 1000
		writer := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		all := make([]*redislock.Lock, n)
		var granted sync.WaitGroup
		errs := make(chan error, n)
		for i := range n {
			granted.Go(func() {
				var err error
				all[i], err = []*redislock.Client{locks, other}[i%2].Obtain(ctx, "a", time.Minute, waitingReader)
				errs <- err
			})
		}
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).WithTimeout(30 * time.Second).
			WithPolling(50 * time.Millisecond).Should(Equal(n))
		spec.Release(ctx, writer)
		start := time.Now()
		for range n {
			Expect(<-errs).To(Succeed())
		}
		GinkgoWriter.Println("all hold it after", time.Since(start))
		status, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].HolderCount).To(Equal(n))
		Expect(status[0].Holders).To(HaveLen(100))
		Expect(status[0].Waiters).To(BeZero())
		for _, lock := range all {
			granted.Go(func() { errs <- lock.Release(ctx) })
		}
		for range n {
			Expect(<-errs).To(Succeed())
		}
	})

	It("nobody starves among 64 readers and 4 writers", func(ctx SpecContext) {
		if on.Kind == spec.InMemory {
			Skip("so many scripts take the in-memory server minutes")
		}
		var readersIn, writersIn atomic.Int32
		until, limited := time.Now().Add(2*time.Second), spec.Within(ctx, time.Minute)
		const callers = 68
		done := make(chan error, callers)
		var mu sync.Mutex // protects longest
		longest := map[bool]time.Duration{}
		for i := range callers {
			go func() {
				opt, in := waitingReader, &readersIn
				alone := i%17 == 0
				if alone {
					opt, in = waitingWriter, &writersIn
				}
				var err error
				for err == nil && time.Now().Before(until) {
					began := time.Now()
					var lock *redislock.Lock
					lock, err = []*redislock.Client{locks, other}[i%2].Obtain(limited, "a", time.Minute, opt)
					if err != nil {
						break
					}
					mu.Lock()
					longest[alone] = max(longest[alone], time.Since(began))
					mu.Unlock()
					in.Add(1)
					if w := writersIn.Load(); w > 1 || w == 1 && (readersIn.Load() > 0 || !alone) {
						err = errors.New("a writer is not alone")
					}
					time.Sleep(2 * time.Millisecond)
					in.Add(-1)
					err = errors.Join(err, lock.Release(ctx))
					if alone {
						break
					}
				}
				done <- err
			}()
		}
		for range callers {
			Expect(<-done).To(Succeed())
		}
		GinkgoWriter.Println("longest wait of a reader", longest[false], "and of a writer", longest[true])
		Expect(longest[true]).To(BeNumerically("<", 5*time.Second))
	})

	for what, opt := range map[string]*redislock.Options{"a writer": waitingWriter, "a reader": waitingReader, "a permit": waitingPool} {
		It(what+" and those behind it go on when a holder has crashed", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, 500*time.Millisecond, &redislock.Options{Permits: map[string]int{"a": 1}}, "a") // never released
			first, second := wait(ctx, opt), wait(ctx, waitingReader)
			began := time.Now()
			lock := first.Granted()
			Expect(time.Since(began)).To(BeNumerically("<", 500*time.Millisecond+1500*time.Millisecond))
			if opt == waitingReader {
				spec.Release(ctx, second.Granted(), lock)
			} else {
				spec.Release(ctx, lock)
				spec.Release(ctx, second.Granted())
			}
		})

		It(what+" goes on when the last of two shared holds has ended by itself", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, 300*time.Millisecond, &redislock.Options{Permits: map[string]int{"a": 2}}, "a")
			spec.Obtain(ctx, locks, 600*time.Millisecond, readers, "a")
			first, second := wait(ctx, opt), wait(ctx, waitingWriter)
			began := time.Now()
			lock := first.Granted()
			Expect(time.Since(began)).To(BeNumerically("<", 600*time.Millisecond+1500*time.Millisecond))
			spec.Release(ctx, lock)
			spec.Release(ctx, second.Granted())
		})
	}

	It("a writer hears of it when the hold that ends last is released", func(ctx SpecContext) {
		long := spec.Obtain(ctx, locks, time.Hour, readers, "a")
		spec.Obtain(ctx, locks, 400*time.Millisecond, readers, "a") // crashes
		writer := wait(ctx, waitingWriter)
		spec.Release(ctx, long)
		began := time.Now()
		lock := writer.Granted()
		Expect(time.Since(began)).To(BeNumerically("<", 400*time.Millisecond+1500*time.Millisecond))
		spec.Release(ctx, lock)
	})

	It("they take their places again after FLUSHALL, and are served", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "a")
		one, two := wait(ctx, waitingReader), wait(ctx, waitingReader)
		writer, three := wait(ctx, waitingWriter), wait(ctx, waitingPool)
		Expect(on.Client.FlushAll(ctx).Err()).To(Succeed())
		began := time.Now()
		left := []*spec.Waiter{one, two, writer, three} // nobody knows their order any more
		for len(left) > 0 {
			for i, w := range left {
				select {
				case <-w.Done:
					spec.Release(ctx, w.Granted())
					left = slices.Delete(left, i, i+1)
				default:
					continue
				}
				break
			}
			Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
			time.Sleep(time.Millisecond)
		}
	})

	It("they are served although their subscription was cut", func(ctx SpecContext) {
		holder := spec.Obtain(ctx, other, time.Minute, nil, "a")
		proxy := on.NewProxy()
		through := on.ConnectThrough(proxy)
		var all []*spec.Waiter
		for _, opt := range []*redislock.Options{waitingReader, waitingReader, waitingPool} {
			all = append(all, spec.StartWaiter(ctx, through, time.Minute, opt, "a"))
		}
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		proxy.CutAll()
		spec.Release(ctx, holder)
		spec.Release(ctx, all[0].Granted(), all[1].Granted())
		spec.Release(ctx, all[2].Granted())
	})

	It("who leaves the line while others hold the key takes all its members along", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		waiters := []*spec.Waiter{wait(ctx, waitingReader), wait(ctx, waitingPool), wait(ctx, waitingWriter), wait(ctx, waitingReader)}
		line := spec.LineKey("a")
		Expect(on.Client.ZCard(ctx, line).Val()).To(Equal(int64(4 + 3 + 1)))
		waiters[1].Cancel()
		waiters[3].Cancel()
		Expect(waiters[1].Over()).To(MatchError(redislock.ErrNotObtained))
		Expect(waiters[3].Over()).To(MatchError(redislock.ErrNotObtained))
		Eventually(func() int64 { return on.Client.ZCard(ctx, line).Val() }).Should(Equal(int64(2 + 1 + 1)))
		spec.Release(ctx, one)
		spec.Release(ctx, waiters[0].Granted())
		spec.Release(ctx, waiters[2].Granted())
	})
})
