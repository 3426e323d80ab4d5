package life_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("KeepAlive", func(on *spec.Redis) {
	var locks *redislock.Client
	var lock *redislock.Lock

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		lock = spec.Obtain(ctx, locks, 300*time.Millisecond, nil, "a", "b")
	})

	It("keeps the lock for longer than its ttl, until stopped", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		stop()
		stop()
		Expect(kept.Err()).To(Equal(context.Canceled))
		Expect(context.Cause(kept)).To(Equal(context.Canceled))
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty(), "nobody renews it any more")
	})

	It("renews when a third of the validity has passed, and not at every chance", func(ctx SpecContext) {
		slow := spec.Obtain(ctx, locks, 3*time.Second, nil, "slow")
		Expect(slow.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the script is known from here on
		trips := &spec.PipelineCount{}
		on.Client.AddHook(trips)
		_, stop := slow.KeepAlive(ctx)
		defer stop()
		Consistently(trips.Count).WithTimeout(700 * time.Millisecond).Should(BeZero())
		Eventually(trips.Count).Should(Equal(1))
		Consistently(trips.Count).WithTimeout(700 * time.Millisecond).Should(Equal(1))
	})

	It("ends with its ctx, whose deadline is the cap on the hold", func(ctx SpecContext) {
		capped, cancel := context.WithTimeoutCause(ctx, 500*time.Millisecond, errors.New("enough"))
		defer cancel()
		kept, stop := lock.KeepAlive(capped)
		defer stop()
		Eventually(kept.Done()).Should(BeClosed())
		Expect(kept.Err()).To(Equal(context.DeadlineExceeded))
		Expect(context.Cause(kept)).To(MatchError("enough"))
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty())
	})

	DescribeTable("ends when the lock is lost, and tells why",
		func(ctx SpecContext, lose func(ctx context.Context), why string, keys ...string) {
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			lose(ctx)
			until := lock.Until()
			cause := ends(kept)
			Expect(time.Now()).To(BeTemporally("<=", until.Add(50*time.Millisecond)))
			Expect(cause).To(MatchError(redislock.ErrLockNotHeld))
			Expect(cause).To(MatchError(ContainSubstring(why)))
			if len(keys) > 0 {
				Expect(spec.LostKeys(cause)).To(Equal(keys))
			}
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
			Consistently(func() int64 { return on.Client.Exists(ctx, "b").Val() }).Should(BeZero(), "no renewal re-creates a key")
		},
		Entry("gone", func(ctx context.Context) { on.Client.Del(ctx, "a", "b") }, "is gone"),
		Entry("another's", func(ctx context.Context) { on.Client.Del(ctx, "b"); on.Client.Set(ctx, "a", "x", 0) }, `another holder has "a"`),
		Entry("one of two", func(ctx context.Context) { on.Client.Del(ctx, "b") }, "lost 1 of 2 keys", "b"),
		Entry("all the data", func(ctx context.Context) { on.Client.FlushAll(ctx) }, "is gone"),
	)

	It("ends when an explicit Refresh finds the lock lost", func(ctx SpecContext) {
		slow := spec.Obtain(ctx, locks, time.Hour, nil, "slow")
		kept, stop := slow.KeepAlive(ctx)
		defer stop()
		on.Client.Del(ctx, "slow")
		Expect(slow.Refresh(ctx, time.Hour, nil)).To(Equal(redislock.ErrNotObtained))
		Expect(kept.Err()).To(Equal(context.Canceled))
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("ends with Release, which is no loss", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(kept.Err()).To(Equal(context.Canceled))
		Expect(context.Cause(kept)).To(MatchError("redislock: the lock was released: context canceled"))
		Expect(context.Cause(kept)).To(MatchError(context.Canceled))
	})

	It("ends with Close", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(locks.Close()).To(Succeed())
		Expect(context.Cause(kept)).To(Equal(redislock.ErrClosed))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("may be called again, and renews while any of the contexts lives", func(ctx SpecContext) {
		first, stopFirst := lock.KeepAlive(ctx)
		second, stopSecond := lock.KeepAlive(ctx)
		stopFirst()
		Expect(first.Err()).To(Equal(context.Canceled))
		Consistently(second.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
		stopSecond()
		third, stopThird := lock.KeepAlive(ctx)
		defer stopThird()
		Consistently(third.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(third.Err()).To(Equal(context.Canceled))
	})

	It("renews with the ttl of the last Refresh, up or down", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Consistently(kept.Err).WithTimeout(500 * time.Millisecond).Should(Succeed())
		Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Hour, 2*time.Second))
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
		Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", 300*time.Millisecond))
	})

	It("leaves the metadata as it is", func(ctx SpecContext) {
		Expect(lock.Refresh(ctx, 300*time.Millisecond, &redislock.Options{Metadata: "m"})).To(Succeed())
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		Consistently(func() string { return on.Client.Get(ctx, "b").Val() }).WithTimeout(700 * time.Millisecond).
			Should(Equal(lock.Token() + " m"))
	})

	It("gives a key that has lost its expiry a ttl again, so that it expires when its holder dies", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		for range 3 {
			Expect(on.Client.Persist(ctx, "b").Val()).To(BeTrue(), "as tools do that move keys to another server")
			Eventually(func() time.Duration { return on.Client.PTTL(ctx, "b").Val() }).WithTimeout(5 * time.Second).
				Should(BeNumerically(">", 0))
		}
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		stop()
		Eventually(on.Keys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
	})

	It("costs no goroutine for a context derived from it", func(ctx SpecContext) {
		slow := spec.Obtain(ctx, locks, time.Hour, nil, "slow")
		kept, stop := slow.KeepAlive(ctx)
		before := runtime.NumGoroutine()
		for range 100 {
			_, cancel := context.WithCancel(kept)
			defer cancel()
		}
		Expect(runtime.NumGoroutine()).To(BeNumerically("<=", before))
		derived, cancel := context.WithTimeout(kept, time.Hour)
		defer cancel()
		stop()
		Expect(derived.Err()).To(Equal(context.Canceled))
	})

	DescribeTable("returns a context that has ended already",
		func(ctx SpecContext, lock func(ctx context.Context) *redislock.Lock, cause error) {
			kept, stop := lock(ctx).KeepAlive(ctx)
			Expect(kept.Err()).To(Equal(context.Canceled))
			Expect(context.Cause(kept)).To(MatchError(cause))
			stop()
		},
		Entry("nil", func(context.Context) *redislock.Lock { return nil }, redislock.ErrLockNotHeld),
		Entry("released", func(ctx context.Context) *redislock.Lock { _ = lock.Release(ctx); return lock }, redislock.ErrLockNotHeld),
		Entry("lost", func(ctx context.Context) *redislock.Lock {
			on.Client.Del(ctx, "a", "b")
			_ = lock.Refresh(ctx, time.Hour, nil)
			return lock
		}, redislock.ErrLockNotHeld),
		Entry("attached", func(ctx context.Context) *redislock.Lock {
			attached, err := locks.Attach(ctx, []string{"a", "b"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			return attached
		}, redislock.ErrInvalid),
		Entry("closed", func(context.Context) *redislock.Lock { _ = locks.Close(); return lock }, redislock.ErrClosed),
		Entry("past Until", func(context.Context) *redislock.Lock {
			Eventually(func() bool { return time.Now().After(lock.Until()) }).Should(BeTrue())
			return lock
		}, redislock.ErrLapsed),
	)

	It("refuses a nil ctx", func() {
		kept, stop := lock.KeepAlive(nil) //nolint:staticcheck // on purpose
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrInvalid))
	})

	It("keeps an attached lock after its first Refresh", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "c", "d")
		attached, err := locks.Attach(ctx, held.Keys(), held.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, 2*time.Second, nil)).To(Succeed())
		refreshed := attached.Until()
		kept, stop := attached.KeepAlive(ctx)
		defer stop()
		Eventually(attached.Until).WithTimeout(2*time.Second).Should(BeTemporally(">", refreshed), "it is renewed")
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
	})

	It("renews many locks in few round trips, with the scripts flushed meanwhile", func(ctx SpecContext) {
		if on.Memory != nil {
			on.Memory.ClockTTL(false) // it looks at every key at every command
		}
		many := make([]*redislock.Lock, 500)
		kept := make([]context.Context, len(many))
		var all sync.WaitGroup
		for i := range many { // at the same time, so that a busy machine renews them together as well
			all.Go(func() {
				defer GinkgoRecover()
				many[i] = spec.Obtain(ctx, locks, 2*time.Second, nil, "many:"+strconv.Itoa(i))
			})
		}
		all.Wait()
		for i := range many {
			var stop context.CancelFunc
			kept[i], stop = many[i].KeepAlive(ctx)
			defer stop()
		}
		trips := &spec.PipelineCount{}
		on.Client.AddHook(trips)
		Consistently(func() error {
			for _, k := range kept {
				if err := k.Err(); err != nil {
					return context.Cause(k)
				}
			}
			return on.Client.ScriptFlush(ctx).Err()
		}).WithTimeout(4 * time.Second).WithPolling(300 * time.Millisecond).Should(Succeed())
		sent, calls := trips.Counts()
		Expect(calls).To(BeNumerically(">", 2000))
		Expect(calls / sent).To(BeNumerically(">=", 50))
	})

	It("works through a custom client type", func(ctx SpecContext) {
		own := redislock.New(&spec.Wrapper{Scripter: on.Client})
		lock := spec.Obtain(ctx, own, 300*time.Millisecond, nil, "own")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
	})
})

// ends waits for the end of a kept context and returns its cause.
func ends(kept context.Context) error {
	GinkgoHelper()
	Eventually(kept.Done()).WithTimeout(5 * time.Second).Should(BeClosed())
	Expect(kept.Err()).To(Equal(context.Canceled))
	return context.Cause(kept)
}
