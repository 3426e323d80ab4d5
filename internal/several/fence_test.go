package several_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// joining returns what matches an obtain of one key that brings a place to a lock that is made already: it wants no
// fencing token.
func joining() func(args []string) bool {
	const keys, fenced = 3, 4 // where they begin, and ARGV[5] among the arguments
	obtains := spec.Running("obtain")
	return func(args []string) bool {
		n, _ := strconv.Atoi(args[keys-1])
		return obtains(args) && args[keys+n+fenced] == "0"
	}
}

var _ = spec.DescribeQuorum("a fencing token", func(on *spec.Quorum) {
	opt := &redislock.Options{FenceKey: "fence", Queue: true}

	It("needs one round trip, also after a long wait in line", func(ctx SpecContext) {
		raised, joined := on.CountCalls(spec.Running("fence")), on.CountCalls(joining())
		lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		granted := make(chan *redislock.Lock)
		go func() {
			defer GinkgoRecover()
			defer close(granted)
			granted <- spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		}()
		time.Sleep(3 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		var next *redislock.Lock
		Eventually(granted).Should(Receive(&next))
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), next.Token())))
		Expect(raised.Count()).To(BeNumerically("<=", joined.Count()), "only where the release came after the obtain")
		Expect(next.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		for _, s := range on.Servers {
			Expect(s.Own.Get(ctx, "fence").Int64()).To(Equal(next.FenceToken()), s.Name)
		}
		Expect(next.Release(ctx)).To(Succeed())
	})
})

var _ = describeSchedules("a fence counter", func(on *schedule) {
	It("of a server is raised before the server counts", func(ctx SpecContext) {
		for _, s := range on.Servers { // the clock of one client is 0.9 s ahead, and a server misses its lock
			s.Memory.SkewClock(spec.Ours, 900*time.Millisecond)
		}
		on.Break(2, noRequests, theirs("obtain", 0, faultproxy.DelayRequest(5*time.Millisecond))) // the others are a majority before it
		opt := &redislock.Options{FenceKey: "fence"}
		Expect(spec.Obtain(ctx, on.Locks, time.Minute, opt, "a").Release(ctx)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		lost := on.Servers[2].Memory.Add(theirs("fence", 0, requestLost))
		lock := spec.Obtain(ctx, on.other, time.Minute, opt, "a")
		time.Sleep(100 * time.Millisecond)
		Expect(lost.Count()).To(BeNumerically(">", 0))
		lost.Remove()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(20 * time.Millisecond)
		on.Servers[0].Memory.Memory.FlushAll() // the others have confirmed the lock for as long as it is valid
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(20 * time.Millisecond)
		on.Servers[1].Memory.Refuse()
		DeferCleanup(on.Servers[1].Memory.Revive)
		last := spec.Obtain(ctx, on.other, time.Minute, opt, "a")
		Expect(last.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		Expect(last.Release(ctx)).To(Succeed())
	})

	It("that is not raised, because a hook panics, keeps the server from counting", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, 3*time.Second, fenced, "a")
		var panics atomic.Bool
		on.Servers[2].Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
			if spec.Running("fence")(spec.Words(cmd)) && panics.CompareAndSwap(true, false) {
				panic("a hook")
			}
		}})
		panics.Store(true)
		on.Servers[2].Memory.Memory.FlushAll()
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(5 * time.Second)
		Expect(panics.Load()).To(BeFalse())
		Expect(on.Servers[2].Own.Get(ctx, "fence").Int64()).To(Equal(lock.FenceToken()))
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("that others have raised does not keep a late grant from counting", func(ctx SpecContext) {
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

	Context("that is behind at a server:", func() {
		opt := &redislock.Options{FenceKey: "fence"}

		BeforeEach(func(ctx SpecContext) {
			for _, s := range on.Servers { // the clock of one client is 0.9 s ahead, and server 2 misses its lock
				s.Memory.SkewClock(spec.Ours, 900*time.Millisecond)
			}
			on.Break(2, ours("obtain", 0, requestLost), ours("release", 0, requestLost),
				theirs("obtain", 0, faultproxy.DelayRequest(5*time.Millisecond))) // the others are a majority before it
			Expect(spec.Obtain(ctx, on.Locks, time.Minute, opt, "a", "b").Release(ctx)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			on.Servers[2].Memory.Add(anyones("fence", 0, requestLost)) // nothing raises the counter
		})

		It("a Release frees a key that it still has after another one was taken there", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, on.other, time.Hour, opt, "a", "b")
			on.Break(2, theirs("obtain", 0, faultproxy.DelayRequest(50*time.Millisecond))) // the server is asked again at once
			Eventually(on.Values).WithArguments(ctx, "b").Should(Equal(spec.Same(3, lock.Token())))
			Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			time.Sleep(time.Second) // it has refused
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		})

		It("a Release frees such a key also while the server is being asked again", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, on.other, time.Hour, opt, "a", "b")
			time.Sleep(20 * time.Second)
			Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			on.Break(2, theirs("obtain", 0, faultproxy.DelayRequest(200*time.Millisecond)))
			Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
			time.Sleep(50 * time.Millisecond)
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(time.Second)
			Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		})
	})
})

var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "a fence counter", func(on *spec.Quorum) {
	It("that could not be raised at first is raised later, and the mend counts", func(ctx SpecContext) {
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

	It("of a server that has missed a grant is that of the others after the next one", func(ctx SpecContext) {
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
