package several_test

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

// tellsOnce runs specs of a Tracer of a Client whose locks live on several places. It gets one event for what a caller
// does, with the keys of the caller, and not one for each place; only of a cleanup, it gets one for each of so many places.
// connect returns a Client with that Tracer and one without, and remove deletes a key at all places.
func tellsOnce(
	keys []string, places func() int, opt redislock.Options, connect func(*redislock.Tracer) (traced, other *redislock.Client),
	remove func(ctx context.Context, key string),
) {
	var seen *spec.Recorder
	var locks, other *redislock.Client
	with := func(change func(*redislock.Options)) *redislock.Options {
		opt := opt
		change(&opt)
		return &opt
	}
	BeforeEach(func() {
		seen = &spec.Recorder{}
		locks, other = connect(seen.Tracer())
	})
	// expectNoMore expects that no event follows so many.
	expectNoMore := func(events int) {
		GinkgoHelper()
		Eventually(seen.Count).Should(Equal(events))
		Consistently(seen.Count).WithTimeout(300*time.Millisecond).Should(Equal(events), "%+v", seen.Events)
	}

	It("gets ObtainStart, ObtainEnd, Refreshed and Released", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, with(func(o *redislock.Options) { o.Queue, o.FenceKey = true, "fence" }), keys...)
		Expect(spec.EventsOf[redislock.ObtainStart](seen)).To(Equal([]redislock.ObtainStart{
			{Keys: keys, TTL: time.Minute, Queue: true, Fenced: true},
		}))
		Expect(spec.EventsOf[redislock.ObtainEnd](seen)).To(HaveLen(1))
		end := spec.EventsOf[redislock.ObtainEnd](seen)[0]
		Expect(end.Keys).To(Equal(keys))
		Expect(end.Err).NotTo(HaveOccurred())
		Expect(end.Tries).To(Equal(1))
		Expect(end.Resends).To(BeZero())
		Expect(end.Until).To(BeTemporally("~", lock.Until(), time.Second))
		Expect(end.Fence).To(And(Equal(lock.FenceToken()), BeNumerically(">", 0)))
		time.Sleep(50 * time.Millisecond) // until it is everywhere

		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(spec.EventsOf[redislock.Refreshed](seen)).To(HaveLen(1))
		refreshed := spec.EventsOf[redislock.Refreshed](seen)[0]
		Expect(refreshed.Left).To(BeNumerically("~", time.Minute, 5*time.Second))
		refreshed.Left = 0
		Expect(refreshed).To(Equal(redislock.Refreshed{Keys: keys, TTL: time.Hour}))

		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		released := spec.EventsOf[redislock.Released](seen)
		Expect(released).To(HaveLen(2))
		Expect(released[0].Keys).To(Equal(keys))
		Expect(released[0].Held).To(BeNumerically(">", 0))
		Expect(released[0].Err).NotTo(HaveOccurred())
		Expect(released[1].Held).To(BeZero())
		Expect(released[1].Err).To(Equal(redislock.ErrLockNotHeld))
		expectNoMore(5)
	})

	It("gets Refused for each try, and ObtainEnd", func(ctx SpecContext) {
		spec.Obtain(ctx, other, time.Minute, nil, keys[0])
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, with(func(o *redislock.Options) {
			o.RetryStrategy = redislock.LimitRetry(redislock.LinearBackoff(10*time.Millisecond), 2)
		}))
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(spec.EventsOf[redislock.Refused](seen)).To(Equal([]redislock.Refused{
			{Keys: keys, Try: 1}, {Keys: keys, Try: 2}, {Keys: keys, Try: 3},
		}))
		Expect(spec.EventsOf[redislock.ObtainEnd](seen)).To(HaveLen(1))
		Expect(spec.EventsOf[redislock.ObtainEnd](seen)[0].Tries).To(Equal(3))
		Expect(spec.EventsOf[redislock.ObtainEnd](seen)[0].Err).To(Equal(redislock.ErrNotObtained))
	})

	It("gets CleanedUp for a waiter that gives up", func(ctx SpecContext) {
		spec.Obtain(ctx, other, time.Minute, nil, keys[0])
		// Between the first try and the next sign of life, no call is under way that could have something else cleaned up.
		_, err := locks.ObtainMulti(spec.Within(ctx, 500*time.Millisecond), keys, time.Minute,
			with(func(o *redislock.Options) { o.Queue = true }))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		refusals := len(spec.EventsOf[redislock.Refused](seen))
		Expect(refusals).To(BeNumerically(">", 0))
		expectNoMore(2 + refusals + places())
		expectCleanups(spec.EventsOf[redislock.CleanedUp](seen), keys, redislock.WhyLine)
	})

	It("gets Refreshed for each round of renewals, also after a Refresh to a shorter ttl", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, &opt, keys...)
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Refresh(ctx, 2*time.Second, nil)).To(Succeed())
		time.Sleep(3 * time.Second) // renewals after 0.66 s, 1.32 s, …
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		stop()
		renewals := spec.EventsOf[redislock.Refreshed](seen)[1:]
		Expect(len(renewals)).To(BeNumerically("~", 4, 1))
		for _, e := range renewals {
			Expect(e.Left).To(BeNumerically("~", 1300*time.Millisecond, 500*time.Millisecond))
			e.Left = 0
			Expect(e).To(Equal(redislock.Refreshed{Keys: keys, Renewal: true, TTL: 2 * time.Second}))
		}
	})

	It("gets Lost once for a loss that renewals find", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, 900*time.Millisecond, &opt, keys...)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(50 * time.Millisecond) // until it is everywhere
		remove(ctx, keys[1])
		Eventually(kept.Done()).Should(BeClosed())
		Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
		lost := spec.EventsOf[redislock.Lost](seen)[0]
		Expect(lost.Keys).To(Equal(keys))
		Expect(lost.LostKeys).To(Equal(keys[1:2]))
		Expect(lost.Cause).To(Equal(redislock.LossGone))
		Expect(lost.Held).To(BeNumerically(">", 0))
		Expect(lost.Err).To(MatchError(redislock.ErrLockNotHeld))
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal(keys[1:2]))
		time.Sleep(300 * time.Millisecond)
		failures := 0
		for _, e := range spec.EventsOf[redislock.Refreshed](seen) {
			if e.Err != nil {
				failures++
			}
		}
		Expect(failures).To(BeNumerically("<=", 1), "not one for each place")
		Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
		Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeZero())
	})

	It("gets Lost once for a loss that the Release finds", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, &opt, keys...)
		time.Sleep(50 * time.Millisecond) // until it is everywhere
		for _, key := range keys {
			remove(ctx, key)
		}
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		expectNoMore(4)
		Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
		lost := spec.EventsOf[redislock.Lost](seen)[0]
		Expect(lost.LostKeys).To(Equal(keys))
		Expect(lost.Held).To(BeNumerically(">", 0))
		Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeZero())
	})
}

