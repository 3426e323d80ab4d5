package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

// A lock that has lapsed may have been another's since, at a server that has forgotten. So nothing that it gained before the
// lapse counts any more.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a lapsed lock", func(on *spec.Quorum) {
	var locks, other *redislock.Client
	var start time.Time
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }

	// executed makes a server execute a script that client 1 sends, without a reply.
	executed := func(i int, script string) {
		on.Break(i, ours(script, 0, faultproxy.CutClient()))
	}
	// slow makes a server answer client 1 after d.
	slow := func(i int, d time.Duration) {
		on.Break(i, faultproxy.Rule{Client: spec.Ours, Action: faultproxy.DelayReply(d)})
	}
	// extended returns a lock whose validity ends after a second, although one server has confirmed a Refresh to 10 s and
	// another has executed it.
	extended := func(ctx context.Context, handle func(*redislock.Lock) *redislock.Lock) *redislock.Lock {
		GinkgoHelper()
		lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
		if handle != nil {
			lock = handle(lock)
		}
		at(300 * time.Millisecond)
		executed(0, "refresh")
		on.Break(2, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("~", start.Add(time.Second), 50*time.Millisecond))
		on.Heal()
		return lock
	}

	BeforeEach(func(ctx SpecContext) {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		locks, other = twoClients(ctx, on, nil)
		lock := spec.Obtain(ctx, locks, time.Second, nil, "warm")
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // from now on, every server knows the script
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		start = time.Now()
	})

	It("is not revived by a Refresh that one server confirms, and an old hold", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		at(1500 * time.Millisecond)
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		slow(1, time.Second)
		Expect(lock.Refresh(spec.Within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by what one server confirms, and what another confirms later", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		at(1500 * time.Millisecond)
		on.Break(1, noRequests)
		on.Break(2, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		on.Heal()
		on.Servers[0].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		slow(0, time.Second)
		Expect(lock.Refresh(spec.Within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by the late answer to a Refresh that was sent before", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
		at(300 * time.Millisecond)
		on.Break(2, noRequests)
		slow(0, 1300*time.Millisecond)
		go func() { _ = lock.Refresh(ctx, 10*time.Second, nil) }() // ends at 1.6 s
		at(1100 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		at(2 * time.Second)
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by renewals of the holds that last longer", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.Break(0, noRequests)
		on.Break(2, noRequests)
		at(1500 * time.Millisecond)
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		on.Heal()
		for time.Now().Before(second.Until()) {
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
			time.Sleep(10 * time.Millisecond)
		}
	})

	It("is revived by a Refresh that a majority confirms", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		at(1500 * time.Millisecond)
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(5*time.Second), 200*time.Millisecond))
		time.Sleep(50 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		at(time.Minute)
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("is not revived through an attached handle by one server", func(ctx SpecContext) {
		attached := extended(ctx, func(lock *redislock.Lock) *redislock.Lock {
			attached, err := locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			return attached
		})
		at(1500 * time.Millisecond)
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		slow(1, time.Second)
		Expect(attached.Refresh(spec.Within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(attached.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by a Refresh that began before the lapse, and a server that confirms another one", func(ctx SpecContext) {
		locks, other := twoClients(ctx, on, func(opt *redis.Options) { opt.MaxRetries = -1 })
		start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Break(0, noRequests)
		on.Break(1, faultproxy.Rule{Client: spec.Ours, Action: faultproxy.CutClient()})
		Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // but server 2 lasts longer
		on.Heal(1)
		at(500 * time.Millisecond)
		on.Break(1, noRequests)
		slow(2, 700*time.Millisecond)
		go func() { _ = lock.Refresh(ctx, 10*time.Second, nil) }() // keeps the next one waiting at server 2 until 1.2 s
		at(900 * time.Millisecond)
		on.Heal(2)
		at(950 * time.Millisecond)
		on.Heal(0)
		ended := make(chan struct{})
		go func() { // server 0 confirms it before the lapse, and server 2 after it
			defer close(ended)
			_ = lock.Refresh(ctx, 100*time.Millisecond, nil)
		}()
		at(1080 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Heal(1)
		on.Break(0, noRequests)
		on.Break(2, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 40*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // but server 1 confirms it
		at(1140 * time.Millisecond)
		on.Servers[1].Memory.Memory.FlushAll()
		second := spec.Obtain(ctx, other, 5*time.Second, nil, "a")
		at(1180 * time.Millisecond)
		on.Heal()
		<-ended
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("has its keys everywhere again, if it is kept after the revival", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		at(1500 * time.Millisecond)
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
			expectExclusive(ctx, other, lock)
		}
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("gets a server that grants the keys only after the revival", func(ctx SpecContext) {
		slow(2, 1200*time.Millisecond)
		lock := spec.Obtain(ctx, locks, 10*time.Second, nil, "a")
		at(300 * time.Millisecond)
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
		time.Sleep(time.Until(lock.Until()))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		on.Heal()
		at(3 * time.Second)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		at(23 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
	})

	It("is over after a Release, whenever that comes during the revival", func(ctx SpecContext) {
		for i := range 40 {
			start = time.Now()
			lock := extended(ctx, nil)
			at(1500 * time.Millisecond)
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
		start = time.Now()
		at(300 * time.Millisecond)
		executed(0, "refresh")
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed()) // b lasts for 10 s
		on.Heal()
		at(1500 * time.Millisecond)
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

// A lock that a majority has does not lapse.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a lock that has not lapsed", func(on *spec.Quorum) {
	BeforeEach(func() {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
	})

	DescribeTable("is refreshed, if one server answers that it has forgotten, and another had not answered Attach", func(
		ctx SpecContext, delays ...time.Duration,
	) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		on.Servers[2].Memory.Hang()
		attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		on.Servers[2].Memory.Resume()
		time.Sleep(time.Second)
		on.Servers[1].Memory.Memory.FlushAll()
		for i, delay := range delays {
			on.Servers[i].Memory.SetLatency(spec.Always(100*time.Microsecond + delay))
		}
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(attached.Until()).To(BeTemporally("~", time.Now().Add(time.Minute), time.Second))
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	},
		Entry("before both of the others", 5*time.Millisecond, time.Duration(0), 10*time.Millisecond),
		Entry("between them", time.Duration(0), 5*time.Millisecond, 10*time.Millisecond),
	)

	It("lasts as long as before, if a Refresh to a shorter ttl was never sent", func(ctx SpecContext) {
		var clients []redislock.RedisClient
		var pools []*redis.Client
		for _, s := range on.Servers {
			client := s.Memory.Connect(spec.Ours, func(opt *redis.Options) { opt.PoolSize = 1 })
			DeferCleanup(client.Close)
			clients, pools = append(clients, client), append(pools, client)
		}
		locks := redislock.NewQuorum(clients)
		DeferCleanup(locks.Close)
		for range 10 { // whether the call is abandoned before it ends is a matter of chance
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			until := lock.Until()
			time.Sleep(50 * time.Millisecond)
			var taken []*redis.Conn
			for _, pool := range pools {
				conn := pool.Conn()
				Expect(conn.Ping(ctx).Err()).To(Succeed()) // from now on, others wait for a connection
				taken = append(taken, conn)
			}
			Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), time.Second, nil)).NotTo(Succeed())
			for _, conn := range taken {
				Expect(conn.Close()).To(Succeed())
			}
			time.Sleep(2 * time.Second)
			Expect(lock.Until()).To(BeTemporally("~", until, time.Second))
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(50 * time.Millisecond)
		}
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
