package redislock_test

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
)

// Schedules on fake time that a review has found. Before, each of them ended with two valid holders, or with a handle that
// said what was not so.
var _ = describeQuorumOf(inMemory, 3, "of the schedules of a review,", func(on *quorum) {
	var start time.Time
	var other *redislock.Client // of another process
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
	cutOff := cutsOff(0)

	// slowly makes the first request of a script that the first client sends to a server be answered late.
	slowly := func(i int, script string, d time.Duration) {
		var mu sync.Mutex // protects the fields below
		var first *wire
		done := false
		on.fates(i, func(f *fate, w *wire, reply bool, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.owner != 0 || done:
			case !reply && first == nil && runs(data, script):
				first = w
			case reply && w == first:
				f.delay, done = d, true
			}
		})
	}

	// staysLapsed lets a lock of client 1 lapse, and another holder come and go after 2.3 s. It expects that a Refresh after
	// 3.3 s, when what was stuck has arrived, does not revive the lock.
	staysLapsed := func(ctx context.Context, lock *redislock.Lock, opt *redislock.Options) {
		GinkgoHelper()
		cutOff := cutsOff(1)
		on.fates(1, cutOff)
		on.fates(2, cutOff)
		Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		at(2300 * time.Millisecond)
		Expect(obtain(ctx, other, time.Second, opt, "a").Release(ctx)).To(Succeed())
		on.fates(1, nil)
		on.fates(2, nil)
		at(3300 * time.Millisecond)
		Expect(lock.Refresh(within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	}

	BeforeEach(func(ctx SpecContext) {
		if redislock.AlwaysTogether {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		other = on.connectAs(2, nil)
		Expect(obtain(ctx, on.locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		for i := range on.servers {
			on.fates(i, nil)
		}
		start = time.Now()
	})

	Describe("a lapsed lock", func() {
		It("is not revived by keys that it is giving back", func(ctx SpecContext) {
			var stalled atomic.Bool
			on.servers[2].client.AddHook(&around{before: func(cmd redis.Cmder) { // a repair waits for a connection
				if time.Since(start) > 150*time.Millisecond && running("obtain")(words(cmd)) && stalled.CompareAndSwap(false, true) {
					at(20050 * time.Millisecond)
				}
			}})
			lock := obtain(ctx, on.locks, 20*time.Second, nil, "a")
			at(100 * time.Millisecond)
			on.servers[2].memory.memory.FlushAll()
			at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
			on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
				if w.owner == 0 && !reply && runs(data, "release") {
					f.delay = 300 * time.Millisecond
				}
			})
			at(time.Second)
			on.fates(1, cutOff)
			at(20100 * time.Millisecond)
			Expect(stalled.Load()).To(BeTrue())
			Expect(lock.Refresh(within(ctx, 5*time.Second), 20*time.Second, nil)).NotTo(Succeed())
			at(26 * time.Second)
			expectExclusive(ctx, other, lock)
		})

		It("is not revived by keys that a late repair has taken after another holder", func(ctx SpecContext) {
			opt := &redislock.Options{FenceKey: "fence"}
			lock := obtain(ctx, on.locks, 1500*time.Millisecond, opt, "a")
			at(100 * time.Millisecond)
			on.servers[2].memory.memory.FlushAll()
			on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
				if w.owner == 0 && !reply && runs(data, "obtain") {
					f.delay = 2900 * time.Millisecond
				}
			})
			at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			at(time.Second)
			on.fates(1, cutOff)
			Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			at(1900 * time.Millisecond)
			Expect(obtain(ctx, other, time.Second, opt, "a").Release(ctx)).To(Succeed())
			on.fates(1, nil)
			at(3300 * time.Millisecond)
			Expect(lock.Refresh(within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		})

		It("is not revived by keys that a repair has taken after another holder: one that the obtain's late answer overtook",
			func(ctx SpecContext) {
				opt := &redislock.Options{FenceKey: "fence"}
				locks := on.connectAs(1, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
				Expect(obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
				start = time.Now()
				on.refuseOnce(ctx)
				var obtains atomic.Int32
				var second, third atomic.Pointer[wire]
				on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
					switch {
					case w.owner != 1:
					case !reply && runs(data, "obtain"):
						switch obtains.Add(1) {
						case 2:
							second.Store(w)
						case 3: // the repair
							third.Store(w)
							f.delay = 2700 * time.Millisecond
						}
					case reply && second.CompareAndSwap(w, nil):
						f.delay = 600 * time.Millisecond
					case reply && w == third.Load():
						f.delay = 3 * time.Second
					case runs(data, "refresh"):
						f.lost = time.Since(start) > 700*time.Millisecond && time.Since(start) < 2900*time.Millisecond
					}
				})
				lock := obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
				at(200 * time.Millisecond)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(800 * time.Millisecond)
				Expect(obtains.Load()).To(BeEquivalentTo(3))
				on.fates(1, cutsOff(1))
				Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
				at(2350 * time.Millisecond)
				Expect(obtain(ctx, other, 300*time.Millisecond, opt, "a").Release(ctx)).To(Succeed())
				at(2950 * time.Millisecond)
				Expect(on.values(ctx, "a")).To(Equal([]string{lock.Token(), "", lock.Token()}))
				Expect(lock.Refresh(within(ctx, 100*time.Millisecond), 5*time.Second, nil)).NotTo(Succeed())
				Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			})

		Describe("with a repair that is stuck, and another one that was granted,", func() {
			opt := &redislock.Options{FenceKey: "fence"}
			var lock *redislock.Lock
			cutOff := cutsOff(1)

			BeforeEach(func(ctx SpecContext) {
				locks := on.connectAs(1, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
				Expect(obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
				start = time.Now()
				lock = obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
				at(100 * time.Millisecond)
				on.servers[2].memory.memory.FlushAll()
				on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
					if w.owner == 1 && !reply && runs(data, "obtain") {
						f.delay = 2900 * time.Millisecond
					}
				})
				at(200 * time.Millisecond)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(600 * time.Millisecond)
				on.fates(2, nil)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(time.Second)
				Expect(on.values(ctx, "a")).To(Equal(same(3, lock.Token())))
			})

			It("is not revived by keys that the first one has taken after another holder", func(ctx SpecContext) {
				staysLapsed(ctx, lock, opt)
			})

			It("counts that server again once the others have revived it", func(ctx SpecContext) {
				for i := range on.servers {
					on.fates(i, func(f *fate, w *wire, reply bool, _ []byte) { f.lost = w.owner == 1 && reply })
				}
				Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
				at(2300 * time.Millisecond)
				Expect(lock.Until()).To(BeTemporally("<", time.Now()))
				for i := range on.servers {
					on.fates(i, nil)
				}
				Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
				at(3300 * time.Millisecond)
				on.fates(1, cutOff)
				Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
				Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
			})
		})
	})

	It("the late answer to a repair does not undo a Refresh to a shorter ttl", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, 10*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.servers[2].memory.memory.FlushAll()
		slowly(2, "obtain", 1300*time.Millisecond)
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the repair
		at(500 * time.Millisecond)
		Expect(lock.Refresh(ctx, 2*time.Second, nil)).To(Succeed())
		at(600 * time.Millisecond)
		on.fates(1, cutOff)
		on.fates(2, cutOff) // the reply to the repair is on its way
		at(time.Second)
		Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		at(2600 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	Describe("a Refresh to a shorter ttl, beside a repair", func() {
		// repaired returns a lock for 10 s that one server misses until then.
		repaired := func(ctx SpecContext, then time.Duration) *redislock.Lock {
			var stalled atomic.Bool
			on.servers[2].client.AddHook(&around{before: func(cmd redis.Cmder) { // the repair waits for a connection
				if time.Since(start) > time.Second && running("obtain")(words(cmd)) {
					stalled.Store(true)
					at(then)
				}
			}})
			lock := obtain(ctx, on.locks, time.Second, nil, "a")
			at(100 * time.Millisecond)
			on.fates(2, cutOff)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			at(1200 * time.Millisecond)
			on.fates(2, nil)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			Eventually(stalled.Load).Should(BeTrue())
			return lock
		}
		// late makes the refreshes that the server gets from now on arrive then.
		late := func(then time.Duration) {
			on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
				if w.owner == 0 && !reply && runs(data, "refresh") {
					f.delay = time.Until(start.Add(then))
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
			on.fates(1, cutOff)
			Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
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
			on.fates(0, cutOff)
			on.fates(2, nil)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			at(6 * time.Second)
			expectExclusive(ctx, other, lock)
		})
	})

	It("a Refresh that is answered late does not undo a newer one, of a new hold", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, 10*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.servers[2].memory.memory.FlushAll()
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
		Expect(on.servers[2].memory.memory.TTL("a")).To(BeNumerically(">", 18*time.Second))
	})

	It("a grant to a lapsed lock does not count when a repair is refused", func(ctx SpecContext) {
		locks := on.connectAs(1, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
		Expect(obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		start = time.Now()
		lock := obtain(ctx, locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.servers[2].memory.memory.FlushAll()
		var repair *wire
		on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
			switch {
			case w.owner != 1:
			case !reply && repair == nil && runs(data, "obtain"):
				repair = w
			case reply && w == repair && time.Since(start) < time.Second:
				f.delay = 2700 * time.Millisecond
			case !reply && runs(data, "refresh") && time.Since(start) > 2920*time.Millisecond:
				f.delay = 10 * time.Second
			}
		})
		lostAnswers := func(f *fate, w *wire, reply bool, _ []byte) { f.lost = w.owner == 1 && reply }
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
		at(300 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.fates(0, lostAnswers)
		on.fates(1, lostAnswers)
		at(400 * time.Millisecond)
		Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		on.fates(0, nil)
		on.fates(1, nil)
		at(2910 * time.Millisecond) // the repair was granted to a lapsed lock
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(on.values(ctx, "a")).To(Equal(same(3, lock.Token()))) // nothing is given back before the lock ends
		Expect(on.servers[2].own.Set(ctx, "a", "another", 100*time.Second).Err()).To(Succeed())
		at(2950 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		at(3300 * time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		at(3600 * time.Millisecond)
		on.servers[2].memory.memory.Del("a")
		on.fates(1, cutsOff(1))
		Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		at(6500 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("a Refresh does not succeed by keys that prove nothing", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, 10*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.servers[2].memory.memory.FlushAll()
		slowly(2, "obtain", time.Second)
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the repair
		at(400 * time.Millisecond)
		on.fates(1, cutOff)
		if lock.Refresh(within(ctx, 200*time.Millisecond), 20*time.Second, nil) == nil {
			Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
		}
	})

	It("a release that is sent twice takes away nothing that was obtained again", func(ctx SpecContext) {
		var mu sync.Mutex // protects the fields below
		var first *wire
		released := 0
		on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.owner != 1:
			case time.Since(start) > 10*time.Second: // cut off
				f.lost = !reply
			case !reply && runs(data, "obtain") && first == nil:
				first = w
			case reply && w == first && time.Since(start) < 9*time.Second:
				f.delay = 9950 * time.Millisecond
			case !reply && runs(data, "release"):
				if released++; released == 1 {
					f.cut, f.delay = true, 3*time.Second
				}
			}
		})
		lock := obtain(ctx, on.connectAs(1, func(opt *redis.Options) { opt.ReadTimeout = time.Minute }), 10*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		at(4 * time.Second)
		on.fates(1, cutsOff(1))
		at(13500 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("a repair has the values of the ctx that the lock was obtained with", func(ctx SpecContext) {
		tenant := withTenant(ctx, "t1:")
		for _, s := range on.servers {
			s.client.AddHook(&prefixing{prefix: byTenant})
		}
		lock, err := on.locks.Obtain(tenant, "a", time.Second, nil)
		Expect(err).NotTo(HaveOccurred())
		_, stop := lock.KeepAlive(tenant)
		defer stop()
		at(100 * time.Millisecond)
		on.servers[2].memory.memory.FlushAll()
		at(5 * time.Second)
		Expect(on.values(ctx, "t1:a")).To(Equal(same(3, lock.Token())))
		Expect(on.values(ctx, "a")).To(Equal(same(3, "")))
		Expect(lock.Release(tenant)).To(Succeed())
	})

	It("renewals end with the last KeepAlive, even if it began as another one ended", func(ctx SpecContext) {
		for i := range 30 {
			lock := obtain(ctx, on.locks, time.Second, nil, fmt.Sprint("key ", i))
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
		Expect(on.left(ctx)).To(BeEmpty())
	})

	It("a second Release reports no loss of what the first one has freed in the background", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		for _, s := range on.servers[1:] {
			s.memory.refuse()
		}
		_, _ = lock.TTL(ctx) // notices that the connections are broken
		Expect(lock.Release(ctx)).NotTo(Succeed())
		for _, s := range on.servers[1:] {
			s.memory.revive()
		}
		time.Sleep(10 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("a Release does not race with the release of what repairs may have left", func(ctx SpecContext) {
		for range 20 {
			lock := obtain(ctx, on.locks, 3*time.Second, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			time.Sleep(100 * time.Millisecond)
			for i := 1; i < 3; i++ { // one server after the other forgets, and cuts connections for a moment
				on.servers[i].memory.memory.FlushAll()
				on.fates(i, func(f *fate, _ *wire, reply bool, data []byte) { f.cut = !reply && runs(data, "obtain") })
				time.Sleep(1500 * time.Millisecond)
				on.fates(i, nil)
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
		lock := obtain(ctx, other, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		on.servers[2].memory.hang()
		attached, err := on.locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		on.servers[2].memory.resume()
		time.Sleep(time.Second)
		on.servers[1].memory.memory.FlushAll()
		Expect(attached.TTL(ctx)).To(BeNumerically("~", time.Minute, 5*time.Second))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
	})

	It("a Refresh tries again as a whole: its strategy is asked once a round", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		on.fail(2, func(s *oneServer) { s.memory.refuse() })
		strategy := &countdown{left: 3}
		err := lock.Refresh(ctx, time.Hour, &redislock.Options{RetryStrategy: strategy})
		Expect(err).To(MatchError(And(ContainSubstring(on.servers[0].name), ContainSubstring(on.servers[1].name))))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(strategy.left).To(Equal(-1))
		time.AfterFunc(10*time.Second, on.servers[0].memory.revive)
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Minute))
	})

	It("TTL shows a ttl that another handle has shortened", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		attached, err := other.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, time.Second, nil)).To(Succeed())
		at(200 * time.Millisecond)
		Expect(lock.TTL(ctx)).To(BeNumerically("<=", time.Second))
	})
})

var _ = describeQuorumOf(inMemory, 1, "of the schedules of a review,", func(on *quorum) {
	It("a Refresh that is answered late does not revive a lock that was found lost", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, 3*time.Second, nil, "a")
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the server knows the script
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		var first atomic.Pointer[wire]
		on.fates(0, func(f *fate, w *wire, reply bool, data []byte) {
			switch {
			case w.owner == 0 && !reply && runs(data, "refresh"):
				first.CompareAndSwap(nil, w)
			case reply && w == first.Load():
				f.delay = 1500 * time.Millisecond
			}
		})
		time.Sleep(100 * time.Millisecond)
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, 3*time.Second, nil) }()
		time.Sleep(100 * time.Millisecond)
		on.servers[0].memory.memory.Del("a")
		<-kept.Done()
		Eventually(refreshed).WithTimeout(5 * time.Second).Should(Receive(MatchError(redislock.ErrNotObtained)))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})
})

var _ = Describe("Of Rings on miniredis,", Label(inMemory, quorums), func() {
	ring := func() *redis.Ring {
		servers := map[string]*memoryServer{}
		addrs := map[string]string{}
		for i := range 3 {
			server := newMemoryServer()
			DeferCleanup(server.end)
			addrs[fmt.Sprint(i)] = fmt.Sprintf("127.0.0.1:%d", i)
			servers[addrs[fmt.Sprint(i)]] = server
		}
		ring := redis.NewRing(&redis.RingOptions{
			Addrs:              addrs,
			HeartbeatFrequency: time.Hour, // a Ring moves the keys of a shard that it believes to be down
			NewClient:          func(opt *redis.Options) *redis.Client { return servers[opt.Addr].connect(0, nil) },
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
		lock := obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "{a}:fence"}, "{a}:1", "{a}:2")
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})
})