// expectCleanups expects that each of the events is of a cleanup that has ended well, and that no other key was cleaned up.
func expectCleanups(events []redislock.CleanedUp, keys []string, why string) {
	GinkgoHelper()
	var all []string
	for _, e := range events {
		all = append(all, e.Keys...)
		e.Keys = nil
		Expect(e).To(Equal(redislock.CleanedUp{Why: why}))
	}
	slices.Sort(all)
	Expect(slices.Compact(all)).To(ConsistOf(keys))
}

var _ = spec.DescribeQuorum("a Tracer", func(on *spec.Quorum) {
	keys := []string{"a", "b"}
	tellsOnce(keys, func() int { return len(on.Servers) }, redislock.Options{}, func(t *redislock.Tracer) (traced, other *redislock.Client) {
		return on.Connect(redislock.WithTracer(t)), on.Locks
	}, func(ctx context.Context, key string) {
		for _, s := range on.Servers {
			s.Own.Del(ctx, key)
		}
	})

	Describe("of a Client that a majority does not answer", func() {
		var seen *spec.Recorder
		var locks *redislock.Client
		BeforeEach(func(ctx SpecContext) {
			on.Warm(ctx)
			seen = &spec.Recorder{}
			locks = on.Connect(redislock.WithTracer(seen.Tracer()))
		})
		cleanups := func() []redislock.CleanedUp { return spec.EventsOf[redislock.CleanedUp](seen) }

		It("gets CleanedUp for an obtain that is given up", func(ctx SpecContext) {
			on.Fail(on.Spare()+1, (*spec.Server).Hang)
			_, err := locks.ObtainMulti(spec.Within(ctx, 20*time.Millisecond), keys, time.Minute, nil)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			on.Fail(on.Spare()+1, (*spec.Server).Restore)
			Eventually(func() []string { return on.LeftKeys(ctx) }).WithTimeout(10 * time.Second).Should(BeEmpty())
			Eventually(cleanups).WithTimeout(10 * time.Second).Should(HaveLen(len(on.Servers)))
			expectCleanups(cleanups(), keys, redislock.WhyAbandoned)
			Consistently(seen.Count).WithTimeout(1500 * time.Millisecond).Should(Equal(2 + len(on.Servers)))
		})

		It("gets Released and CleanedUp for a release that is given up", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
			time.Sleep(50 * time.Millisecond) // until the Client knows that it is everywhere: a late grant is no cleanup
			Expect(on.Values(ctx, "b")).To(Equal(spec.Same(len(on.Servers), lock.Token())))
			on.Fail(on.Spare()+1, (*spec.Server).Hang)
			err := lock.Release(spec.Within(ctx, 50*time.Millisecond))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(spec.EventsOf[redislock.Released](seen)).To(HaveLen(1))
			Expect(spec.EventsOf[redislock.Released](seen)[0].Err).To(BeIdenticalTo(err))
			on.Fail(on.Spare()+1, (*spec.Server).Restore)
			hung := on.Spare() + 1
			Eventually(cleanups).WithTimeout(10 * time.Second).Should(HaveLen(hung))
			expectCleanups(cleanups(), keys, redislock.WhyRelease)
			Consistently(seen.Count).WithTimeout(300 * time.Millisecond).Should(Equal(3 + hung))
		})

		It("gets Refreshed for each round of failed renewals, and Lost when the validity ends", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, 2*time.Second, nil, keys...)
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			on.Fail(on.Spare()+1, (*spec.Server).Kill)
			<-kept.Done()
			Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
			Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
			failures := spec.EventsOf[redislock.Refreshed](seen)
			for len(failures) > 0 && failures[0].Err == nil { // a renewal from before the servers were gone
				failures = failures[1:]
			}
			Expect(len(failures)).To(BeNumerically(">=", 2))
			for _, e := range failures {
				Expect(e.Keys).To(Equal(keys))
				Expect(e.Err).To(HaveOccurred())
			}
			Expect(spec.EventsOf[redislock.Lost](seen)[0].Cause).To(Equal(redislock.LossLapsed))
			on.Fail(on.Spare()+1, (*spec.Server).Restore)
		})
	})
})

