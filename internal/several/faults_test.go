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

	"github.com/redislock/redislock/internal/spec"
)

var failures = map[string]func(*spec.Server){"hung": (*spec.Server).Hang, "dead": (*spec.Server).Kill}

var _ = spec.DescribeQuorum("a failure", func(on *spec.Quorum) {
	for what, how := range failures {
		Describe("of servers that are "+what, func() {
			It("costs nothing as long as a majority answers", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare(), how)
				start := time.Now()
				for range 100 {
					lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a", "b")
					Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
					Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
					_, err := on.Locks.Obtain(ctx, "b", time.Minute, nil)
					Expect(err).To(Equal(redislock.ErrNotObtained))
					Expect(lock.Release(ctx)).To(Succeed())
				}
				took := time.Since(start)
				AddReportEntry("100 locks", took.String(), ReportEntryVisibilityFailureOrVerbose)
				Expect(took).To(BeNumerically("<", spec.Bound(on.Kind, 2*time.Second, 5*time.Second))) // each wait for one of them would take 100 ms
			})

			It("is an error that names the servers if no majority answers, soon", func(ctx SpecContext) {
				for _, known := range []bool{false, true} {
					if known {
						on.Warm(ctx)
					}
					on.Fail(on.Spare()+1, how)
					for range 3 {
						start := time.Now()
						_, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
						Expect(time.Since(start)).To(BeNumerically("<", spec.Bound(on.Kind, 300*time.Millisecond, 500*time.Millisecond)), "%v %v", known, err)
						Expect(err).To(HaveOccurred())
						Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
						for i, s := range on.Servers {
							if i <= on.Spare() {
								Expect(err).To(MatchError(ContainSubstring(s.Name)))
							} else {
								Expect(err).NotTo(MatchError(ContainSubstring(s.Name)))
							}
						}
					}
					on.Fail(on.Spare()+1, (*spec.Server).Restore)
					Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
					Eventually(func() error { // they may be reached again only when a connection has timed out
						lock, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
						if err == nil {
							err = lock.Release(ctx)
						}
						return err
					}).WithTimeout(10 * time.Second).Should(Succeed())
				}
			})

			It("makes who waits in line wait on, until ctx ends, and say why", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare()+1, how)
				limited, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
				defer cancel()
				start := time.Now()
				tries := 0
				locks := on.Connect(redislock.WithTracer(&redislock.Tracer{
					ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
				}))
				_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
				Expect(tries).To(BeNumerically("<", 10)) // and does not ask the other servers again and again
				Expect(err).To(MatchError(context.DeadlineExceeded))
				Expect(err).To(MatchError(ContainSubstring(on.Servers[0].Name)))
				Expect(time.Since(start)).To(BeNumerically("~", 1500*time.Millisecond, 300*time.Millisecond))
			})

			It("is over for who waits in line when the servers are back", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare()+1, how)
				granted := make(chan error)
				go func() {
					lock, err := on.Locks.Obtain(spec.Within(ctx, time.Minute), "a", time.Minute, &redislock.Options{Queue: true})
					if err == nil {
						err = lock.Release(ctx)
					}
					granted <- err
				}()
				Consistently(granted).WithTimeout(time.Second).ShouldNot(Receive())
				on.Fail(on.Spare()+1, (*spec.Server).Restore)
				Eventually(granted).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
				Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
			})

			It("ends the first try in line if ctx has no deadline, but not at once", func(ctx SpecContext) {
				on.Warm(ctx)
				on.Fail(on.Spare()+1, how)
				start := time.Now()
				_, err := on.Locks.Obtain(context.WithoutCancel(ctx), "a", time.Minute, &redislock.Options{Queue: true})
				Expect(time.Since(start)).To(BeNumerically("~", 2500*time.Millisecond, spec.Bound(on.Kind, 600*time.Millisecond, time.Second)))
				Expect(err).To(MatchError(ContainSubstring(on.Servers[0].Name)))
				Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			})

			It("makes every method return when its ctx ends", func(ctx SpecContext) {
				lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
				on.Fail(on.Spare()+1, how)
				for _, method := range []struct {
					name string
					call func(context.Context) error
				}{
					{"TTL", func(ctx context.Context) error { _, err := lock.TTL(ctx); return err }},
					{"Inspect", func(ctx context.Context) error { _, err := on.Locks.Inspect(ctx, "a"); return err }},
					{"Line", func(ctx context.Context) error { _, err := on.Locks.Line(ctx, "a"); return err }},
					{"Attach", func(ctx context.Context) error { _, err := on.Locks.Attach(ctx, []string{"a"}, "t"); return err }},
					{"Refresh", func(ctx context.Context) error { return lock.Refresh(ctx, time.Minute, nil) }},
					{"Release", lock.Release}, // the last, for it gives the lock up
				} {
					start := time.Now()
					limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					err := method.call(limited)
					cancel()
					Expect(err).To(HaveOccurred(), method.name)
					Expect(err).NotTo(Or(MatchError(redislock.ErrLockNotHeld), MatchError(redislock.ErrNotObtained)), method.name)
					Expect(time.Since(start)).To(BeNumerically("<", 100*time.Millisecond+spec.Soon), method.name)
				}
			})
		})
	}

	It("never makes Attach say that a lock is not held that the others may hold", func(ctx SpecContext) {
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

	It("of one that hangs for ever holds up no method and no Attach", func(ctx SpecContext) {
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

	It("of one that forgets is repaired by the next renewal, and nobody gets the lock meanwhile", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 600*time.Millisecond, &redislock.Options{Metadata: "me", FenceKey: "fence"}, "a", "b")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me")))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for i := range on.Servers { // one after the other
			on.Servers[i].Restart()
			_, err := on.Locks.ObtainMulti(ctx, []string{"b", "c"}, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" me")))
			Eventually(func() (int64, error) { return on.Servers[i].Own.Get(ctx, "fence").Int64() }).
				Should(Equal(lock.FenceToken()))
		}
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
	})

	It("of one that forgets is repaired by a Refresh, with its new metadata", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "one"}, "a", "b")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" one")))
		on.Servers[1].Restart()
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "two"})).To(Succeed())
		Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" two")))
		Expect(on.Servers[1].Own.PTTL(ctx, "b").Val()).To(BeNumerically(">", 59*time.Minute))
		on.Servers[0].Restart()
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" two")))
	})

	It("is not what a forced release looks like: it is final", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 300*time.Millisecond, nil, "a", "b")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		for _, s := range on.Servers {
			s.Own.Del(ctx, "a", "b")
		}
		Eventually(kept.Done()).Should(BeClosed())
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(500 * time.Millisecond).Should(BeEmpty())
	})

	It("of too many names the keys that no majority has", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a", "b", "c")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		for _, s := range on.Servers[:on.Spare()+1] {
			Expect(s.Own.Del(ctx, "b").Err()).To(Succeed())
		}
		err := lock.Refresh(ctx, time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
		Expect(lock.TTL(ctx)).To(BeZero())
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
	})

	It("leaves nothing behind of an obtain that its caller gives up", func(ctx SpecContext) {
		on.Warm(ctx)
		for _, opt := range []*redislock.Options{
			nil, {Queue: true}, {RetryStrategy: redislock.LinearBackoff(time.Millisecond)},
		} {
			on.Fail(on.Spare()+1, (*spec.Server).Hang)
			_, err := on.Locks.Obtain(spec.Within(ctx, 20*time.Millisecond), "a", time.Minute, opt)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			on.Fail(on.Spare()+1, (*spec.Server).Restore)
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10*time.Second).Should(BeEmpty(), "%+v", opt)
		}
	})

	It("shows where the servers disagree", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		Expect(on.Servers[1].Own.Del(ctx, "a").Err()).To(Succeed())
		statuses, err := on.Locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].Token).To(Equal(lock.Token()))
		Expect(statuses[0].Places).To(HaveLen(len(on.Servers)))
		Expect(statuses[0].Places[1]).To(Equal(redislock.PlaceStatus{Server: on.Servers[1].Name}))
		Expect(statuses[0].Places[0].Token).To(Equal(lock.Token()))
	})
})

