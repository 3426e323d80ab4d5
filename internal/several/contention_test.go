package several_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("many callers", func(on *spec.Quorum) {
	// contend lets 16 callers of three Clients take and release one key, three times each.
	contend := func(ctx context.Context, opt *redislock.Options, hold func(*redislock.Lock)) {
		clients := []*redislock.Client{on.Locks, on.Connect(), on.Connect()}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var wait sync.WaitGroup
		for i := range 16 {
			wait.Go(func() {
				defer GinkgoRecover()
				for range 3 {
					lock, err := clients[i%len(clients)].Obtain(limited, "a", 10*time.Second, opt)
					Expect(err).NotTo(HaveOccurred())
					hold(lock)
					Expect(lock.Release(ctx)).To(Succeed())
				}
			})
		}
		wait.Wait()
	}

	It("of one key take turns, with a line and without, and their fencing tokens rise", func(ctx SpecContext) {
		for _, opt := range []*redislock.Options{
			{Queue: true, FenceKey: "fence"},
			{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond), FenceKey: "fence"},
		} {
			var mu sync.Mutex // protects what follows
			var last int64
			holders, grants := 0, 0
			contend(ctx, opt, func(lock *redislock.Lock) {
				mu.Lock()
				holders++
				grants++
				Expect(holders).To(Equal(1))
				Expect(lock.FenceToken()).To(BeNumerically(">", last))
				last = lock.FenceToken()
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				holders--
				mu.Unlock()
			})
			Expect(grants).To(Equal(16 * 3))
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
		}
	})

	It("of one key poll on when the servers that answer split their votes", func(ctx SpecContext) {
		on.Warm(ctx)
		on.Fail(on.Spare(), (*spec.Server).Hang)
		opt := &redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}
		contend(ctx, opt, func(*redislock.Lock) { time.Sleep(time.Millisecond) })
		on.Fail(on.Spare(), (*spec.Server).Restore)
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("that poll outlast a moment in which too few servers answer", func(ctx SpecContext) {
		on.Warm(ctx)
		on.Fail(on.Spare()+1, (*spec.Server).Hang)
		limited := spec.Within(ctx, 30*time.Second)
		done := make(chan error)
		go func() {
			defer GinkgoRecover()
			lock, err := on.Locks.Obtain(limited, "a", time.Minute,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)})
			if err == nil {
				err = lock.Release(ctx)
			}
			done <- err
		}()
		Consistently(done).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
		on.Fail(on.Spare()+1, (*spec.Server).Restore)
		Eventually(done).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("ask a hung server once in a while, however many they are", func(ctx SpecContext) {
		for range 20 { // some of them find the key held, and ask those servers once more
			var wait sync.WaitGroup
			for range 4 {
				wait.Go(func() {
					defer GinkgoRecover()
					lock, err := on.Locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Queue: true})
					Expect(err).NotTo(HaveOccurred())
					Expect(lock.Release(ctx)).To(Succeed())
				})
			}
			wait.Wait()
		}
		on.Servers[0].Hang()
		pairs := func(n int) {
			for range n {
				lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "b")
				Expect(lock.Release(ctx)).To(Succeed())
			}
		}
		for found := time.Now().Add(500 * time.Millisecond); time.Now().Before(found); { // then it counts as absent
			pairs(3)
			time.Sleep(10 * time.Millisecond) // or fake time would hardly pass
		}
		before := runtime.NumGoroutine() // each call that is under way has one
		pairs(150)
		Expect(runtime.NumGoroutine() - before).To(BeNumerically("<", 100))
	})

	It("in line try once in a while when some servers hang, however many they are", func(ctx SpecContext) {
		on.Warm(ctx)
		held := spec.Obtain(ctx, on.Connect(), time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), held.Token())))
		var mu sync.Mutex // protects most
		most := 0
		locks := on.Connect(redislock.WithTracer(&redislock.Tracer{ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, end.Tries)
		}}))
		limited, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				defer GinkgoRecover()
				_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
				Expect(err).To(MatchError(context.DeadlineExceeded))
			})
		}
		time.Sleep(500 * time.Millisecond) // all stand in all lines
		on.Fail(on.Spare(), (*spec.Server).Hang)
		wait.Wait()
		on.Fail(on.Spare(), (*spec.Server).Restore)
		Expect(most).To(BeNumerically("<", 20)) // about one a second
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("in line try once in a while when servers that hang send messages", func(ctx SpecContext) {
		for _, hanging := range []int{1, on.Spare() + 1} {
			held := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), held.Token())))
			const many = 8
			tries := make(chan int, many)
			locks := on.Connect(redislock.WithTracer(&redislock.Tracer{
				ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries <- end.Tries },
			}))
			limited := spec.Within(ctx, 3*time.Second)
			for range many {
				go func() {
					defer GinkgoRecover()
					_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
					Expect(err).To(MatchError(context.DeadlineExceeded))
				}()
			}
			servers := on.Servers[:hanging]
			for _, s := range servers {
				Eventually(func() []string { return spec.Line(ctx, s.Own, "a") }).Should(HaveLen(many))
				spec.AwaitSubscriptions(ctx, s.Own, "a")
			}
			hang, obtains := make(chan struct{}), spec.Running("obtain")
			for _, s := range servers { // calls hang, and messages arrive
				s.Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
					if obtains(spec.Words(cmd)) {
						<-hang
					}
				}})
			}
			time.Sleep(1500 * time.Millisecond) // until some calls hang, and no more are sent
			for _, s := range servers {
				for _, id := range spec.Line(ctx, s.Own, "a") {
					name, number, _ := strings.Cut(id, "/")
					Expect(s.Own.Publish(ctx, spec.Inboxes+name, number).Val()).To(BeNumerically(">", 0))
				}
			}
			for range many {
				Eventually(tries).WithTimeout(10 * time.Second).Should(Receive(BeNumerically("<", 15))) // about one a second
			}
			close(hang)
			Expect(locks.Close()).To(Succeed())
			Expect(held.Release(ctx)).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
		}
	})

	It("in line try once in a while when one server would grant and the others refuse", func(ctx SpecContext) {
		held := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), held.Token())))
		tries := 0
		locks := on.Connect(redislock.WithTracer(&redislock.Tracer{
			ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
		}))
		ended := make(chan error)
		go func() {
			_, err := locks.Obtain(spec.Within(ctx, 4*time.Second), "a", time.Minute, &redislock.Options{Queue: true})
			ended <- err
		}()
		time.Sleep(500 * time.Millisecond)
		Expect(on.Servers[0].Own.Del(ctx, "a").Err()).To(Succeed())
		Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(MatchError(context.DeadlineExceeded)))
		Expect(tries).To(BeNumerically("<", 12)) // about one a second
		Expect(held.Release(ctx)).To(Succeed())
	})

	for _, script := range []string{"obtain", "release"} {
		It("leave nothing behind when the process ends right after Close, and a server gets its "+script+" late", func(ctx SpecContext) {
			on.Warm(ctx)
			late := on.Servers[0].Client
			var answered atomic.Bool
			matches := spec.Running(script)
			lateness := &spec.AroundHook{Before: func(cmd redis.Cmder) {
				if matches(spec.Words(cmd)) {
					time.Sleep(150 * time.Millisecond)
				}
			}, After: func(cmd redis.Cmder) {
				if matches(spec.Words(cmd)) {
					answered.Store(true)
				}
			}}
			if script == "obtain" {
				late.AddHook(lateness)
			}
			lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
			if script == "release" {
				Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
				late.AddHook(lateness)
			}
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(on.Locks.Close()).To(Succeed())
			Expect(answered.Load()).To(BeTrue())
			Expect(on.LeftKeys(ctx)).To(BeEmpty())
			Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(500 * time.Millisecond).Should(BeEmpty())
		})
	}

	It("can be stopped by Close in the middle of everything", func(ctx SpecContext) {
		held := spec.Obtain(ctx, on.Connect(), time.Minute, nil, "a")
		on.Servers[0].Hang()
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				defer GinkgoRecover()
				opt := &redislock.Options{Queue: i%2 == 0, RetryStrategy: redislock.LinearBackoff(time.Millisecond)}
				_, err := on.Locks.Obtain(ctx, "a", time.Minute, opt)
				Expect(errors.Is(err, redislock.ErrClosed)).To(BeTrue(), "%v", err)
			})
		}
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		Expect(on.Locks.Close()).To(Succeed())
		wait.Wait()
		Expect(time.Since(start)).To(BeNumerically("<", 1500*time.Millisecond))
		on.Servers[0].Restore()
		_ = held.Release(ctx)
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})
})
