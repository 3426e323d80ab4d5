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

var _ = spec.DescribeQuorum("a server that forgets", func(on *spec.Quorum) {
	It("is mended by the next renewal, and nobody gets the lock meanwhile", func(ctx SpecContext) {
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

	It("is mended by a Refresh, with its new metadata", func(ctx SpecContext) {
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
})

var _ = spec.DescribeQuorum("a lock", func(on *spec.Quorum) {
	DescribeTable("is on all servers again, although another had left its key on one, and others try again and again",
		func(ctx SpecContext, opt *redislock.Options) {
			Expect(on.Servers[0].Own.Set(ctx, "a", "another's", 300*time.Millisecond).Err()).To(Succeed())
			lock := spec.Obtain(ctx, on.Connect(), 600*time.Millisecond, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			tries, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer cancel()
			_, err := on.Locks.Obtain(tries, "a", time.Minute, opt)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
			Expect(context.Cause(kept)).NotTo(HaveOccurred())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		},
		Entry("with a strategy", &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}),
		Entry("in line", &redislock.Options{Queue: true}),
	)
})

var _ = describeSchedules("a mend", func(on *schedule) {
	It("that is answered late does not undo a Refresh to a shorter ttl", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(1300*time.Millisecond)))
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the mend
		on.at(500 * time.Millisecond)
		Expect(lock.Refresh(ctx, 2*time.Second, nil)).To(Succeed())
		on.at(600 * time.Millisecond)
		on.Break(1, noRequests)
		on.Break(2, noRequests) // the reply to the mend is on its way
		on.at(time.Second)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		on.at(2600 * time.Millisecond)
		expectExclusive(ctx, on.other, lock)
	})

	It("has the values of the ctx that the lock was obtained with", func(ctx SpecContext) {
		tenant := spec.WithTenant(ctx, "t1:")
		for _, s := range on.Servers {
			s.Client.AddHook(&spec.PrefixHook{Prefix: spec.ByTenant})
		}
		lock, err := on.Locks.Obtain(tenant, "a", time.Second, nil)
		Expect(err).NotTo(HaveOccurred())
		_, stop := lock.KeepAlive(tenant)
		defer stop()
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.at(5 * time.Second)
		Expect(on.Values(ctx, "t1:a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
		Expect(lock.Release(tenant)).To(Succeed())
	})

	It("that is refused makes an earlier grant, to the lapsed lock, count no more", func(ctx SpecContext) {
		locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
		Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(2700*time.Millisecond)), // the mend
			during("refresh", on.start, 2920*time.Millisecond, time.Hour, faultproxy.DelayRequest(10*time.Second)))
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the mend
		on.at(300 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.Break(0, noReplies)
		on.Break(1, noReplies)
		on.at(400 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		on.Heal(0, 1)
		on.at(2910 * time.Millisecond) // the mend was granted to a lapsed lock
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()))) // nothing is given back before the lock ends
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", 100*time.Second).Err()).To(Succeed())
		on.at(2950 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		on.at(3300 * time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		on.at(3600 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("a")
		on.Break(1, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		on.at(6500 * time.Millisecond)
		expectExclusive(ctx, on.other, lock)
	})

	It("by a Refresh stores its metadata", func(ctx SpecContext) {
		for range 10 {
			lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
			on.Servers[2].Memory.Memory.FlushAll()
			Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "new"})).To(Succeed())
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token()+" new")))
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})

	It("that is refused takes the server out of the count", func(ctx SpecContext) {
		locks, other := twoClients(ctx, on.Quorum, patient)
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, 3*time.Second, nil, "a")
		on.at(50 * time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the servers know the script
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.at(100 * time.Millisecond)
		faults := on.Break(2, ours("refresh", 0, replyLost), // no renewal is answered until the hold has lapsed
			ours("obtain", 0, faultproxy.DelayRequest(2*time.Second))) // the mend
		on.at(4200 * time.Millisecond)
		Expect(faults[0].Count()).To(BeNumerically(">", 0))
		Expect(faults[1].Count()).To(BeNumerically(">", 0))
		on.Heal(2)
		on.Break(1, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed()) // server 2 is not proven
		on.Heal(1)
		on.at(4500 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll() // it forgets, and another caller gets only this server
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", 4*time.Second).Err()).To(Succeed())
		on.at(6500 * time.Millisecond) // the mend was refused
		Expect(kept.Err()).NotTo(HaveOccurred())
		on.Break(1, noRequests)
		on.at(11 * time.Second)
		expectExclusive(ctx, other, lock)
	})

	It("comes at once where a server has forgotten the keys, and answers a renewal last", func(ctx SpecContext) {
		locks, _ := twoClients(ctx, on.Quorum, nil)
		on.start = time.Now()
		on.Break(2, faultproxy.Rule{Action: faultproxy.DelayReply(5 * time.Millisecond)}) // it is farther away
		lock := spec.Obtain(ctx, locks, 30*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		on.at(11 * time.Second) // the first renewal was after 9.9 s
		on.Servers[2].Memory.Memory.FlushAll()
		on.at(22 * time.Second) // the next one was after 19.8 s
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	})

	It("comes soon after a server answers again that did not answer an earlier one", func(ctx SpecContext) {
		locks, _ := twoClients(ctx, on.Quorum, nil)
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, 30*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		on.at(time.Second)
		on.Servers[2].Kill()
		on.at(42 * time.Second) // a renewal of the others, after 39.6 s, has tried to mend it
		on.Servers[2].Restore()
		on.at(46 * time.Second) // before the next one, after 49.5 s
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	})

	It("does not hide that a call which asked again is stuck while the lock is released", func(ctx SpecContext) {
		locks, _ := twoClients(ctx, on.Quorum, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		on.start = time.Now()
		refuseOnce(ctx, on.Quorum)
		obtains := on.Break(2, ours("obtain", 1, passes),
			ours("obtain", 1, faultproxy.DelayRequest(600*time.Millisecond)), ours("obtain", 0, passes))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.at(100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins a mend
		on.at(200 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(obtains[2].Count()).To(Equal(1))
		on.at(250 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		on.at(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("counts, although an older request says late that the server had lost the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, 3*time.Second, nil, "a")
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
		on.Break(2, ours("refresh", 1, faultproxy.DelayReply(1500*time.Millisecond)))
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		_, stop := lock.KeepAlive(ctx)
		time.Sleep(1200 * time.Millisecond) // a renewal has found that the keys are gone, and they were acquired again
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		time.Sleep(400 * time.Millisecond)
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(time.Second).Should(BeEmpty())
	})

	It("is not replaced by what a call that asked again finds out late", func(ctx SpecContext) {
		locks, other := twoClients(ctx, on.Quorum, patient)
		on.start = time.Now()
		refuseOnce(ctx, on.Quorum)
		on.Break(2, ours("obtain", 1, passes), ours("obtain", 1, faultproxy.DelayReply(700*time.Millisecond)))
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll() // it forgets
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // and is mended, for a second
		on.at(300 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.Break(1, noRequests)
		on.Break(2, noRequests)
		on.at(400 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		on.at(1600 * time.Millisecond)
		expectExclusive(ctx, other, lock)
	})

	It("by a renewal is not taken away by the late answer to the call that asked a server again",
		func(ctx SpecContext) {
			locks, others := on.ConnectAs(spec.Ours, nil), on.ConnectAs(spec.Theirs, nil)
			Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			refuseOnce(ctx, on.Quorum)
			obtains := on.Break(2, ours("obtain", 1, passes),
				ours("obtain", 1, faultproxy.DelayReply(1500*time.Millisecond)), ours("obtain", 0, passes))
			lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
			_, stop := lock.KeepAlive(ctx)
			defer stop()
			time.Sleep(time.Until(start.Add(400 * time.Millisecond)))
			Expect(obtains[2].Count()).To(BeNumerically(">", 0), "a renewal has obtained it again")
			on.Break(1, noRequests)
			_, err := others.Obtain(spec.Within(ctx, 1500*time.Millisecond), "a", time.Minute,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)})
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		})

	It("is not taken away by the release of what joined the lapsed lock", func(ctx SpecContext) {
		start := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		var stalled atomic.Bool
		on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) { // it waits for a connection
			if time.Since(start) > 150*time.Millisecond && spec.Running("obtain")(spec.Words(cmd)) && stalled.CompareAndSwap(false, true) {
				at(20050 * time.Millisecond)
			}
		}})
		lock := spec.Obtain(ctx, on.Locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		Expect(on.Servers[2].Own.FlushAll(ctx).Err()).To(Succeed())
		on.Break(2, ours("release", 0, faultproxy.DelayRequest(300*time.Millisecond)))
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the mend
		at(20100 * time.Millisecond)
		Expect(stalled.Load()).To(BeTrue())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		at(25 * time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	})

	Describe("beside a Refresh to a shorter ttl, which", func() {
		// mended returns a lock for 10 s that one server misses until then.
		mended := func(ctx SpecContext, then time.Duration) *redislock.Lock {
			var stalled atomic.Bool
			on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) { // the mend waits for a connection
				if time.Since(on.start) > time.Second && spec.Running("obtain")(spec.Words(cmd)) {
					stalled.Store(true)
					on.at(then)
				}
			}})
			lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
			on.at(100 * time.Millisecond)
			on.Break(2, noRequests)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			on.at(1200 * time.Millisecond)
			on.Heal(2)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			Eventually(stalled.Load).Should(BeTrue())
			return lock
		}
		// late makes the refreshes that the server gets from now on arrive then.
		late := func(then time.Duration) {
			on.Break(2, ours("refresh", 0, faultproxy.DelayRequestUntil(on.start.Add(then))))
		}

		It("may be executed after the grant, and answered before it", func(ctx SpecContext) {
			lock := mended(ctx, 2*time.Second)
			on.at(1300 * time.Millisecond)
			late(2200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 500*time.Millisecond, nil)).To(Succeed())
			on.Break(2, ours("obtain", 1, faultproxy.DelayReply(500*time.Millisecond)))
			on.at(1400 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			on.at(1500 * time.Millisecond)
			on.Break(1, noRequests)
			Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			on.at(3 * time.Second)
			expectExclusive(ctx, on.other, lock)
		})

		It("may be sent after the grant, because it had to wait for its turn", func(ctx SpecContext) {
			lock := mended(ctx, 1700*time.Millisecond)
			on.at(1500 * time.Millisecond)
			late(2200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 8*time.Second, nil)).To(Succeed())
			on.at(1550 * time.Millisecond)
			Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
			on.at(1750 * time.Millisecond)
			late(2600 * time.Millisecond)
			on.at(2 * time.Second)
			on.Break(0, noRequests)
			on.Heal(2)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			on.at(6 * time.Second)
			expectExclusive(ctx, on.other, lock)
		})
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a mend", func(on *spec.Quorum) {
	It("comes where a hold had lapsed when a Refresh reached the server", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 3*time.Second, nil, "a")
		time.Sleep(100 * time.Millisecond)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for i := range 20 {
			on.Servers[0].Memory.SetLatency(spec.Always(time.Millisecond))
			time.Sleep(5 * time.Second)
			on.Break(2, noReplies)
			time.Sleep(2*time.Second + time.Duration(i)*75*time.Millisecond)
			on.Heal(2)
			Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
			time.Sleep(20 * time.Second)
			Expect(context.Cause(kept)).NotTo(HaveOccurred())
			Expect(has(ctx, on, 2)).To(Equal(int64(1)))
		}
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("that was stuck when the next one was answered leaves nothing", func(ctx SpecContext) {
		start := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequestUntil(start.Add(2500*time.Millisecond))))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		at(time.Second)
		on.Heal(2)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		at(2 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		at(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("leaves nothing of a call that asked again, and was stuck when the mend was answered", func(ctx SpecContext) {
		if spec.Pipelined {
			Skip("this is a schedule of calls that go by themselves")
		}
		locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "b").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		refuseOnce(ctx, on)
		on.Break(2, ours("obtain", 1, passes), ours("obtain", 1, faultproxy.DelayRequest(1200*time.Millisecond)))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		time.Sleep(500 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("leaves nothing of an obtain that was sent twice, and was stuck when the mend was answered", func(ctx SpecContext) {
		locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = 300 * time.Millisecond })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "b").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(2*time.Second)))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(500 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.Servers[2].Memory.Memory.FlushAll()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		time.Sleep(time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("in which a hook has panicked leaves nothing", func(ctx SpecContext) {
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Second).Err()).To(Succeed())
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		time.Sleep(2 * time.Second)
		on.Servers[2].Client.AddHook(&spec.AroundHook{After: func(cmd redis.Cmder) {
			if spec.Running("obtain")(spec.Words(cmd)) {
				panic("a hook")
			}
		}})
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("of a server that granted too late asks it with the token of the lock", func(ctx SpecContext) {
		on.Warm(ctx)
		on.Heal()
		on.Break(2, lateReplies(150*time.Millisecond))
		lock := spec.Obtain(ctx, on.Locks, 100*time.Millisecond, &redislock.Options{Metadata: "me"}, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(140 * time.Millisecond) // by now, what the server granted at first has expired
		on.Heal(2)
		held := func() string { return on.Servers[2].Own.Get(ctx, "a").Val() }
		Eventually(held).WithPolling(time.Millisecond).ShouldNot(BeEmpty())
		Consistently(held).WithTimeout(1500 * time.Millisecond).WithPolling(time.Millisecond).Should(Equal(lock.Token() + " me"))
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
	})
})