var _ = spec.DescribeQuorum("many callers", func(on *spec.Quorum) {
	// contend lets 16 callers of three Clients take and release one key, five times each.
	contend := func(ctx context.Context, opt *redislock.Options, hold func(*redislock.Lock)) {
		clients := []*redislock.Client{on.Locks, on.Connect(), on.Connect()}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var wait sync.WaitGroup
		for i := range 16 {
			wait.Go(func() {
				defer GinkgoRecover()
				for range 5 {
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
			Expect(grants).To(Equal(80))
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
		for range 50 { // some of them find the key held, and ask those servers once more
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
		pairs(300)
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

var _ = Describe("A quorum of two servers", Label(spec.InMemory), func() {
	It("needs both, mints fencing tokens, and names the one that hangs", func(ctx SpecContext) {
		on := &spec.Quorum{Kind: spec.InMemory}
		on.Begin(ctx, 2)
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a")
		Expect(lock.FenceToken()).To(BeNumerically(">", 0))
		Expect(lock.Release(ctx)).To(Succeed())
		on.Servers[1].Hang()
		start := time.Now()
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(time.Since(start)).To(BeNumerically("<", 300*time.Millisecond))
		Expect(err).To(MatchError(ContainSubstring(on.Servers[1].Name)))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
	})

	// As when this process stood still: its timer and the answers wait for it together.
	It("looks at the answers that are there when a server has been silent for too long", func(ctx SpecContext) {
		on := &spec.Quorum{Kind: spec.InMemory}
		on.Begin(ctx, 2)
		Expect(spec.Obtain(ctx, on.Locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		on.Servers[1].Hang()
		time.AfterFunc(101*time.Millisecond, on.Servers[1].Restore)
		Expect(spec.Obtain(ctx, on.Locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})
})
