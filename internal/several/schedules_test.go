package several_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

// Schedules on fake time that a review has found. Before, each of them ended with two valid holders, or with a handle that
// said what was not so.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "of the schedules of a review,", func(on *spec.Quorum) {
	var start time.Time
	var other *redislock.Client // of another process
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }

	// slowly makes the first request of a script that the first client sends to a server be answered late.
	slowly := func(i int, script string, d time.Duration) {
		on.Break(i, ours(script, 1, faultproxy.DelayReply(d)))
	}

	// staysLapsed lets a lock of client 1 lapse, and another holder come and go after 2.3 s. It expects that a Refresh after
	// 3.3 s, when what was stuck has arrived, does not revive the lock.
	staysLapsed := func(ctx context.Context, lock *redislock.Lock, opt *redislock.Options) {
		GinkgoHelper()
		on.Break(1, noRequests)
		on.Break(2, noRequests)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
		at(2300 * time.Millisecond)
		Expect(spec.Obtain(ctx, other, time.Second, opt, "a").Release(ctx)).To(Succeed())
		on.Heal(1)
		on.Heal(2)
		at(3300 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
	}

	BeforeEach(func(ctx SpecContext) {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		other = on.ConnectAs(spec.Theirs, nil)
		Expect(spec.Obtain(ctx, on.Locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		on.Heal()
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
			on.Break(2, ours("release", 0, faultproxy.DelayRequest(300*time.Millisecond)))
			at(time.Second)
			on.Break(1, noRequests)
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
			on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(2900*time.Millisecond)))
			at(200 * time.Millisecond)
			Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
			at(time.Second)
			on.Break(1, noRequests)
			Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 10*time.Second, nil)).NotTo(Succeed())
			at(1900 * time.Millisecond)
			Expect(spec.Obtain(ctx, other, time.Second, opt, "a").Release(ctx)).To(Succeed())
			on.Heal(1)
			at(3300 * time.Millisecond)
			Expect(lock.Refresh(spec.Within(ctx, time.Second), 5*time.Second, nil)).NotTo(Succeed())
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		})

		It("is not revived by keys that a repair has taken after another holder: one that the obtain's late answer overtook",
			func(ctx SpecContext) {
				opt := &redislock.Options{FenceKey: "fence"}
				locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
				Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
				start = time.Now()
				refuseOnce(ctx, on)
				obtains := on.Break(2,
					ours("obtain", 1, passes),
					ours("obtain", 1, faultproxy.DelayReply(600*time.Millisecond)), // asks again
					ours("obtain", 1, faultproxy.DelayRequest(2700*time.Millisecond).And(faultproxy.DelayReply(3*time.Second))), // the repair
					ours("obtain", 0, passes),
					during("refresh", start, 700*time.Millisecond, 2900*time.Millisecond, requestLost))
				lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
				at(200 * time.Millisecond)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(800 * time.Millisecond)
				Expect(obtains[2].Count() + obtains[3].Count()).To(Equal(1))
				on.Break(1, noRequests)
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

			BeforeEach(func(ctx SpecContext) {
				locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
				Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
				start = time.Now()
				lock = spec.Obtain(ctx, locks, 1500*time.Millisecond, opt, "a")
				at(100 * time.Millisecond)
				on.Servers[2].Memory.Memory.FlushAll()
				on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(2900*time.Millisecond)))
				at(200 * time.Millisecond)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(600 * time.Millisecond)
				on.Heal(2)
				Expect(lock.Refresh(ctx, 1500*time.Millisecond, nil)).To(Succeed())
				at(time.Second)
				Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
			})

			It("is not revived by keys that the first one has taken after another holder", func(ctx SpecContext) {
				staysLapsed(ctx, lock, opt)
			})

			It("counts that server again once the others have revived it", func(ctx SpecContext) {
				for i := range on.Servers {
					on.Break(i, noReplies)
				}
				Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
				at(2300 * time.Millisecond)
				Expect(lock.Until()).To(BeTemporally("<", time.Now()))
				on.Heal()
				Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
				at(3300 * time.Millisecond)
				on.Break(1, noRequests)
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
		on.Break(1, noRequests)
		on.Break(2, noRequests) // the reply to the repair is on its way
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
			on.Break(2, noRequests)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			at(1200 * time.Millisecond)
			on.Heal(2)
			Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
			Eventually(stalled.Load).Should(BeTrue())
			return lock
		}
		// late makes the refreshes that the server gets from now on arrive then.
		late := func(then time.Duration) {
			on.Break(2, ours("refresh", 0, faultproxy.DelayRequestUntil(start.Add(then))))
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
			on.Break(1, noRequests)
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
			on.Break(0, noRequests)
			on.Heal(2)
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
		locks := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
		Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		start = time.Now()
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(2700*time.Millisecond)), // the repair
			during("refresh", start, 2920*time.Millisecond, time.Hour, faultproxy.DelayRequest(10*time.Second)))
		at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
		at(300 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.Break(0, noReplies)
		on.Break(1, noReplies)
		at(400 * time.Millisecond)
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil)).NotTo(Succeed())
		on.Heal(0)
		on.Heal(1)
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
		on.Break(1, noRequests)
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
		on.Break(1, noRequests)
		if lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil) == nil {
			Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
		}
	})

	It("a release that is sent twice takes away nothing that was obtained again", func(ctx SpecContext) {
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(9950*time.Millisecond)), ours("release", 1, stuck(3*time.Second)))
		time.AfterFunc(10*time.Second, func() { on.Break(2, noRequests) })
		lock := spec.Obtain(ctx, on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = time.Minute }), 10*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		at(4 * time.Second)
		on.Break(1, noRequests)
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
				on.Break(i, anyones("obtain", 0, faultproxy.CutClient()))
				time.Sleep(1500 * time.Millisecond)
				on.Heal(i)
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
			NewClient:          func(opt *redis.Options) *redis.Client { return servers[opt.Addr].Connect(spec.Ours, nil) },
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
