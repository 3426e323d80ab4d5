package several_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

// Schedules that reviewers have found, on fake time. Before, each of them broke a promise.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "after a rare fault", func(on *spec.Quorum) {
	connect := on.ConnectAs
	has := func(ctx context.Context, i int) int64 { return on.Servers[i].Own.Exists(ctx, "a").Val() }

	It("does not become valid by a repair that arrives when the lock has lapsed", func(ctx SpecContext) {
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
		Expect(spec.Obtain(ctx, connect(spec.Theirs, nil), time.Minute, nil, "a").Release(ctx)).To(Succeed())
		at(16 * time.Second)
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		on.Heal(1)
		Expect(lock.Refresh(ctx, 9*time.Second, nil)).To(MatchError(redislock.ErrNotObtained))
	})

	It("is renewed where its hold had lapsed when a Refresh reached it", func(ctx SpecContext) {
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
			Expect(has(ctx, 2)).To(Equal(int64(1)))
		}
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("is obtained again where Attach had no answer, and released there", func(ctx SpecContext) {
		on.Warm(ctx)
		lock := spec.Obtain(ctx, connect(spec.Theirs, nil), time.Minute, nil, "a")
		time.Sleep(100 * time.Millisecond)
		attach := func() *redislock.Lock {
			on.Break(2, faultproxy.Rule{Action: faultproxy.DelayReply(150 * time.Millisecond)})
			attached, err := on.Locks.Attach(ctx, []string{"a"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			on.Heal(2)
			time.Sleep(time.Second)
			return attached
		}
		kept := attach()
		Expect(kept.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		_, stop := kept.KeepAlive(ctx)
		time.Sleep(time.Minute)
		Expect(has(ctx, 2)).To(Equal(int64(1)))
		stop()
		Expect(kept.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(attach().Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("refuses soon although a server hangs, and is granted soon after a release", func(ctx SpecContext) {
		on.Warm(ctx)
		held := spec.Obtain(ctx, connect(spec.Theirs, nil), time.Hour, nil, "a")
		time.Sleep(100 * time.Millisecond)
		on.Servers[0].Hang()
		start := time.Now()
		_, err := on.Locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(time.Since(start)).To(BeNumerically("<", 500*time.Millisecond))
		time.Sleep(time.Minute)
		first := spec.StartWaiter(ctx, on.Locks, time.Minute, &redislock.Options{Queue: true}, "a")
		time.Sleep(2 * time.Second)
		released := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		lock := first.Granted()
		Expect(first.At.Sub(released)).To(BeNumerically("<", 1500*time.Millisecond))
		on.Servers[0].Restore()
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("is released at a server that was away for some seconds", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Hour, nil, "a")
		time.Sleep(time.Second)
		on.Servers[2].Memory.Refuse()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(5 * time.Second)
		on.Servers[2].Memory.Revive()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("counts a repair again whose counter could not be raised at first", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, 3*time.Second, &redislock.Options{FenceKey: "fence"}, "a")
		time.Sleep(100 * time.Millisecond)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		lost := on.Break(2, anyones("fence", 0, requestLost))[0]
		on.Servers[2].Memory.Memory.FlushAll()
		time.Sleep(3 * time.Second)
		Expect(lost.Count()).To(BeNumerically(">", 0))
		on.Heal(2)
		time.Sleep(10 * time.Second)
		on.Servers[0].Kill()
		time.Sleep(20 * time.Second)
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
	})

	It("leaves nothing of a repair that was stuck when the next one was answered", func(ctx SpecContext) {
		start := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		locks := connect(spec.Theirs, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		at(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.FlushAll()
		on.Break(2, anyones("obtain", 0, faultproxy.DelayRequestUntil(start.Add(2500*time.Millisecond))))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		at(time.Second)
		on.Heal(2)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		at(2 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		at(10 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("leaves nothing of a call that asked again, and was stuck when a repair was answered", func(ctx SpecContext) {
		if spec.Together {
			Skip("this is a schedule of calls that go by themselves")
		}
		locks := connect(spec.Theirs, func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 300*time.Millisecond, -1 })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "b").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		refuseOnce(ctx, on)
		on.Break(2, anyones("obtain", 1, passes), anyones("obtain", 1, faultproxy.DelayRequest(1200*time.Millisecond)))
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

	It("leaves nothing of an obtain that was sent twice, and was stuck when a repair was answered", func(ctx SpecContext) {
		locks := connect(spec.Theirs, func(opt *redis.Options) { opt.ReadTimeout = 300 * time.Millisecond })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "b").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		on.Break(2, anyones("obtain", 1, faultproxy.DelayRequest(2*time.Second)))
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

	It("refuses with the holder that a majority has, and not with what one server has left of another", func(ctx SpecContext) {
		for i, s := range on.Servers {
			Expect(s.Own.Set(ctx, "a", "stale", time.Hour).Err()).To(Succeed())
			lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
			_, err := connect(spec.Theirs, nil).Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
			Expect(err).To(HaveField("Token", lock.Token()), "with something left at server %d", i+1)
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(s.Own.Del(ctx, "a").Err()).To(Succeed())
		}
	})

	It("leaves nothing of a repair in which a hook has panicked", func(ctx SpecContext) {
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

	It("leaves nothing of an obtain that was sent twice at a server, and was granted there when the lock had ended", func(ctx SpecContext) {
		locks := connect(spec.Theirs, func(opt *redis.Options) { opt.ReadTimeout = 300 * time.Millisecond })
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "b").Release(ctx)).To(Succeed())
		sent := on.Break(2, anyones("obtain", 1, faultproxy.DelayRequest(900*time.Millisecond)), anyones("obtain", 0, passes))
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(sent[0].Count() + sent[1].Count()).To(Equal(2))
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
	})

	It("has a Refresh return soon after Until, although one server holds the keys for longer", func(ctx SpecContext) {
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

	It("has a Refresh that is answered too late say so", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
		time.Sleep(50 * time.Millisecond)
		for i := range on.Servers {
			on.Break(i, anyones("refresh", 0, faultproxy.DelayRequest(150*time.Millisecond)))
		}
		Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).To(MatchError(redislock.ErrNotObtained))
	})

	It("holds nothing between two tries, although a grant was sent twice", func(ctx SpecContext) {
		for _, s := range on.Servers[1:] {
			Expect(s.Own.Set(ctx, "a", "other", time.Hour).Err()).To(Succeed())
		}
		var sent atomic.Int64
		obtains := spec.Running("obtain")
		on.Break(0, faultproxy.Rule{Client: spec.Ours, Action: faultproxy.CutClient(), Match: func(args []string) bool {
			return obtains(args) && sent.Add(1)%2 == 1
		}})
		limited, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := on.Locks.Obtain(limited, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Second)})
			ended <- err
		}()
		time.Sleep(time.Second)
		Expect(sent.Load()).To(BeNumerically(">", 1))
		Expect(has(ctx, 0)).To(BeZero())
		cancel()
		Eventually(ended).Should(Receive(MatchError(context.Canceled)))
	})

	It("leaves nothing behind when Close comes between two rounds of an obtain, or while one goes on", func(ctx SpecContext) {
		for _, s := range on.Servers[:2] { // so a round is split
			Expect(s.Own.Set(ctx, "a", s.Name, time.Hour).Err()).To(Succeed())
		}
		for i := range 40 {
			locks := on.Connect()
			ended := make(chan error, 1)
			go func() {
				_, err := locks.Obtain(ctx, "a", time.Minute, nil)
				ended <- err
			}()
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			Expect(locks.Close()).To(Succeed())
			Expect(has(ctx, 2)).To(BeZero(), "closed after %d × 200 µs", i)
			err := <-ended
			Expect(errors.Is(err, redislock.ErrClosed) || err == redislock.ErrNotObtained).To(BeTrue(), "%v", err)
		}
		for _, s := range on.Servers[:2] {
			Expect(s.Own.Del(ctx, "a").Err()).To(Succeed())
		}
		on.Break(0, anyones("release", 0, faultproxy.DelayRequest(300*time.Millisecond)))
		for i := 1; i < 3; i++ {
			on.Break(i, anyones("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond)))
		}
		for range 20 {
			locks := on.Connect()
			ended := make(chan error, 1)
			go func() {
				_, err := locks.Obtain(ctx, "b", time.Minute, nil)
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond)
			Expect(locks.Close()).To(Succeed())
			Expect(on.LeftKeys(ctx)).To(BeEmpty())
			Eventually(ended).Should(Receive(MatchError(redislock.ErrClosed)))
		}
	})
})

var _ = Describe("Across slots, an obtain that tries again", Label(spec.InMemory), func() {
	DescribeTable("ends with the error of a slot in the middle", func(ctx SpecContext, fail func(ctx context.Context, s *spec.MemoryServer, own *redis.Client)) {
		servers := []*spec.MemoryServer{spec.NewMemoryServer(), spec.NewMemoryServer(), spec.NewMemoryServer()}
		var own []*redis.Client
		for _, s := range servers {
			DeferCleanup(s.End)
			client := s.Connect(0, nil)
			DeferCleanup(client.Close)
			own = append(own, client)
		}
		cluster := spec.NewMemoryCluster(servers, spec.Ours, nil)
		DeferCleanup(cluster.Close)
		locks := redislock.New(cluster)
		DeferCleanup(locks.Close)
		Expect(own[1].Set(ctx, "b", "other", time.Minute).Err()).To(Succeed())
		ended := make(chan error, 1)
		go func() {
			_, err := locks.ObtainMulti(spec.Within(ctx, 30*time.Second), []string{"a", "b", "c"}, time.Minute,
				&redislock.Options{AcrossSlots: true, RetryStrategy: redislock.LinearBackoff(50 * time.Millisecond)})
			ended <- err
		}()
		time.Sleep(300 * time.Millisecond)
		fail(ctx, servers[1], own[1])
		var err error
		Eventually(ended).WithTimeout(8 * time.Second).Should(Receive(&err))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(err).NotTo(MatchError(ContainSubstring(`"c"`)), "which was not asked")
		Eventually(own[0].Exists).WithArguments(ctx, "a").Should(HaveField("Val()", BeZero()))
	},
		Entry("that answers with one", func(ctx context.Context, _ *spec.MemoryServer, own *redis.Client) {
			Expect(own.RPush(ctx, "list", "x").Err()).To(Succeed())
			Expect(own.Rename(ctx, "list", "b").Err()).To(Succeed())
		}),
		Entry("that is dead", func(_ context.Context, s *spec.MemoryServer, _ *redis.Client) { s.Kill() }),
	)
})
