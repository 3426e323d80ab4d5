package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// A lock that has lapsed may have been another's since, at a server that has forgotten. So nothing that it gained before the
// lapse counts any more.
var _ = describeSchedules("a lapsed lock", func(on *schedule) {
	DescribeTable("is not revived by a Refresh that one server confirms, and an old hold",
		func(ctx SpecContext, handle func(ctx context.Context, lock *redislock.Lock) *redislock.Lock) {
			lock := extended(ctx, on, func(lock *redislock.Lock) *redislock.Lock { return handle(ctx, lock) })
			on.at(1500 * time.Millisecond)
			on.Servers[1].Memory.Memory.FlushAll()
			second := spec.Obtain(ctx, on.other, 5*time.Second, nil, "a")
			on.Break(1, lateReplies(time.Second))
			Expect(lock.Refresh(spec.Within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			Expect(time.Now()).To(BeTemporally("<", second.Until()))
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		},
		Entry("through the handle of its obtain", func(_ context.Context, lock *redislock.Lock) *redislock.Lock { return lock }),
		Entry("through an attached handle", func(ctx context.Context, lock *redislock.Lock) *redislock.Lock {
			attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			return attached
		}),
	)

	It("is not revived by what one server confirms, and what another confirms later", func(ctx SpecContext) {
		lock := extended(ctx, on, nil)
		on.at(1500 * time.Millisecond)
		on.Break(1, noRequests)
		on.Break(2, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		on.Heal()
		on.Servers[0].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, on.other, 5*time.Second, nil, "a")
		on.Break(0, lateReplies(time.Second))
		Expect(lock.Refresh(spec.Within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by the late answer to a Refresh that was sent before", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
		on.at(300 * time.Millisecond)
		on.Break(2, noRequests)
		on.Break(0, lateReplies(1300*time.Millisecond))
		go func() { _ = lock.Refresh(ctx, 10*time.Second, nil) }() // ends at 1.6 s
		on.at(1100 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, on.other, 5*time.Second, nil, "a")
		on.at(2 * time.Second)
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by renewals of the holds that last longer", func(ctx SpecContext) {
		lock := extended(ctx, on, nil)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.Break(0, noRequests)
		on.Break(2, noRequests)
		on.at(1500 * time.Millisecond)
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, on.other, 5*time.Second, nil, "a")
		on.Heal()
		for time.Now().Before(second.Until()) {
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			time.Sleep(10 * time.Millisecond)
		}
	})

	It("is revived by a Refresh that a majority confirms", func(ctx SpecContext) {
		lock := extended(ctx, on, nil)
		on.at(1500 * time.Millisecond)
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(5*time.Second), 200*time.Millisecond))
		time.Sleep(50 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.at(time.Minute)
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("is not revived by a Refresh that began before the lapse, and a server that confirms another one", func(ctx SpecContext) {
		locks, other := twoClients(ctx, on.Quorum, func(opt *redis.Options) { opt.MaxRetries = -1 })
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Break(0, noRequests)
		on.Break(1, faultproxy.Rule{Client: spec.Ours, Action: faultproxy.CutClient()})
		Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // but server 2 lasts longer
		on.Heal(1)
		on.at(500 * time.Millisecond)
		on.Break(1, noRequests)
		on.Break(2, lateReplies(700*time.Millisecond))
		go func() { _ = lock.Refresh(ctx, 10*time.Second, nil) }() // keeps the next one waiting at server 2 until 1.2 s
		on.at(900 * time.Millisecond)
		on.Heal(2)
		on.at(950 * time.Millisecond)
		on.Heal(0)
		ended := make(chan struct{})
		go func() { // server 0 confirms it before the lapse, and server 2 after it
			defer close(ended)
			_ = lock.Refresh(ctx, 100*time.Millisecond, nil)
		}()
		on.at(1080 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Heal(1)
		on.Break(0, noRequests)
		on.Break(2, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 40*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // but server 1 confirms it
		on.at(1140 * time.Millisecond)
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		on.at(1180 * time.Millisecond)
		on.Heal()
		<-ended
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("has its keys everywhere again, if it is kept after the revival", func(ctx SpecContext) {
		lock := extended(ctx, on, nil)
		on.at(1500 * time.Millisecond)
		on.Break(2, noRequests)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(300 * time.Millisecond)
		on.Heal()
		for round := range 6 { // each server forgets twice
			time.Sleep(2500 * time.Millisecond)
			Expect(kept.Err()).NotTo(HaveOccurred())
			Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
			on.Servers[round%3].Memory.Memory.FlushAll()
			expectExclusive(ctx, on.other, lock)
		}
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("gets a server that grants the keys only after the revival", func(ctx SpecContext) {
		on.Break(2, lateReplies(1200*time.Millisecond))
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		on.at(300 * time.Millisecond)
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
		time.Sleep(time.Until(lock.Until()))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		on.Heal()
		on.at(3 * time.Second)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.at(23 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
	})

	It("is over after a Release, whenever that comes during the revival", func(ctx SpecContext) {
		for i := range 40 {
			on.start = time.Now()
			lock := extended(ctx, on, nil)
			on.at(1500 * time.Millisecond)
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			refreshed := make(chan struct{})
			go func() { defer close(refreshed); _ = lock.Refresh(ctx, 5*time.Second, nil) }()
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
			_ = lock.Release(ctx)
			<-refreshed
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
			time.Sleep(3 * time.Second)
			Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
		}
	})

	It("across slots is revived by a Refresh that every slot confirms", func(ctx SpecContext) {
		var masters []*spec.MemoryServer
		for _, s := range on.Servers {
			masters = append(masters, s.Memory)
		}
		cluster := spec.NewMemoryCluster(masters, spec.Ours, nil)
		DeferCleanup(cluster.Close)
		locks := redislock.New(cluster)
		DeferCleanup(locks.Close)
		lock := spec.Obtain(ctx, locks, time.Second, &redislock.Options{AcrossSlots: true}, "a", "b")
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.start = time.Now()
		on.at(300 * time.Millisecond)
		on.Break(0, ours("refresh", 0, faultproxy.CutClient()))
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // b lasts for 10 s
		on.Heal()
		on.at(1500 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Break(1, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // only a is confirmed
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Heal()
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(10 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

// extended returns a lock whose validity ends after a second, although one server has confirmed a Refresh to 10 s and
// another has executed it. handle may exchange the handle before that.
func extended(ctx context.Context, on *schedule, handle func(*redislock.Lock) *redislock.Lock) *redislock.Lock {
	GinkgoHelper()
	lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
	if handle != nil {
		lock = handle(lock)
	}
	on.at(300 * time.Millisecond)
	on.Break(0, ours("refresh", 0, faultproxy.CutClient()))
	on.Break(2, noRequests)
	Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
	Expect(lock.Until()).To(BeTemporally("~", on.start.Add(time.Second), 50*time.Millisecond))
	on.Heal()
	return lock
}

var _ = spec.DescribeQuorumOf(spec.InMemory, 1, "a lock that was found lost", func(on *spec.Quorum) {
	It("is not revived by a Refresh that is answered late", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 3*time.Second, nil, "a")
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the server knows the script
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.Break(0, ours("refresh", 1, faultproxy.DelayReply(1500*time.Millisecond)))
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

var _ = describeSchedules("a lock that was found lost", func(on *schedule) {
	It("is not valid again when a server gets the keys back", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, 3*time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.Break(0, ours("obtain", 1, faultproxy.DelayReply(1500*time.Millisecond)))
		Expect(on.Servers[0].Own.Del(ctx, "a").Err()).To(Succeed())
		time.Sleep(1200 * time.Millisecond) // by now, a renewal has found that, and the place is asked again
		Expect(on.Servers[0].Own.Get(ctx, "a").Val()).To(Equal(lock.Token()))
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
		time.Sleep(time.Second)
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		time.Sleep(600 * time.Millisecond) // the place has answered
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // it has a majority, and says so
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("says so, although a server confirms late what came before", func(ctx SpecContext) {
		locks := on.connect(ctx, func(opt *redis.Options) { opt.ReadTimeout = 5 * time.Second })
		lock := on.everywhere(ctx, locks, 3*time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		late := on.Break(2, ours("refresh", 1, faultproxy.DelayReply(2200*time.Millisecond)))[0]
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		time.Sleep(2500 * time.Millisecond) // a renewal has found that, and a mend was refused
		Expect(late.Count()).To(Equal(1))
		Expect(on.Servers[1].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		time.Sleep(1200 * time.Millisecond)
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
	})
})

var _ = spec.DescribeQuorum("a lock that a majority has lost", func(on *spec.Quorum) {
	It("is lost for good after a forced release", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 3*time.Second, nil, "a", "b")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		for _, s := range on.Servers {
			s.Own.Del(ctx, "a", "b")
		}
		Eventually(kept.Done()).WithTimeout(3 * time.Second).Should(BeClosed())
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(500 * time.Millisecond).Should(BeEmpty())
	})

	It("names the keys that no majority has", func(ctx SpecContext) {
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
})

// The first of these schedules, on real servers behind proxies.
var _ = spec.DescribeQuorumOf(spec.OnServer, 3, "a lapsed lock", func(on *spec.Quorum) {
	It("is not revived by a Refresh that one server confirms, and an old hold", func(ctx SpecContext) {
		proxies := make([]*faultproxy.Proxy, 3)
		clients := make([]redislock.RedisClient, 3)
		for i, s := range on.Servers {
			proxy, err := faultproxy.New(s.Real.Addr())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(proxy.Close)
			proxies[i] = proxy
			client := redis.NewClient(&redis.Options{Addr: proxies[i].Addr()})
			DeferCleanup(client.Close)
			clients[i] = client
		}
		locks := redislock.NewQuorum(clients, redislock.WithSeparateCalls())
		DeferCleanup(locks.Close)
		on.Warm(ctx)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "warm")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // from now on, every server knows the script
		Expect(lock.Release(ctx)).To(Succeed())

		lock = spec.Obtain(ctx, locks, time.Second, nil, "a")
		refreshes := spec.Running("refresh")
		faults := []*faultproxy.Fault{
			proxies[0].Add(faultproxy.Rule{Match: refreshes, Action: faultproxy.CutAfterReplyBytes(0)}),
			proxies[2].Add(faultproxy.Rule{Match: refreshes, Action: faultproxy.CutAfterRequestBytes(1)}),
		}
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Eventually(func() time.Duration { return time.Until(lock.Until()) }).WithTimeout(3 * time.Second).Should(BeNumerically("<", 0))
		for _, fault := range faults { // not before: a request that is sent again could still be confirmed in time
			fault.Remove()
		}
		on.Servers[1].Restart()
		Eventually(func() error {
			_, err := on.Locks.Obtain(ctx, "a", 20*time.Second, nil)
			return err
		}).WithTimeout(5 * time.Second).Should(Succeed())
		proxies[1].Add(faultproxy.Rule{Match: refreshes, Action: faultproxy.DelayReply(2 * time.Second)})
		Expect(lock.Refresh(spec.Within(ctx, time.Second), 10*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})
})
