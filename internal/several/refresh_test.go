package several_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeQuorum("a Refresh", func(on *spec.Quorum) {
	It("makes a lock last as it says, and may replace the metadata", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, &redislock.Options{Metadata: "one"}, "a", "b")
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "two"})).To(Succeed())
		Expect(lock.Metadata()).To(Equal("two"))
		Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(time.Hour-36*time.Second), 2*time.Second))
		Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(len(on.Servers), lock.Token()+" two")))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Second, 200*time.Millisecond))
		Expect(lock.Until()).To(BeTemporally("<", time.Now().Add(time.Second)))
		Expect(lock.Refresh(ctx, time.Millisecond, nil)).To(MatchError(redislock.ErrInvalid))
	})
})

var _ = describeSchedules("a Refresh", func(on *schedule) {
	It("waits for the confirmation of a server that grants the obtain late", func(ctx SpecContext) {
		on.Break(2, ours("obtain", 0, faultproxy.DelayReply(150*time.Millisecond)))
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a") // by the others
		Expect(on.Servers[1].Own.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by 0 and 2
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("does not wait for a server that refuses the obtain late", func(ctx SpecContext) {
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		on.Break(2, ours("obtain", 0, faultproxy.DelayReply(150*time.Millisecond)))
		began := time.Now()
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a") // by the others
		Expect(on.Servers[1].Own.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("waits in turn at a server that hangs, where only the last one stays", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		lock := on.everywhere(ctx, locks, time.Minute, nil, "a")
		on.Break(2, ours("refresh", 1, faultproxy.DelayReply(5*time.Second)))
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		before := runtime.NumGoroutine()
		for i := range 100 {
			Expect(lock.Refresh(ctx, 30*time.Second+time.Duration(i)*time.Second, nil)).To(Succeed())
		}
		Expect(runtime.NumGoroutine()).To(BeNumerically("<", before+10))
		Eventually(func() time.Duration { return on.Servers[2].Memory.Memory.TTL("a") }).WithTimeout(10 * time.Second).
			Should(BeNumerically(">", 2*time.Minute))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("that was held up shortens no ttl that a later one has confirmed", func(ctx SpecContext) {
		for range 100 { // it is by chance which of the last two is sent first
			lock := on.everywhere(ctx, on.Locks, 10*time.Second, nil, "a")
			on.Break(0, ours("refresh", 1, faultproxy.DelayReply(500*time.Millisecond)))
			for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 10 * time.Second} {
				Expect(lock.Refresh(ctx, ttl, nil)).To(Succeed()) // without server 0, where the later ones wait for the first
			}
			time.Sleep(2500 * time.Millisecond)
			on.Servers[1].Memory.Memory.FlushAll() // the others have confirmed the lock for as long as it is valid
			expectExclusive(ctx, on.other, lock)
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
		}
	})

	It("does not wait for an earlier one whose reply a server has lost", func(ctx SpecContext) {
		locks := on.connect(ctx, func(opt *redis.Options) { opt.ReadTimeout = 5 * time.Second })
		lock := on.everywhere(ctx, locks, time.Minute, nil, "a")
		silent := on.Break(2, faultproxy.Rule{Client: spec.Ours, Times: 1, Action: faultproxy.SwallowReply()})[0]
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by the others
		time.Sleep(100 * time.Millisecond)
		Expect(silent.Count()).To(Equal(1))
		on.Servers[1].Memory.Refuse()
		start := time.Now()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by servers 0 and 2, which answer
		Expect(time.Since(start)).To(BeNumerically("<", time.Second))
		on.Servers[1].Memory.Revive()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("replaces the metadata of an earlier one, which a server gets late", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		late := on.Break(2, ours("refresh", 1, faultproxy.DelayRequest(500*time.Millisecond)))[0]
		Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "first"})).To(Succeed())
		time.Sleep(10 * time.Millisecond)
		Expect(late.Count()).To(Equal(1))
		Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "second"})).To(Succeed())
		time.Sleep(2 * time.Second)
		found, err := on.other.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(found[0].Metadata).To(Equal("second"))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token()+" second")))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("that is answered late does not undo a newer one, of a new hold", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(400*time.Millisecond)))
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the mend
		on.at(250 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // finds the keys that the mend has acquired
		on.at(300 * time.Millisecond)
		on.Break(2, ours("refresh", 1, faultproxy.DelayReply(1200*time.Millisecond)))
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		on.at(time.Second)
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		on.at(2 * time.Second)
		Expect(on.Servers[2].Memory.Memory.TTL("a")).To(BeNumerically(">", 18*time.Second))
	})

	It("does not succeed by keys that prove nothing", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
		on.at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(time.Second)))
		on.at(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed()) // begins the mend
		on.at(400 * time.Millisecond)
		on.Break(1, noRequests)
		if lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 20*time.Second, nil) == nil {
			Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(18*time.Second)))
		}
	})

	It("tries again as a whole: its strategy is asked once a round", func(ctx SpecContext) {
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

	It("to a shorter ttl that was never sent leaves the validity as long as before", func(ctx SpecContext) {
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

	It("that could not be sent keeps no CPU busy if the lock is kept", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, 10*time.Second, nil, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		var broken atomic.Bool
		for _, s := range on.Servers {
			s.Client.AddHook(breaker{&broken})
		}
		broken.Store(true)
		Expect(lock.Refresh(ctx, 500*time.Millisecond, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(8*time.Second)))
		time.Sleep(5 * time.Second)
		broken.Store(false)
		time.Sleep(8 * time.Second)
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a Refresh", func(on *spec.Quorum) {
	It("returns soon after Until, although one server holds the keys for longer", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 2*time.Second, nil, "a")
		time.Sleep(100 * time.Millisecond)
		for i := 1; i < 3; i++ {
			on.Break(i, anyones("refresh", 0, requestLost))
		}
		Expect(lock.Refresh(ctx, time.Minute, nil)).NotTo(Succeed())
		for _, s := range on.Servers {
			s.Hang()
		}
		until := lock.Until()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrLapsed))
		Expect(time.Since(until)).To(BeNumerically("<", 400*time.Millisecond))
	})

	It("that is answered too late says so", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
		time.Sleep(50 * time.Millisecond)
		for i := range on.Servers {
			on.Break(i, anyones("refresh", 0, faultproxy.DelayRequest(150*time.Millisecond)))
		}
		Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).To(MatchError(redislock.ErrNotObtained))
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 1, "a Refresh that is executed late", func(on *spec.Quorum) {
	It("does not shorten the ttl of the next lock with the same custom token", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // so that the servers know the script
		late := on.Break(0, ours("refresh", 0, faultproxy.DelayRequest(50*time.Millisecond)))[0]
		_ = lock.Refresh(spec.Within(ctx, 10*time.Millisecond), 10*time.Second, nil)
		Expect(late.Count()).To(Equal(1))
		Expect(lock.Release(ctx)).To(Succeed())
		lock = spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(on.Servers[0].Memory.Memory.TTL("a")).To(BeNumerically(">", 59*time.Second))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("does not keep an obtain with the same custom token waiting for as long as it fails", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		on.Servers[0].Memory.Refuse()
		refreshed := make(chan error, 1)
		go func() {
			refreshed <- lock.Refresh(ctx, time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})
		}()
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
		Expect(time.Since(began)).To(BeNumerically("<", 6*time.Second))
		on.Servers[0].Memory.Revive()
		Expect(<-refreshed).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = describeSchedules("TTL", func(on *schedule) {
	It("shows a ttl that another handle has shortened", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		on.at(100 * time.Millisecond)
		attached, err := on.other.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.at(200 * time.Millisecond)
		Expect(lock.TTL(ctx)).To(BeNumerically("<=", time.Second))
	})
})

// The torture run found this.
var _ = Describe("TTL on a quorum of 5", Label(spec.InMemory), func() {
	It("is at once that of the last Refresh, also where some servers receive it later", func(ctx SpecContext) {
		on := &spec.Quorum{Kind: spec.InMemory}
		on.Begin(ctx, 5)
		delay := func(servers []*spec.Server, action faultproxy.Action) (heal func()) {
			for _, s := range servers {
				s.Memory.Add(faultproxy.Rule{Client: spec.Ours, Action: action})
			}
			return func() {
				for _, s := range servers {
					s.Memory.RemoveAll()
				}
			}
		}
		for _, s := range on.Servers {
			s.Memory.SetLatency(nil)
		}
		for _, slow := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} { // before and after they do
			lock := spec.Obtain(ctx, on.Locks, 10*time.Second, nil, "a")
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(5, lock.Token())))
			heal := delay(on.Servers[3:], faultproxy.DelayRequest(50*time.Millisecond))
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			heal()
			heal = delay(on.Servers[:3], faultproxy.DelayReply(slow))
			left, err := lock.TTL(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeNumerically(">", 59*time.Second))
			heal()
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})
})

type breaker struct{ *atomic.Bool }

func (b breaker) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.Load() {
			cmd.SetErr(errBroken)
			return errBroken
		}
		return next(ctx, cmd)
	}
}
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !b.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errBroken)
		}
		return errBroken
	}
}

var errBroken = errors.New("the breaker is open")
