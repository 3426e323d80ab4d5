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

	"github.com/redislock/redislock/internal/spec"
)

// Schedules of a review of what the owner of a majority.Lock has to do, on fake time. Before, each of them broke a promise.
var _ = spec.DescribeQuorumOf(spec.InMemory, 3, "of the schedules of an owner,", func(on *spec.Quorum) {
	var other *redislock.Client // of another process
	opt := &redislock.Options{FenceKey: "fence"}

	// slowly makes the first request of a script that the first client sends to a server be answered late.
	slowly := func(i int, script string, d time.Duration) {
		var first atomic.Pointer[spec.Wire]
		var done atomic.Bool
		on.Fates(i, func(f *spec.Fate, w *spec.Wire, reply bool, data []byte) {
			switch {
			case w.Owner != 0:
			case !reply && spec.RunsScript(data, script):
				first.CompareAndSwap(nil, w)
			case reply && w == first.Load() && done.CompareAndSwap(false, true):
				f.Delay = d
			}
		})
	}
	everywhere := func(ctx context.Context, ttl time.Duration, opt *redislock.Options, keys ...string) *redislock.Lock {
		GinkgoHelper()
		lock := spec.Obtain(ctx, on.Locks, ttl, opt, keys...)
		Eventually(on.Values).WithArguments(ctx, keys[0]).Should(Equal(spec.Same(3, lock.Token())))
		return lock
	}

	BeforeEach(func(ctx SpecContext) {
		if spec.Together {
			Skip("these are schedules of calls that go by themselves")
		}
		DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
		other = on.ConnectAs(2, nil)
		on.Warm(ctx)
		lock := everywhere(ctx, time.Second, nil, "a")
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // from now on, the servers have the scripts
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		for i := range on.Servers {
			on.Fates(i, nil)
		}
	})

	It("a Refresh that was held up shortens no ttl that a later one has confirmed", func(ctx SpecContext) {
		for range 100 { // it is by chance which of the last two is sent first
			lock := everywhere(ctx, 10*time.Second, nil, "a")
			slowly(0, "refresh", 500*time.Millisecond)
			for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 10 * time.Second} {
				Expect(lock.Refresh(ctx, ttl, nil)).To(Succeed()) // without server 0, where the later ones wait for the first
			}
			time.Sleep(2500 * time.Millisecond)
			on.Servers[1].Memory.Memory.FlushAll() // the others have confirmed the lock for as long as it is valid
			expectExclusive(ctx, other, lock)
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
		}
	})

	It("a Refresh waits for the confirmation of a place that grants the obtain late", func(ctx SpecContext) {
		slowly(2, "obtain", 150*time.Millisecond)
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a") // by the others
		Expect(on.Servers[1].Own.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by 0 and 2
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("a Refresh does not wait for a place that refuses the obtain late", func(ctx SpecContext) {
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		slowly(2, "obtain", 150*time.Millisecond)
		began := time.Now()
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a") // by the others
		Expect(on.Servers[1].Own.Del(ctx, "a").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("a second Release counts a place where the first one has freed the keys", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, nil, "a")
		on.Servers[1].Hang()
		on.Servers[2].Hang()
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		Expect(lock.Release(brief)).To(MatchError(context.DeadlineExceeded)) // 0 has freed the keys
		on.Servers[1].Restore()
		brief, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		Expect(lock.Release(brief)).To(Succeed()) // by 0 and 1
		on.Servers[2].Restore()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("a Release frees a key that a place still has after another one was taken there", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, nil, "a", "b")
		Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // the place is asked again, and refuses
		time.Sleep(time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("a Release frees such a key also while the place is being asked again", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, nil, "a", "b")
		Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
		slowly(2, "obtain", 200*time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Servers[2].Own.Del(ctx, "b").Err()).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("a place counts as held although an older request says late that it had lost the keys", func(ctx SpecContext) {
		lock := everywhere(ctx, 3*time.Second, nil, "a")
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed())
		slowly(2, "refresh", 1500*time.Millisecond)
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		_, stop := lock.KeepAlive(ctx)
		time.Sleep(1200 * time.Millisecond) // a renewal has found that the keys are gone, and they were acquired again
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		time.Sleep(400 * time.Millisecond)
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(time.Second).Should(BeEmpty())
	})

	It("a Release frees a place that was not to count, because its fence counter could not be raised", func(ctx SpecContext) {
		lock := everywhere(ctx, time.Minute, opt, "a")
		on.Servers[2].Memory.Memory.FlushAll()
		Expect(on.Servers[2].Own.Set(ctx, "fence", "no number", 0).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token())))
		time.Sleep(100 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("a place does not count if a hook panics while its fence counter is raised", func(ctx SpecContext) {
		lock := everywhere(ctx, 3*time.Second, opt, "a")
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

	It("a lock that was found lost is not valid again when a place gets the keys back", func(ctx SpecContext) {
		lock := everywhere(ctx, 3*time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		slowly(0, "obtain", 1500*time.Millisecond)
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

	It("a Release goes on for as long as the keys last at a place that has missed a Refresh to a shorter ttl",
		func(ctx SpecContext) {
			lock := everywhere(ctx, time.Second, nil, "a")
			Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
			time.Sleep(100 * time.Millisecond)
			on.Servers[2].Memory.Refuse()
			Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
			Expect(lock.Release(ctx)).To(Succeed())
			time.Sleep(10 * time.Second)
			on.Servers[2].Memory.Revive()
			Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		})

	It("a place that gets the keys back by a Refresh has its metadata", func(ctx SpecContext) {
		for range 10 {
			lock := everywhere(ctx, time.Minute, nil, "a")
			on.Servers[2].Memory.Memory.FlushAll()
			Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "new"})).To(Succeed())
			Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token()+" new")))
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})

	It("a kept lock keeps no CPU busy after a Refresh that could not be sent", func(ctx SpecContext) {
		lock := everywhere(ctx, 10*time.Second, nil, "a")
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

// breaker is a hook that sends nothing while the bool is set.
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
