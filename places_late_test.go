package redislock_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// fates sets what becomes of the chunks of a server in memory, apart from a latency.
func (on *quorum) fates(i int, change func(f *fate, w *wire, reply bool, data []byte)) {
	on.servers[i].memory.setFate(func(w *wire, reply bool, data []byte) fate {
		f := fate{delay: 100 * time.Microsecond}
		if change != nil {
			change(&f, w, reply, data)
		}
		return f
	})
}

// connectAs returns a Client of its own on the servers in memory. owner tells it apart from others.
func (on *quorum) connectAs(owner int, change func(*redis.Options)) *redislock.Client {
	var clients []redislock.RedisClient
	for _, s := range on.servers {
		client := s.memory.connect(owner, change)
		DeferCleanup(client.Close)
		clients = append(clients, client)
	}
	locks := redislock.NewQuorum(clients)
	DeferCleanup(locks.Close)
	return locks
}

// twoClients returns Clients of owners 1 and 2, the first of which may change the options, and has sent its scripts. From
// then on, every chunk takes a moment.
func (on *quorum) twoClients(ctx context.Context, change func(*redis.Options)) (locks, other *redislock.Client) {
	GinkgoHelper()
	locks, other = on.connectAs(1, change), on.connectAs(2, nil)
	Expect(obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
	time.Sleep(100 * time.Millisecond)
	for i := range on.servers {
		on.fates(i, nil)
	}
	return locks, other
}

// cutsOff is a change of fates that loses all requests of an owner.
func cutsOff(owner int) func(f *fate, w *wire, reply bool, _ []byte) {
	return func(f *fate, w *wire, reply bool, _ []byte) { f.lost = w.owner == owner && !reply }
}

// refuseOnce makes server 2 refuse an obtain of "a" that comes now, which then asks it once more.
func (on *quorum) refuseOnce(ctx context.Context) {
	GinkgoHelper()
	Expect(on.servers[2].own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
	time.AfterFunc(3*time.Millisecond, func() { on.servers[2].memory.memory.Del("a") })
}

// expectExclusive expects that another Client does not obtain "a" while the lock is valid.
func expectExclusive(ctx context.Context, other *redislock.Client, lock *redislock.Lock) {
	GinkgoHelper()
	second, err := other.Obtain(within(ctx, time.Second), "a", 5*time.Second, nil)
	if err == nil && time.Now().Before(second.Until()) {
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	}
}

// Schedules on fake time that a reviewer has found. Before, the first two led to two valid holders.
var _ = describeQuorumOf(inMemory, 3, "what comes late", func(on *quorum) {
	BeforeEach(func() {
		if redislock.AlwaysTogether {
			Skip("these are schedules of calls that go by themselves")
		}
	})

	It("takes no hold away that a renewal has obtained since: the answer to the call that asked a server again",
		func(ctx SpecContext) {
			locks, others := on.connectAs(1, nil), on.connectAs(2, nil)
			Expect(obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			on.refuseOnce(ctx)
			var obtains atomic.Int32
			var second atomic.Pointer[wire]
			on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
				switch {
				case w.owner != 1:
				case !reply && runs(data, "obtain"):
					if obtains.Add(1) == 2 {
						second.Store(w)
					}
				case reply && second.CompareAndSwap(w, nil):
					f.delay = 1500 * time.Millisecond
				}
			})
			lock := obtain(ctx, locks, time.Second, nil, "a")
			_, stop := lock.KeepAlive(ctx)
			defer stop()
			time.Sleep(time.Until(start.Add(400 * time.Millisecond)))
			Expect(obtains.Load()).To(BeNumerically(">=", 3), "a renewal has obtained it again")
			on.fates(1, func(f *fate, w *wire, _ bool, _ []byte) { f.lost = w.owner == 1 })
			_, err := others.Obtain(within(ctx, 1500*time.Millisecond), "a", time.Minute,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)})
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		})

	It("takes no hold away that a repair obtains: the release of what joined a lapsed lock", func(ctx SpecContext) {
		start := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		var stalled atomic.Bool
		on.servers[2].client.AddHook(&around{before: func(cmd redis.Cmder) { // it waits for a connection
			if time.Since(start) > 150*time.Millisecond && running("obtain")(words(cmd)) && stalled.CompareAndSwap(false, true) {
				at(20050 * time.Millisecond)
			}
		}})
		lock := obtain(ctx, on.locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		Expect(on.servers[2].own.FlushAll(ctx).Err()).To(Succeed())
		on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 0 && !reply && runs(data, "release") {
				f.delay = 300 * time.Millisecond
			}
		})
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
		at(20100 * time.Millisecond)
		Expect(stalled.Load()).To(BeTrue())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		at(25 * time.Second)
		Expect(on.values(ctx, "a")).To(Equal(same(3, lock.Token())))
	})

	It("keeps a lock when another server dies: a grant after others have minted larger fencing tokens", func(ctx SpecContext) {
		locks, others := on.connectAs(1, nil), on.connectAs(2, nil)
		Expect(obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		Expect(obtain(ctx, others, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 1 && !reply && runs(data, "obtain") {
				f.delay = 50 * time.Millisecond
			}
		})
		opt := &redislock.Options{FenceKey: "fence"} // all locks share it
		lock := obtain(ctx, locks, time.Second, opt, "a")
		other := obtain(ctx, others, time.Second, opt, "b")
		Expect(other.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(other.Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(on.values(ctx, "a")).To(Equal(same(3, lock.Token())))
		on.servers[0].memory.refuse()
		DeferCleanup(on.servers[0].memory.revive)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(3 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(58*time.Second)))
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = describeQuorumOf(inMemory, 1, "a Refresh that is executed late", func(on *quorum) {
	It("does not shorten the ttl of the next lock with the same custom token", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := obtain(ctx, on.locks, time.Minute, opt, "a")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // so that the servers know the script
		on.fates(0, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 0 && !reply && runs(data, "refresh") {
				f.delay = 50 * time.Millisecond
			}
		})
		_ = lock.Refresh(within(ctx, 10*time.Millisecond), 10*time.Second, nil)
		Expect(lock.Release(ctx)).To(Succeed())
		lock = obtain(ctx, on.locks, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(on.servers[0].memory.memory.TTL("a")).To(BeNumerically(">", 59*time.Second))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("does not keep an obtain with the same custom token waiting for as long as it fails", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := obtain(ctx, on.locks, time.Minute, opt, "a")
		on.servers[0].memory.refuse()
		refreshed := make(chan error, 1)
		go func() {
			refreshed <- lock.Refresh(ctx, time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})
		}()
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		_, err := on.locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
		on.servers[0].memory.revive()
		Expect(<-refreshed).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = describeQuorumOf(inMemory, 1, "a Release for whose cleanup there was no room", func(on *quorum) {
	It("does not free the keys of the next lock with the same custom token", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := obtain(ctx, on.locks, time.Minute, opt, "a")
		on.fates(0, func(f *fate, w *wire, reply bool, data []byte) {
			if w.owner == 0 && !reply && runs(data, "release") {
				f.delay = 100 * time.Millisecond
			}
		})
		DeferCleanup(redislock.FillCleanups(on.locks))
		Expect(lock.Release(within(ctx, 10*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		lock = obtain(ctx, on.locks, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(on.servers[0].memory.has(lock, 59*time.Second)).To(BeTrue())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = describeQuorumOf(inMemory, 3, "a server that has missed a grant", func(on *quorum) {
	It("has the fence counter of the others after the next one", func(ctx SpecContext) {
		for i := range on.servers { // the clock of one client is 0.9 s ahead
			on.fates(i, func(_ *fate, w *wire, reply bool, data []byte) {
				if w.owner == 1 && !reply {
					skewProposals(data, 900_000)
				}
			})
		}
		ahead := on.connectAs(1, func(opt *redis.Options) { opt.MaxRetries, opt.DialerRetries = -1, 1 })
		right := on.connectAs(2, nil)
		Expect(obtain(ctx, right, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		opt := &redislock.Options{FenceKey: "fence"}
		on.servers[2].memory.refuse()
		Expect(obtain(ctx, ahead, time.Minute, opt, "a").Release(ctx)).To(Succeed())
		time.Sleep(200 * time.Millisecond)
		on.servers[2].memory.revive()
		time.Sleep(20 * time.Millisecond)
		lock := obtain(ctx, right, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(20 * time.Millisecond)
		Expect(on.servers[0].own.FlushAll(ctx).Err()).To(Succeed())
		on.servers[1].memory.refuse()
		DeferCleanup(on.servers[1].memory.revive)
		last := obtain(ctx, right, time.Minute, opt, "a")
		Expect(last.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(last.Release(ctx)).To(Succeed())
	})
})

var _ = describeQuorumOf(inMemory, 3, "a grant that comes when it has lapsed", func(on *quorum) {
	It("is given back, although the obtain has ended long before", func(ctx SpecContext) {
		if redislock.AlwaysTogether {
			Skip("this is a schedule of calls that go by themselves")
		}
		locks, other := on.twoClients(ctx, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
		held := obtain(ctx, other, time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(on.servers[2].own.Del(ctx, "a").Err()).To(Succeed())
		on.fates(2, func(f *fate, w *wire, reply bool, data []byte) {
			switch {
			case w.owner != 1:
			case reply:
				f.delay = time.Second
			case runs(data, "obtain"):
				f.delay = 9500 * time.Millisecond
			}
		})
		_, err := locks.Obtain(within(ctx, 100*time.Millisecond), "a", 10*time.Second, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		time.Sleep(9600 * time.Millisecond)
		Expect(on.values(ctx, "a")[2]).NotTo(BeEmpty(), "it was granted")
		on.fates(2, nil)
		time.Sleep(3 * time.Second) // its answer has come
		Expect(on.values(ctx, "a")).To(Equal([]string{held.Token(), held.Token(), ""}))
	})
})
