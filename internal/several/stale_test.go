package several_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

// Schedules on fake time in which the library learns something that is out of date. Reviewers have found them. Before, each
// of them broke a promise.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "what was found out", func(on *spec.Quorum) {
	patient := func(opt *redis.Options) { opt.ReadTimeout = time.Minute }
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
		locks, other = twoClients(ctx, on, change)
		start = time.Now()
	}

	It("by a call that asked again does not replace a hold that was obtained since", func(ctx SpecContext) {
		connect(ctx, patient)
		refuseOnce(ctx, on)
		on.Break(2, ours("obtain", 1, passes), ours("obtain", 1, faultproxy.DelayReply(700*time.Millisecond)))
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll() // it forgets
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // and is repaired, for a second
		at(300 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.Break(1, noRequests)
		on.Break(2, noRequests)
		at(400 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		at(1600 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("of a server that has forgotten the keys, and answers a renewal last, is repaired at once", func(ctx SpecContext) {
		connect(ctx, nil)
		on.Break(2, faultproxy.Rule{Action: faultproxy.DelayReply(5 * time.Millisecond)}) // it is farther away
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
		faults := on.Break(2, ours("refresh", 0, replyLost), // no renewal is answered until the hold has lapsed
			ours("obtain", 0, faultproxy.DelayRequest(2*time.Second))) // the repair
		at(4200 * time.Millisecond)
		Expect(faults[0].Count()).To(BeNumerically(">", 0))
		Expect(faults[1].Count()).To(BeNumerically(">", 0))
		on.Heal(2)
		on.Break(1, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed()) // server 2 is not proven
		on.Heal(1)
		at(4500 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll() // it forgets, and another caller gets only this server
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", 4*time.Second).Err()).To(Succeed())
		at(6500 * time.Millisecond) // the repair was refused
		Expect(kept.Err()).NotTo(HaveOccurred())
		on.Break(1, noRequests)
		at(11 * time.Second)
		expectExclusive(ctx, other, lock)
	})

	It("by a repair does not hide that a call which asked again is stuck while the lock is released", func(ctx SpecContext) {
		connect(ctx, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		refuseOnce(ctx, on)
		obtains := on.Break(2, ours("obtain", 1, passes),
			ours("obtain", 1, faultproxy.DelayRequest(600*time.Millisecond)), ours("obtain", 0, passes))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins a repair
		at(200 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(obtains[2].Count()).To(Equal(1))
		at(250 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		at(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("does not revive a lapsed lock: by a call that asked again, and that a repair overtook", func(ctx SpecContext) {
		opt := &redislock.Options{FenceKey: "fence"}
		connect(ctx, patient)
		refuseOnce(ctx, on)
		obtains := on.Break(2,
			ours("obtain", 1, passes),
			ours("obtain", 1, faultproxy.DelayRequest(2700*time.Millisecond).And(faultproxy.DelayReply(3*time.Second))), // asks again
			ours("obtain", 0, passes),
			during("refresh", start, 700*time.Millisecond, 2900*time.Millisecond, requestLost))
		lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed()) // begins a repair, which is granted
		at(300 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		at(800 * time.Millisecond)
		Expect(obtains[2].Count()).To(Equal(1))
		on.Break(1, noRequests)
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
				on.Break(i, ours("obtain", 1, faultproxy.CutClient())) // it is executed, and sent again
			}
			lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
			time.Sleep(100 * time.Millisecond)                        // until it is everywhere
			Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // the servers know the script
			time.Sleep(100 * time.Millisecond)
			for i := range on.Servers {
				on.Break(i, noReplies)
			}
			_ = lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)
			on.Heal()
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
					locks, other := twoClients(ctx, on, nil)
					start := time.Now()
					at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
					on.Break(n-1, ours("obtain", 1, stuck(3*time.Second)))
					opt := &redislock.Options{FenceKey: "fence", Token: token}
					lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
					at(time.Second)
					Expect(on.Values(ctx, "a")).To(Equal(spec.Same(n, lock.Token())))
					if n > 1 {
						for _, i := range []int{1, 2} {
							on.Break(i, noRequests)
						}
						Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
					}
					at(2300 * time.Millisecond)
					Expect(lock.Until()).To(BeTemporally("<", time.Now()))
					later := spec.Obtain(ctx, other, time.Second, &redislock.Options{FenceKey: "fence"}, "a")
					Expect(later.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
					Expect(later.Release(ctx)).To(Succeed())
					on.Heal()
					at(3300 * time.Millisecond)
					Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
					Expect(lock.Until()).To(BeTemporally("<", time.Now()))
				},
				entries,
			)
		})
	}
}