var _ = func() bool {
	for _, n := range []int{3, 5} {
		spec.DescribeQuorumOf(spec.InMemory, n, "a Tracer", func(on *spec.Quorum) {
			It("gets Refreshed once for each round of renewals that a majority refuses", func(ctx SpecContext) {
				var mu sync.Mutex  // protects at
				var at []time.Time // when it got each of them
				locks := on.Connect(redislock.WithTracer(&redislock.Tracer{Refreshed: func(_ context.Context, e redislock.Refreshed) {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Now())
				}}))
				lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
				Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(n, lock.Token())))
				// They answer at once, so that no server has two renewals under way, which could fail together.
				on.Fail(on.Spare()+1, func(s *spec.Server) { s.Memory.Memory.SetError("ERR broken") })
				until := lock.Until()
				kept, stop := lock.KeepAlive(ctx)
				defer stop()
				<-kept.Done()
				mu.Lock()
				defer mu.Unlock()
				rounds := 0
				for rounds < len(at) && at[rounds].Before(until.Add(-5*time.Millisecond)) { // later, one may lapse before the others
					rounds++
				}
				Expect(rounds).To(BeNumerically(">=", 10))
				for i := range rounds - 1 { // the shortest pause before a server is asked again is 3 ms
					Expect(at[i+1].Sub(at[i])).To(BeNumerically(">", 2*time.Millisecond))
				}
				on.Fail(on.Spare()+1, func(s *spec.Server) { s.Memory.Memory.SetError("") })
			})
		})
	}
	return true
}()
