package several_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

// Schedules on fake time that a reviewer has found. Before, the first two led to two valid holders.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "what comes late", func(on *spec.Quorum) {
	BeforeEach(func() {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
	})

	It("takes no hold away that a renewal has obtained since: the answer to the call that asked a server again",
		func(ctx SpecContext) {
			locks, others := on.ConnectAs(spec.Ours, nil), on.ConnectAs(spec.Theirs, nil)
			Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			refuseOnce(ctx, on)
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

	It("takes no hold away that a repair obtains: the release of what joined a lapsed lock", func(ctx SpecContext) {
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
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed()) // begins the repair
		at(20100 * time.Millisecond)
		Expect(stalled.Load()).To(BeTrue())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
		at(25 * time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
	})

	It("keeps a lock when another server dies: a grant after others have minted larger fencing tokens", func(ctx SpecContext) {
		locks, others := on.ConnectAs(spec.Ours, nil), on.ConnectAs(spec.Theirs, nil)
		Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		Expect(spec.Obtain(ctx, others, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond)))
		opt := &redislock.Options{FenceKey: "fence"} // all locks share it
		lock := spec.Obtain(ctx, locks, time.Second, opt, "a")
		other := spec.Obtain(ctx, others, time.Second, opt, "b")
		Expect(other.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(other.Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.Servers[0].Memory.Refuse()
		DeferCleanup(on.Servers[0].Memory.Revive)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(3 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(58*time.Second)))
		Expect(lock.Release(ctx)).To(Succeed())
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
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
		on.Servers[0].Memory.Revive()
		Expect(<-refreshed).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 1, "a Release for whose cleanup there was no room", func(on *spec.Quorum) {
	It("does not free the keys of the next lock with the same custom token", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		on.Break(0, ours("release", 0, faultproxy.DelayRequest(100*time.Millisecond)))
		DeferCleanup(spec.FillCleanups(on.Locks))
		Expect(lock.Release(spec.Within(ctx, 10*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		lock = spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(on.Servers[0].Memory.Has(lock, 59*time.Second)).To(BeTrue())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a server that has missed a grant", func(on *spec.Quorum) {
	It("has the fence counter of the others after the next one", func(ctx SpecContext) {
		for i := range on.Servers { // the clock of one client is 0.9 s ahead
			on.Break(i)
			on.Servers[i].Memory.SkewClock(spec.Ours, 900*time.Millisecond)
		}
		ahead := on.ConnectAs(spec.Ours, func(opt *redis.Options) { opt.MaxRetries, opt.DialerRetries = -1, 1 })
		right := on.ConnectAs(spec.Theirs, nil)
		Expect(spec.Obtain(ctx, right, time.Second, nil, "warm").Release(ctx)).To(Succeed())
		opt := &redislock.Options{FenceKey: "fence"}
		on.Servers[2].Memory.Refuse()
		Expect(spec.Obtain(ctx, ahead, time.Minute, opt, "a").Release(ctx)).To(Succeed())
		time.Sleep(200 * time.Millisecond)
		on.Servers[2].Memory.Revive()
		time.Sleep(20 * time.Millisecond)
		lock := spec.Obtain(ctx, right, time.Minute, opt, "a")
		time.Sleep(200 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(20 * time.Millisecond)
		Expect(on.Servers[0].Own.FlushAll(ctx).Err()).To(Succeed())
		on.Servers[1].Memory.Refuse()
		DeferCleanup(on.Servers[1].Memory.Revive)
		last := spec.Obtain(ctx, right, time.Minute, opt, "a")
		Expect(last.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(last.Release(ctx)).To(Succeed())
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a grant that comes when it has lapsed", func(on *spec.Quorum) {
	It("is given back, although the obtain has ended long before", func(ctx SpecContext) {
		if spec.Together {
			Skip("this is a schedule of calls that go by themselves")
		}
		locks, other := twoClients(ctx, on, func(opt *redis.Options) { opt.ReadTimeout = time.Minute })
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
