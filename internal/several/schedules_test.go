package several_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/spec"
)

// Schedules on fake time that a review has found. Before, each of them ended with two valid holders, or with a handle that
// said what was not so.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "of the schedules of a review,", func(on *spec.Quorum) {
	var start time.Time
	var other *redislock.Client // of another process
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
	cutOff := cutsOff(0)

	// slowly makes the first request of a script that the first client sends to a server be answered late.
	slowly := func(i int, script string, d time.Duration) {
		var mu sync.Mutex // protects the fields below
		var first *spec.Wire
		done := false
		on.Fates(i, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.Owner != 0 || done:
			case !reply && first == nil && spec.RunsScript(data, script):
				first = w
			case reply && w == first:
				f.Delay, done = d, true
			}
		})
	}

	// staysLapsed lets a lock of client 1 lapse, and another holder come and go after 2.3 s. It expects that a Refresh after
	// 3.3 s, when what was stuck has arrived, does not revive the lock.
	staysLapsed := func(ctx context.Context, lock *redislock.Lock, opt *redislock.Options) {
		GinkgoHelper()
		cutOff := cutsOff(1)
		on.Fates(1, cutOff)
		on.Fates(2, cutOff)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		at(2300 * time.Millisecond)
		Expect(spec.Obtain(ctx, other, time.Second, opt, "a").Release(ctx)).To(Succeed())
		on.Fates(1, nil)
		on.Fates(2, nil)
		at(3300 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	}

	BeforeEach(func(ctx SpecContext) {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		other = on.ConnectAs(2, nil)
		Expect(spec.Obtain(ctx, on.Locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		for i := range on.Servers {
			on.Fates(i, nil)
		}
		start = time.Now()
	})

	Describe("a lapsed lock", func() {
		It("is not revived by keys that it is giving back", func(ctx SpecContext) {
			var stalled atomic.Bool
			on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) { // a repair waits for a connection
				if time.Since(start) > 150*time.Millisecond && spec.Running("obtain")(spec.Words(cmd)) && stalled.CompareAndSwap(false, true) {
					at(20050 * time.Millisecond)
				}
			}})
			lock := spec.Obtain(ctx, on.Locks, 20*time.Second, nil, "a")
			at(100 * time.Millisecond)
			on.Servers[2].Memory.Memory.FlushAll()
			at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
			on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
				if w.Owner == 0 && !reply && spec.RunsScript(data, "release") {
					f.Delay = 300 * time.Millisecond
				}
			})
			at(time.Second)
			on.Fates(1, cutOff)
			at(20100 * time.Millisecond)
			Expect(stalled.Load()).To(BeTrue())
			Expect(lock.Refresh(spec.Within(ctx, 5*time.Second), 20*time.Second, nil)).NotTo(Succeed())
			at(26 * time.Second)
			expectExclusive(ctx, other, lock)
		})

		It("is not revived by keys that a late repair has taken after another holder", func(ctx SpecContext) {
			opt := &redislock.Options{FenceKey: "fence"}
			lock := spec.Obtain(ctx, on.Locks, 1500*time.Millisecond, opt, "a")
			at(100 * time.Millisecond)
			on.Servers[2].Memory.Memory.FlushAll()
			on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
				if w.Owner == 0 && !reply && spec.RunsScript(data, "obtain") {
					f.Delay = 2900 * time.Millisecond
				}
			})
			at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			at(time.Second)
			on.Fates(1, cutOff)
			Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			at(1900 * time.Millisecond)
			Expect(spec.Obtain(ctx, other, time.Second, opt, "a").Release(ctx)).To(Succeed())
			on.Fates(1, nil)
			at(3300 * time.Millisecond)
			Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		})

		It("is not revived by keys that a repair has taken after another holder: one that the obtain's late answer overtook",
			func(ctx SpecContext) {
				opt := &redislock.Options{FenceKey: "fence"}
				locks := on.ConnectAs(1, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
				Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
				start = time.Now()
				on.RefuseOnce(ctx)
				var obtains atomic.Int32
				var second, third atomic.Pointer[spec.Wire]
				on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
					switch {
					case w.Owner != 1:
					case !reply && spec.RunsScript(data, "obtain"):
						switch obtains.Add(1) {
						case 2:
							second.Store(w)
						case 3: // the repair
							third.Store(w)
							f.Delay = 2700 * time.Millisecond
						}
					case reply && second.CompareAndSwap(w, nil):
						f.Delay = 600 * time.Millisecond
					case reply && w == third.Load():
						f.Delay = 3 * time.Second
					case spec.RunsScript(data, "refresh"):
						f.Lost = time.Since(start) > 700*time.Millisecond && time.Since(start) < 2900*time.Millisecond
					}
				})
				lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
				at(200 * time.Millisecond)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(800 * time.Millisecond)
				Expect(obtains.Load()).To(BeEquivalentTo(3))
				on.Fates(1, cutsOff(1))
				Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
				at(2350 * time.Millisecond)
				Expect(spec.Obtain(ctx, other, 300*time.Millisecond, opt, "a").Release(ctx)).To(Succeed())
				at(2950 * time.Millisecond)
				Expect(on.Values(ctx, "a")).To(Equal([]string{lock.Token(), "", lock.Token()}))
				Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 5*time.Second, nil)).NotTo(Succeed())
				Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			})

		Describe("with a repair that is stuck, and another one that was granted,", func() {
			opt := &redislock.Options{FenceKey: "fence"}
			var lock *redislock.Lock
			cutOff := cutsOff(1)

			BeforeEach(func(ctx SpecContext) {
				locks := on.ConnectAs(1, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
				Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
				start = time.Now()
				lock = spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
				at(100 * time.Millisecond)
				on.Servers[2].Memory.Memory.FlushAll()
				on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
					if w.Owner == 1 && !reply && spec.RunsScript(data, "obtain") {
						f.Delay = 2900 * time.Millisecond
					}
				})
				at(200 * time.Millisecond)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(600 * time.Millisecond)
				on.Fates(2, nil)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(time.Second)
				Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
			})

			It("is not revived by keys that the first one has taken after another holder", func(ctx SpecContext) {
				staysLapsed(ctx, lock, opt)
			})

			It("counts that server again once the others have revived it", func(ctx SpecContext) {
				for i := range on.Servers {
					on.Fates(i, func(f *spec.Fate, w *spec.Wire, reply bool, _ []byte) { f.Lost = w.Owner == 1 && reply })
				}
				Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
				at(2300 * time.Millisecond)
				Expect(lock.Until()).To(BeTemporally("<", time.Now()))
				for i := range on.Servers {
					on.Fates(i, nil)
				}
				Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
				at(3300 * time.Millisecond)
				on.Fates(1, cutOff)
				Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
				Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
			})
		})
	})

	It("the late answer to a repair does not undo a Refresh to a shorter ttl", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		slowly(2, "obtain", 1300*time.Millisecond)
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the repair
		at(500 * time.Millisecond)
		Expect(lock.Refresh(ctx, 2*time.Second, nil)).To(Succeed())
		at(600 * time.Millisecond)
		on.Fates(1, cutOff)
		on.Fates(2, cutOff) // the reply to the repair is on its way
		at(time.Second)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		at(2600 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	Describe("a Refresh to a shorter ttl, beside a repair", func() {
		// repaired returns a lock for 10 s that one server misses until then.
		repaired := func(ctx SpecContext, then time.Duration) *redislock.Lock {
			var stalled atomic.Bool
			on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) { // the repair waits for a connection
				if time.Since(start) > time.Second && spec.Running("obtain")(spec.Words(cmd)) {
					stalled.Store(true)
					at(then)
				}
			}})
			lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
			at(100 * time.Millisecond)
			on.Fates(2, cutOff)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			at(1200 * time.Millisecond)
			on.Fates(2, nil)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			Eventually(stalled.Load).Should(BeTrue())
			return lock
		}
		// late makes the refreshes that the server gets from now on arrive then.
		late := func(then time.Duration) {
			on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
				if w.Owner == 0 && !reply && spec.RunsScript(data, "refresh") {
					f.Delay = time.Until(start.Add(then))
				}
			})
		}

		It("may be executed after the grant, and answered before it", func(ctx SpecContext) {
			lock := repaired(ctx, 2*time.Second)
			at(1300 * time.Millisecond)
			late(2200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 500*time.Millisecond, nil)).To(Succeed())
			slowly(2, "obtain", 500*time.Millisecond)
			at(1400 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			at(1500 * time.Millisecond)
			on.Fates(1, cutOff)
			Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			at(3 * time.Second)
			expectExclusive(ctx, other, lock)
		})

		It("may be sent after the grant, because it had to wait for its turn", func(ctx SpecContext) {
			lock := repaired(ctx, 1700*time.Millisecond)
			at(1500 * time.Millisecond)
			late(2200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 8*time.Second, nil)).To(Succeed())
			at(1550 * time.Millisecond)
			Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
			at(1750 * time.Millisecond)
			late(2600 * time.Millisecond)
			at(2 * time.Second)
			on.Fates(0, cutOff)
			on.Fates(2, nil)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			at(6 * time.Second)
			expectExclusive(ctx, other, lock)
		})
	})

	It("a Refresh that is answered late does not undo a newer one, of a new hold", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		slowly(2, "obtain", 400*time.Millisecond)
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the repair
		at(250 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // finds the keys that the repair has acquired
		at(300 * time.Millisecond)
		slowly(2, "refresh", 1200*time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		at(time.Second)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		at(2 * time.Second)
		Expect(on.Servers[2].Memory.Memory.TTL("a")).To(BeNumerically(">", 18*time.Second))
	})

	It("a grant to a lapsed lock does not count when a repair is refused", func(ctx SpecContext) {
		locks := on.ConnectAs(1, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
		Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		start = time.Now()
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		var repair *spec.Wire
		on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			switch {
			case w.Owner != 1:
			case !reply && repair == nil && spec.RunsScript(data, "obtain"):
				repair = w
			case reply && w == repair && time.Since(start) < time.Second:
				f.Delay = 2700 * time.Millisecond
			case !reply && spec.RunsScript(data, "refresh") && time.Since(start) > 2920*time.Millisecond:
				f.Delay = 10 * time.Second
			}
		})
		lostAnswers := func(f *spec.Fate, w *spec.Wire, reply bool, _ []byte) { f.Lost = w.Owner == 1 && reply }
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
		at(300 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.Fates(0, lostAnswers)
		on.Fates(1, lostAnswers)
		at(400 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		on.Fates(0, nil)
		on.Fates(1, nil)
		at(2910 * time.Millisecond) // the repair was granted to a lapsed lock
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()))) // nothing is given back before the lock ends
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", 100*time.Second).Err()).To(Succeed())
		at(2950 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		at(3300 * time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		at(3600 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("a")
		on.Fates(1, cutsOff(1))
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		at(6500 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("a Refresh does not succeed by keys that prove nothing", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		slowly(2, "obtain", time.Second)
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the repair
		at(400 * time.Millisecond)
		on.Fates(1, cutOff)
		if lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil) == nil {
			Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
		}
	})

	It("a release that is sent twice takes away nothing that was obtained again", func(ctx SpecContext) {
		var mu sync.Mutex // protects the fields below
		var first *spec.Wire
		released := 0
		on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.Owner != 1:
			case time.Since(start) > 10*time.Second: // cut off
				f.Lost = !reply
			case !reply && spec.RunsScript(data, "obtain") && first == nil:
				first = w
			case reply && w == first && time.Since(start) < 9*time.Second:
				f.Delay = 9950 * time.Millisecond
			case !reply && spec.RunsScript(data, "release"):
				if released++; released == 1 {
					f.Cut, f.Delay = true, 3*time.Second
				}
			}
		})
		lock := spec.Obtain(ctx, on.ConnectAs(1, func(opt *redis.Options) { opt.ReadTimeout = time.Minute }), 10*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		at(4 * time.Second)
		on.Fates(1, cutsOff(1))
		at(13500 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("a repair has the values of the ctx that the lock was obtained with", func(ctx SpecContext) {
		tenant := spec.WithTenant(ctx, "t1:")
		for _, s := range on.Servers {
			s.Client.AddHook(&spec.PrefixHook{Prefix: spec.ByTenant})
		}
		lock, err := on.Locks.Obtain(tenant, "a", time.Second, nil)
		Expect(err).NotTo(HaveOccurred())
		_, stop := lock.KeepAlive(tenant)
		defer stop()
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		at(5 * time.Second)
		Expect(on.Values(ctx, "t1:a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
		Expect(lock.Release(tenant)).To(Succeed())
	})

	It("renewals end with the last KeepAlive, even if it began as another one ended", func(ctx SpecContext) {
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

	It("a second Release reports no loss of what the first one has freed in the background", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		for _, s := range on.Servers[1:] {
			s.Memory.Refuse()
		}
		_, _ = lock.TTL(ctx) // notices that the connections are broken
		Expect(lock.Release(ctx)).NotTo(Succeed())
		for _, s := range on.Servers[1:] {
			s.Memory.Revive()
		}
		time.Sleep(10 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("a Release does not race with the release of what repairs may have left", func(ctx SpecContext) {
		for range 20 {
			lock := spec.Obtain(ctx, on.Locks, 3*time.Second, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			time.Sleep(100 * time.Millisecond)
			for i := 1; i < 3; i++ { // one server after the other forgets, and cuts connections for a moment
				on.Servers[i].Memory.Memory.FlushAll()
				on.Fates(i, func(f *spec.Fate, _ *spec.Wire, reply bool, data []byte) {
					f.Cut = !reply && spec.RunsScript(data, "obtain")
				})
				time.Sleep(1500 * time.Millisecond)
				on.Fates(i, nil)
				time.Sleep(3 * time.Second)
			}
			Expect(kept.Err()).NotTo(HaveOccurred())
			time.Sleep(time.Second)
			stop()
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(3 * time.Second)
		}
	})

	It("an attached lock asks a server that did not answer Attach", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, other, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Hang()
		attached, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		on.Servers[2].Memory.Resume()
		time.Sleep(time.Second)
		on.Servers[1].Memory.Memory.FlushAll()
		Expect(attached.TTL(ctx)).To(BeNumerically("~", time.Minute, 5*time.Second))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
	})

	It("a Refresh tries again as a whole: its strategy is asked once a round", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		on.Fail(2, func(s *spec.Server) { s.Memory.Refuse() })
		strategy := &spec.Countdown{Left: 3}
		err := lock.Refresh(ctx, time.Hour, &redislock.Options{RetryStrategy: strategy})
		Expect(err).To(MatchError(And(ContainSubstring(on.Servers[0].Name), ContainSubstring(on.Servers[1].Name))))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(strategy.Left).To(Equal(-1))
		time.AfterFunc(10*time.Second, on.Servers[0].Memory.Revive)
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Minute))
	})

	It("TTL shows a ttl that another handle has shortened", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		attached, err := other.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, time.Second, nil)).To(Succeed())
		at(200 * time.Millisecond)
		Expect(lock.TTL(ctx)).To(BeNumerically("<=", time.Second))
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 1, "of the schedules of a review,", func(on *spec.Quorum) {
	It("a Refresh that is answered late does not revive a lock that was found lost", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 3*time.Second, nil, "a")
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the server knows the script
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		var first atomic.Pointer[spec.Wire]
		on.Fates(0, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			switch {
			case w.Owner == 0 && !reply && spec.RunsScript(data, "refresh"):
				first.CompareAndSwap(nil, w)
			case reply && w == first.Load():
				f.Delay = 1500 * time.Millisecond
			}
		})
		time.Sleep(100 * time.Millisecond)
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, 3*time.Second, nil) }()
		time.Sleep(100 * time.Millisecond)
		on.Servers[0].Memory.Memory.Del("a")
		<-kept.Done()
		Eventually(refreshed).WithTimeout(5 * time.Second).Should(Receive(MatchError(redislock.ErrNotObtained)))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})
})

