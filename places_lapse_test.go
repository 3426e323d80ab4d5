package redislock_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
)

// A lock that has lapsed may have been another's since, at a server that has forgotten. So nothing that it gained before the
// lapse counts any more.
var _ = describeQuorumOf(inMemory, 3, "a lapsed lock", func(on *quorum) {
	var locks, other *redislock.Client
	var start time.Time
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }

	// executed makes a server execute a script that client 1 sends, without a reply.
	executed := func(i int, script string) {
		on.fates(i, func(f *fate, w *wire, reply bool, data []byte) {
			f.cut = w.owner == 1 && !reply && runs(data, script)
		})
	}
	// slow makes a server answer client 1 after d.
	slow := func(i int, d time.Duration) {
		on.fates(i, func(f *fate, w *wire, reply bool, _ []byte) {
			if w.owner == 1 && reply {
				f.delay = d
			}
		})
	}
	normal := func() {
		for i := range on.servers {
			on.fates(i, nil)
		}
	}
	// extended returns a lock whose validity ends after a second, although one server has confirmed a Refresh to 10 s and
	// another has executed it.
	extended := func(ctx context.Context, handle func(*redislock.Lock) *redislock.Lock) *redislock.Lock {
		GinkgoHelper()
		lock := obtain(ctx, locks, time.Second, nil, "a")
		if handle != nil {
			lock = handle(lock)
		}
		at(300 * time.Millisecond)
		executed(0, "refresh")
		on.fates(2, cutsOff(1))
		Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("~", start.Add(time.Second), 50*time.Millisecond))
		normal()
		return lock
	}

	BeforeEach(func(ctx SpecContext) {
		if redislock.AlwaysTogether {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		locks, other = on.twoClients(ctx, nil)
		lock := obtain(ctx, locks, time.Second, nil, "warm")
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // from now on, every server knows the script
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		start = time.Now()
	})

	It("is not revived by a Refresh that one server confirms, and an old hold", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		at(1500 * time.Millisecond)
		on.servers[1].memory.memory.FlushAll()
		second := obtain(ctx, other, 5*time.Second, nil, "a")
		slow(1, time.Second)
		Expect(lock.Refresh(within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by what one server confirms, and what another confirms later", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		at(1500 * time.Millisecond)
		on.fates(1, cutsOff(1))
		on.fates(2, cutsOff(1))
		Expect(lock.Refresh(within(ctx, 100*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		normal()
		on.servers[0].memory.memory.FlushAll()
		second := obtain(ctx, other, 5*time.Second, nil, "a")
		slow(0, time.Second)
		Expect(lock.Refresh(within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by the late answer to a Refresh that was sent before", func(ctx SpecContext) {
		lock := obtain(ctx, locks, time.Second, nil, "a")
		at(300 * time.Millisecond)
		on.fates(2, cutsOff(1))
		slow(0, 1300*time.Millisecond)
		go func() { _ = lock.Refresh(ctx, 10*time.Second, nil) }() // ends at 1.6 s
		at(1100 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.servers[1].memory.memory.FlushAll()
		second := obtain(ctx, other, 5*time.Second, nil, "a")
		at(2 * time.Second)
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})

	It("is not revived by renewals of the holds that last longer", func(ctx SpecContext) {
		lock := extended(ctx, nil)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.fates(0, cutsOff(1))
		on.fates(2, cutsOff(1))
		at(1500 * time.Millisecond)
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
		on.servers[1].memory.memory.FlushAll()
		second := obtain(ctx, other, 5*time.Second, nil, "a")
		normal()
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
		Expect(on.values(ctx, "a")).To(Equal(same(3, lock.Token())))
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
		on.servers[1].memory.memory.FlushAll()
		second := obtain(ctx, other, 5*time.Second, nil, "a")
		slow(1, time.Second)
		Expect(attached.Refresh(within(ctx, 500*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		Expect(time.Now()).To(BeTemporally("<", second.Until()))
		Expect(attached.Until()).To(BeTemporally("<", time.Now()))
	})
})

// The first of these schedules, on real servers behind proxies.
var _ = describeQuorumOf(onServer, 3, "a lapsed lock", func(on *quorum) {
	It("is not revived by a Refresh that one server confirms, and an old hold", func(ctx SpecContext) {
		proxies := make([]*faultproxy.Proxy, 3)
		clients := make([]redislock.RedisClient, 3)
		for i, s := range on.servers {
			proxy, err := faultproxy.New(s.real.Addr())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(proxy.Close)
			proxies[i] = proxy
			client := redis.NewClient(&redis.Options{Addr: proxies[i].Addr()})
			DeferCleanup(client.Close)
			clients[i] = client
		}
		locks := redislock.NewQuorum(clients, redislock.WithSeparateCalls())
		DeferCleanup(locks.Close)
		on.warm(ctx)
		lock := obtain(ctx, locks, time.Minute, nil, "warm")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // from now on, every server knows the script
		Expect(lock.Release(ctx)).To(Succeed())

		lock = obtain(ctx, locks, time.Second, nil, "a")
		refreshes := running("refresh")
		faults := []*faultproxy.Fault{
			proxies[0].Add(faultproxy.Rule{Match: refreshes, Action: faultproxy.CutAfterReplyBytes(0)}),
			proxies[2].Add(faultproxy.Rule{Match: refreshes, Action: faultproxy.CutAfterRequestBytes(1)}),
		}
		Expect(lock.Refresh(within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		for _, fault := range faults {
			fault.Remove()
		}
		Eventually(func() time.Duration { return time.Until(lock.Until()) }).WithTimeout(3 * time.Second).Should(BeNumerically("<", 0))
		on.servers[1].restart()
		Eventually(func() error {
			_, err := on.locks.Obtain(ctx, "a", 20*time.Second, nil)
			return err
		}).WithTimeout(5 * time.Second).Should(Succeed())
		proxies[1].Add(faultproxy.Rule{Match: refreshes, Action: faultproxy.DelayReply(2 * time.Second)})
		Expect(lock.Refresh(within(ctx, time.Second), 10*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	})
})
