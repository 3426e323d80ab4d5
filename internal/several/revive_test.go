package several_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = describeSchedules("a lapsed lock", func(on *schedule) {
	It("is not revived by keys that a late mend was to give back", func(ctx SpecContext) {
		var stalled atomic.Bool
		on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) { // a mend waits for a connection
			if time.Since(on.start) > 150*time.Millisecond && spec.Running("obtain")(spec.Words(cmd)) && stalled.CompareAndSwap(false, true) {
				on.at(20050 * time.Millisecond)
			}
		}})
		lock := spec.Obtain(ctx, on.Locks, 20*time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the mend
		on.Break(2, ours("release", 0, faultproxy.DelayRequest(300*time.Millisecond)))
		on.at(time.Second)
		on.Break(1, noRequests)
		on.at(20100 * time.Millisecond)
		Expect(stalled.Load()).To(BeTrue())
		Expect(lock.Refresh(spec.Within(ctx, 5*time.Second), 20*time.Second, nil)).NotTo(Succeed())
		on.at(26 * time.Second)
		expectExclusive(ctx, on.other, lock)
	})

	It("is not revived by keys that a late mend has taken after another holder", func(ctx SpecContext) {
		opt := &redislock.Options{FenceKey: "fence"}
		lock := spec.Obtain(ctx, on.Locks, 1500*time.Millisecond, opt, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(2900*time.Millisecond)))
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
		on.at(time.Second)
		on.Break(1, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		on.at(1900 * time.Millisecond)
		Expect(spec.Obtain(ctx, on.other, time.Second, opt, "a").Release(ctx)).To(Succeed())
		on.Heal(1)
		on.at(3300 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by keys that a mend has taken after another holder: one that the obtain's late answer overtook",
		func(ctx SpecContext) {
			opt := &redislock.Options{FenceKey: "fence"}
			locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
			Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
			on.start = time.Now()
			refuseOnce(ctx, on.Quorum)
			obtains := on.Break(2,
				ours("obtain", 1, passes),
				ours("obtain", 1, faultproxy.DelayReply(600*time.Millisecond)), // asks again
				ours("obtain", 1, faultproxy.DelayRequest(2700*time.Millisecond).And(faultproxy.DelayReply(3*time.Second))), // the mend
				ours("obtain", 0, passes),
				during("refresh", on.start, 700*time.Millisecond, 2900*time.Millisecond, requestLost))
			lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
			on.at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			on.at(800 * time.Millisecond)
			Expect(obtains[2].Count() + obtains[3].Count()).To(Equal(1))
			on.Break(1, noRequests)
			Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			on.at(2350 * time.Millisecond)
			Expect(spec.Obtain(ctx, on.other, 300*time.Millisecond, opt, "a").Release(ctx)).To(Succeed())
			on.at(2950 * time.Millisecond)
			Expect(on.Values(ctx, "a")).To(Equal([]string{lock.Token(), "", lock.Token()}))
			Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 5*time.Second, nil)).NotTo(Succeed())
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		})

	It("is not revived by keys that its obtain has taken after another holder: in a round that had failed", func(ctx SpecContext) {
		locks, other := twoClients(ctx, on.Quorum, func(opt *redis.Options) {
			opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1
		})
		Expect(spec.Obtain(ctx, other, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		on.start = time.Now()
		first := []*faultproxy.Fault{
			on.Break(0, ours("obtain", 1, stuck(5*time.Second)), noRequests)[0],
			on.Break(1, ours("obtain", 1, stuck(5*time.Second)), noRequests)[0],
		}
		time.AfterFunc(1500*time.Millisecond, func() { on.Heal(0, 1) })
		lock, err := locks.Obtain(spec.Within(ctx, 4*time.Second), "a", time.Second,
			&redislock.Options{Queue: true, FenceKey: "fence"})
		Expect(err).NotTo(HaveOccurred())
		Expect(first[0].Count() + first[1].Count()).To(Equal(2))
		on.at(3500 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		second := spec.Obtain(ctx, other, time.Second, &redislock.Options{FenceKey: "fence"}, "a")
		Expect(second.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		on.at(4 * time.Second)
		Expect(second.Release(ctx)).To(Succeed())
		on.at(5200 * time.Millisecond) // the requests that were stuck have acquired "a" for the lock
		Expect(lock.Refresh(ctx, time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by keys that a call which asked again has taken after another holder: one that a mend overtook", func(ctx SpecContext) {
		opt := &redislock.Options{FenceKey: "fence"}
		locks, other := twoClients(ctx, on.Quorum, patient)
		on.start = time.Now()
		refuseOnce(ctx, on.Quorum)
		obtains := on.Break(2,
			ours("obtain", 1, passes),
			ours("obtain", 1, faultproxy.DelayRequest(2700*time.Millisecond).And(faultproxy.DelayReply(3*time.Second))), // asks again
			ours("obtain", 0, passes),
			during("refresh", on.start, 700*time.Millisecond, 2900*time.Millisecond, requestLost))
		lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed()) // begins a mend, which is granted
		on.at(300 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.at(800 * time.Millisecond)
		Expect(obtains[2].Count()).To(Equal(1))
		on.Break(1, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		on.at(2350 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		later := spec.Obtain(ctx, other, 300*time.Millisecond, opt, "a")
		Expect(later.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(later.Release(ctx)).To(Succeed())
		on.at(2950 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal([]string{lock.Token(), "", lock.Token()}))
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 5*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived, and is refused as documented, if its obtain was sent twice at each server",
		func(ctx SpecContext) {
			locks, _ := twoClients(ctx, on.Quorum, nil)
			on.start = time.Now()
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

	Describe("with a mend that is stuck, and another one that was granted,", func() {
		opt := &redislock.Options{FenceKey: "fence"}
		var lock *redislock.Lock

		BeforeEach(func(ctx SpecContext) {
			locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
			Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
			on.start = time.Now()
			lock = spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
			on.at(100 * time.Millisecond)
			on.Servers[2].Memory.Memory.FlushAll()
			on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(2900*time.Millisecond)))
			on.at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			on.at(600 * time.Millisecond)
			on.Heal(2)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			on.at(time.Second)
			Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		})

		It("is not revived by keys that the first one has taken after another holder", func(ctx SpecContext) {
			staysLapsed(ctx, on, lock, opt)
		})

		It("counts that server again once the others have revived it", func(ctx SpecContext) {
			for i := range on.Servers {
				on.Break(i, noReplies)
			}
			Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
			on.at(2300 * time.Millisecond)
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			on.Heal()
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			on.at(3300 * time.Millisecond)
			on.Break(1, noRequests)
			Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
			Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
		})
	})
})

// staysLapsed lets a lock of ours lapse, and another holder come and go after 2.3 s. It expects that a Refresh after 3.3 s,
// when what was stuck has arrived, does not revive the lock.
func staysLapsed(ctx context.Context, on *schedule, lock *redislock.Lock, opt *redislock.Options) {
	GinkgoHelper()
	on.Break(1, noRequests)
	on.Break(2, noRequests)
	Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
	on.at(2300 * time.Millisecond)
	Expect(spec.Obtain(ctx, on.other, time.Second, opt, "a").Release(ctx)).To(Succeed())
	on.Heal(1, 2)
	on.at(3300 * time.Millisecond)
	Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
	Expect(lock.Until()).To(BeTemporally("<", time.Now()))
}

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a lapsed lock", func(on *spec.Quorum) {
	It("is not revived by a mend that arrives after the lapse", func(ctx SpecContext) {
		var stalls atomic.Bool
		start, obtains := time.Now(), spec.Running("obtain")
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) { // it waits for a connection
			if stalls.Load() && obtains(spec.Words(cmd)) {
				at(15800 * time.Millisecond)
			}
		}})
		lock := spec.Obtain(ctx, on.Locks, 9*time.Second, nil, "a")
		at(100 * time.Millisecond)
		Expect(on.Servers[2].Own.FlushAll(ctx).Err()).To(Succeed())
		stalls.Store(true)
		at(6 * time.Second)
		Expect(lock.Refresh(ctx, 9*time.Second, nil)).To(Succeed())
		at(6100 * time.Millisecond)
		on.Break(1, noRequests)
		at(10 * time.Second)
		Expect(lock.Refresh(ctx, 9*time.Second, nil)).NotTo(Succeed())
		at(15200 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(spec.Obtain(ctx, on.ConnectAs(spec.Theirs, nil), time.Minute, nil, "a").Release(ctx)).To(Succeed())
		at(16 * time.Second)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Heal(1)
		Expect(lock.Refresh(ctx, 9*time.Second, nil)).To(MatchError(redislock.ErrNotObtained))
	})
})

var _ = describeSchedules("a grant that comes when the lock would have lapsed", func(on *schedule) {
	It("is given back, although the obtain has ended long before", func(ctx SpecContext) {
		if spec.Pipelined {
			Skip("this is a schedule of calls that go by themselves")
		}
		locks, other := twoClients(ctx, on.Quorum, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
		held := spec.Obtain(ctx, other, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(9500*time.Millisecond).And(faultproxy.DelayReply(time.Second))),
			faultproxy.Rule{Client: spec.Ours, Action: faultproxy.DelayReply(time.Second)})
		_, err := locks.Obtain(spec.Within(ctx, 100*time.Millisecond), "a", 10*time.Second, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		time.Sleep(9600 * time.Millisecond)
		Expect(on.Values(ctx, "a")[2]).NotTo(BeEmpty(), "it was granted")
		on.Heal(2)
		time.Sleep(3 * time.Second) // its answer has come
		Expect(on.Values(ctx, "a")).To(Equal([]string{held.Token(), held.Token(), ""}))
	})
})

// A lock whose own obtain is sent twice, and arrives once more after another holder.
func init() {
	for _, n := range []int{1, 3} {
		entries := []TableEntry{Entry("with a random token", "")}
		if n == 1 {
			entries = append(entries, Entry("with a custom one", "mine"))
		}
		spec.DescribeQuorumOf(spec.InMemory, n, "a lapsed lock", func(on *spec.Quorum) {
			DescribeTable("is not revived by keys that its own obtain has taken after another holder",
				func(ctx SpecContext, token string) {
					if spec.Pipelined {
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