var _ = Describe("Of Rings on miniredis,", Label(spec.InMemory, spec.Quorums), func() {
	ring := func() *redis.Ring {
		servers := map[string]*spec.MemoryServer{}
		addrs := map[string]string{}
		for i := range 3 {
			server := spec.NewMemoryServer()
			DeferCleanup(server.End)
			addrs[fmt.Sprint(i)] = fmt.Sprintf("127.0.0.1:%d", i)
			servers[addrs[fmt.Sprint(i)]] = server
		}
		ring := redis.NewRing(&redis.RingOptions{
			Addrs:              addrs,
			HeartbeatFrequency: time.Hour, // a Ring moves the keys of a shard that it believes to be down
			NewClient:          func(opt *redis.Options) *redis.Client { return servers[opt.Addr].Connect(0, nil) },
		})
		DeferCleanup(ring.Close)
		return ring
	}

	It("a quorum locks several keys only if they have one hash tag", func(ctx SpecContext) {
		locks := redislock.NewQuorum([]redislock.RedisClient{ring(), ring(), ring()})
		DeferCleanup(locks.Close)
		_, err := locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{FenceKey: "fence"})
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Attach(ctx, []string{"a", "b"}, "token")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "{a}:fence"}, "{a}:1", "{a}:2")
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})
})
