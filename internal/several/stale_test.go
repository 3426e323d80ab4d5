package several_test

import (
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/spec"
)

// Schedules on fake time in which the library learns something that is out of date. Reviewers have found them. Before, each
// of them broke a promise.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "what was found out", func(on *spec.Quorum) {
	patient := func(opt *redis.Options) { opt.ReadTimeout = time.Minute }
	cutOff := cutsOff(1)
	var start time.Time
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
	var locks, other *redislock.Client

	BeforeEach(func() {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) })
	})

	connect := func(ctx SpecContext, change func(*redis.Options)) {
		GinkgoHelper()
		locks, other = on.TwoClients(ctx, change)
		start = time.Now()
	}

	It("by a call that asked again does not replace a hold that was obtained since", func(ctx SpecContext) {
		connect(ctx, patient)
		on.RefuseOnce(ctx)
		var mu sync.Mutex // protects what follows
		var second *spec.Wire
		obtains := 0
		on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.Owner != 1:
			case !reply && spec.RunsScript(data, "obtain"):
				if obtains++; obtains == 2 {
					second = w
				}
			case reply && w == second:
				f.Delay, second = time.Until(start.Add(700*time.Millisecond)), nil
			}
		})
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll() // it forgets
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // and is repaired, for a second
		at(300 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.Fates(1, cutOff)
		on.Fates(2, cutOff)
		at(400 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		at(1600 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("of a server that has forgotten the keys, and answers a renewal last, is repaired at once", func(ctx SpecContext) {
		connect(ctx, nil)
		on.Fates(2, func(f *spec.Fate, _ *spec.Wire, reply bool, _ []byte) {
			if reply { // it is farther away
				f.Delay = 5 * time.Millisecond
			}
		})
		lock := spec.Obtain(ctx, locks, 30*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		at(11 * time.Second) // the first renewal was after 9.9 s
		on.Servers[2].Memory.Memory.FlushAll()
		at(22 * time.Second) // the next one was after 19.8 s
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	})

	It("of a server does not count any more once that has refused a repair", func(ctx SpecContext) {
		connect(ctx, patient)
		lock := spec.Obtain(ctx, locks, 3*time.Second, nil, "a")
		at(50 * time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the servers know the script
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		at(100 * time.Millisecond)
		var mu sync.Mutex // protects refreshes
		refreshes := map[*spec.Wire]bool{}
		on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) { // no renewal is answered until the hold has lapsed
			mu.Lock()
			defer mu.Unlock()
			switch {
			case w.Owner != 1:
			case reply:
				f.Lost = refreshes[w]
			case spec.RunsScript(data, "refresh"):
				refreshes[w] = true
			case spec.RunsScript(data, "obtain"): // the repair
				f.Delay = 2 * time.Second
			}
		})
		at(4200 * time.Millisecond)
		on.Fates(2, nil)
		on.Fates(1, cutOff)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed()) // server 2 is not proven
		on.Fates(1, nil)
		at(4500 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll() // it forgets, and another caller gets only this server
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", 4*time.Second).Err()).To(Succeed())
		at(6500 * time.Millisecond) // the repair was refused
		Expect(kept.Err()).NotTo(HaveOccurred())
		on.Fates(1, cutOff)
		at(11 * time.Second)
		expectExclusive(ctx, other, lock)
	})

	It("by a repair does not hide that a call which asked again is stuck while the lock is released", func(ctx SpecContext) {
		connect(ctx, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		on.RefuseOnce(ctx)
		var obtains atomic.Int64
		on.Fates(2, func(f *spec.Fate, _ *spec.Wire, reply bool, data []byte) {
			if !reply && spec.RunsScript(data, "obtain") && obtains.Add(1) == 2 {
				f.Delay = 600 * time.Millisecond
			}
		})
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins a repair
		at(200 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(obtains.Load()).To(BeEquivalentTo(3))
		at(250 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		at(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("does not revive a lapsed lock: by a call that asked again, and that a repair overtook", func(ctx SpecContext) {
		opt := &redislock.Options{FenceKey: "fence"}
		connect(ctx, patient)
		on.RefuseOnce(ctx)
		var obtains atomic.Int32
		var second atomic.Pointer[spec.Wire]
		on.Fates(2, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			switch {
			case w.Owner != 1:
			case !reply && spec.RunsScript(data, "obtain"):
				if obtains.Add(1) == 2 { // asks again
					second.Store(w)
					f.Delay = 2700 * time.Millisecond
				}
			case reply && w == second.Load():
				f.Delay = 3 * time.Second
			case spec.RunsScript(data, "refresh"):
				f.Lost = time.Since(start) > 700*time.Millisecond && time.Since(start) < 2900*time.Millisecond
			}
		})
		lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed()) // begins a repair, which is granted
		at(300 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		at(800 * time.Millisecond)
		Expect(obtains.Load()).To(BeEquivalentTo(3))
		on.Fates(1, cutOff)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		at(2350 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		later := spec.Obtain(ctx, other, 300*time.Millisecond, opt, "a")
		Expect(later.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(later.Release(ctx)).To(Succeed())
		at(2950 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal([]string{lock.Token(), "", lock.Token()}))
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 5*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("does not revive a lapsed lock whose obtain was sent twice at each server, and is refused as documented",
		func(ctx SpecContext) {
			connect(ctx, nil)
			for i := range on.Servers {
				var once sync.Once
				on.Fates(i, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
					if w.Owner == 1 && !reply && spec.RunsScript(data, "obtain") {
						once.Do(func() { f.Cut = true }) // it is executed, and sent again
					}
				})
			}
			lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
			time.Sleep(100 * time.Millisecond)                        // until it is everywhere
			Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // the servers know the script
			time.Sleep(100 * time.Millisecond)
			for i := range on.Servers {
				on.Fates(i, func(f *spec.Fate, w *spec.Wire, reply bool, _ []byte) { f.Lost = w.Owner == 1 && reply })
			}
			_ = lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)
			for i := range on.Servers {
				on.Fates(i, nil)
			}
			time.Sleep(2 * time.Second)
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()))) // nobody else ever had it
			Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(MatchError(redislock.ErrNotObtained))
			Expect(lock.Release(ctx)).To(Succeed())
		})

	It("of a server that did not answer a repair is found out again soon after it answers", func(ctx SpecContext) {
		connect(ctx, nil)
		lock := spec.Obtain(ctx, locks, 30*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		at(time.Second)
		on.Servers[2].Kill()
		at(42 * time.Second) // a renewal of the others, after 39.6 s, has tried to repair it
		on.Servers[2].Restore()
		at(46 * time.Second) // before the next one, after 49.5 s
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	})
})

func init() {
	for _, n := range []int{1, 3} {
		entries := []TableEntry{Entry("with a random token", "")}
		if n == 1 {
			entries = append(entries, Entry("with a custom one", "mine"))
		}
		spec.DescribeQuorumOf(spec.InMemory, n, "a lapsed lock", func(on *spec.Quorum) {
			DescribeTable("is not revived by keys that its own obtain has taken after another holder",
				func(ctx SpecContext, token string) {
					if spec.Together {
						Skip("this is a schedule of calls that go by themselves")
					}
					DeferCleanup(func() { time.Sleep(20 * time.Second) })
					locks, other := on.TwoClients(ctx, nil)
					start := time.Now()
					at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
					var sent atomic.Bool
					on.Fates(n-1, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
						if w.Owner == 1 && !reply && spec.RunsScript(data, "obtain") && sent.CompareAndSwap(false, true) {
							f.Cut, f.Delay = true, 3*time.Second
						}
					})
					opt := &redislock.Options{FenceKey: "fence", Token: token}
					lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
					at(time.Second)
					Expect(on.Values(ctx, "a")).To(Equal(spec.Same(n, lock.Token())))
					if n > 1 {
						for _, i := range []int{1, 2} {
							on.Fates(i, cutsOff(1))
						}
						Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
					}
					at(2300 * time.Millisecond)
					Expect(lock.Until()).To(BeTemporally("<", time.Now()))
					later := spec.Obtain(ctx, other, time.Second, &redislock.Options{FenceKey: "fence"}, "a")
					Expect(later.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
					Expect(later.Release(ctx)).To(Succeed())
					for i := range on.Servers {
						on.Fates(i, nil)
					}
					at(3300 * time.Millisecond)
					Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
					Expect(lock.Until()).To(BeTemporally("<", time.Now()))
				},
				entries,
			)
		})
	}
}
