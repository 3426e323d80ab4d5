package redislock_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

// next returns the first n waits of a strategy.
func next(s redislock.RetryStrategy, n int) []time.Duration {
	waits := make([]time.Duration, n)
	for i := range waits {
		waits[i] = s.NextBackoff()
	}
	return waits
}

var _ = Describe("Retry strategies", func() {
	const ms = time.Millisecond

	DescribeTable("wait", func(s redislock.RetryStrategy, want ...time.Duration) {
		Expect(next(s, len(want))).To(Equal(want))
	},
		Entry("never", redislock.NoRetry(), time.Duration(0), time.Duration(0)),
		Entry("linearly", redislock.LinearBackoff(time.Second), time.Second, time.Second, time.Second),
		Entry("exponentially", redislock.ExponentialBackoff(0, 0), 4*ms, 8*ms, 16*ms, 32*ms),
		Entry("exponentially within bounds", redislock.ExponentialBackoff(10*ms, 100*ms),
			10*ms, 10*ms, 16*ms, 32*ms, 64*ms, 100*ms, 100*ms),
		Entry("exponentially within bounds that cross", redislock.ExponentialBackoff(100*ms, 50*ms),
			100*ms, 100*ms, 100*ms, 100*ms, 100*ms, 50*ms, 50*ms),
		Entry("up to a limit", redislock.LimitRetry(redislock.LinearBackoff(time.Second), 2), time.Second, time.Second, time.Duration(0), time.Duration(0)),
		Entry("not at all for a limit of 0", redislock.LimitRetry(redislock.LinearBackoff(time.Second), 0), time.Duration(0)),
		Entry("not at all for a negative limit", redislock.LimitRetry(redislock.LinearBackoff(time.Second), -1), time.Duration(0)),
		Entry("not at all for a limit on nil", redislock.LimitRetry(nil, 2), time.Duration(0), time.Duration(0)),
		Entry("not at all for a jitter on nil", redislock.Jitter(nil, 0.5), time.Duration(0), time.Duration(0)),
		Entry("not at all for both on nil", redislock.Jitter(redislock.LimitRetry(nil, 2), 0.5), time.Duration(0)),
		Entry("as before with no jitter", redislock.Jitter(redislock.LinearBackoff(time.Second), 0), time.Second, time.Second),
		Entry("as before with an impossible jitter", redislock.Jitter(redislock.LinearBackoff(time.Second), math.NaN()), time.Second),
	)

	It("grow no further than 2^26 ms", func() {
		waits := next(redislock.ExponentialBackoff(0, 0), 100)
		Expect(waits[23:26]).To(Equal([]time.Duration{1 << 25 * ms, 1 << 26 * ms, 1 << 26 * ms}))
		Expect(waits[99]).To(Equal(1 << 26 * ms))
	})

	It("are spread by Jitter evenly, within the fraction", func() {
		s := redislock.Jitter(redislock.LinearBackoff(time.Second), 0.25)
		low, high := 0, 0
		for _, wait := range next(s, 1000) {
			Expect(wait).To(BeNumerically("~", time.Second, 250*ms))
			if wait < 875*ms {
				low++
			}
			if wait > 1125*ms {
				high++
			}
		}
		Expect(low).To(BeNumerically("~", 250, 100))
		Expect(high).To(BeNumerically("~", 250, 100))
	})

	It("are never stopped by Jitter, and stop when the strategy inside it does", func() {
		Expect(next(redislock.Jitter(redislock.LinearBackoff(1), 7), 100)).To(HaveEach(BeNumerically(">=", 1)))
		Expect(next(redislock.Jitter(redislock.LinearBackoff(math.MaxInt64), 1), 100)).To(HaveEach(BeNumerically(">=", 1)))
		Expect(next(redislock.Jitter(redislock.NoRetry(), 1), 2)).To(HaveEach(BeZero()))
	})
})

var _ = spec.DescribeOnRedis("Waiting by a strategy", func(on *spec.Redis) {
	var locks *redislock.Client
	var held *redislock.Lock
	var sent *spec.CallCount

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		held = spec.Obtain(ctx, locks, time.Minute, nil, "a")
		sent = spec.CountCalls(on.Client)
	})

	It("tries as often as the strategy says, and no more", func(ctx SpecContext) {
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{
			RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(time.Millisecond), 4),
		})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(sent.Count()).To(Equal(5))
	})

	DescribeTable("tries once where a strategy limits or spreads nil", func(ctx SpecContext, s redislock.RetryStrategy) {
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: s})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(sent.Count()).To(Equal(1))
	},
		Entry("LimitRetry", redislock.LimitRetry(nil, 3)),
		Entry("Jitter", redislock.Jitter(nil, 0.5)),
	)

	It("starts afresh with every call, so that Options can be shared", func(ctx SpecContext) {
		shared := &redislock.Options{RetryStrategy: redislock.LimitRetry(
			redislock.Jitter(redislock.ExponentialBackoff(0, time.Millisecond), 0.5), 3)}
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				defer GinkgoRecover()
				_, err := locks.Obtain(ctx, "a", time.Minute, shared)
				Expect(err).To(Equal(redislock.ErrNotObtained))
			})
		}
		wait.Wait()
		Expect(sent.Count()).To(Equal(5 * 4))
	})

	It("uses a custom strategy as it is", func(ctx SpecContext) {
		own := &spec.Countdown{Left: 2}
		opt := &redislock.Options{RetryStrategy: own}
		_, err := locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		_, err = locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(sent.Count()).To(Equal(3 + 1))
	})

	It("gets the lock once it is released", func(ctx SpecContext) {
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
			got <- err
		}()
		Eventually(sent.Count).Should(BeNumerically(">", 3))
		Expect(got).NotTo(Receive())
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(got).Should(Receive(BeNil()))
	})

	It("ends with ctx, and reports its error and cause", func(ctx SpecContext) {
		cause := errors.New("shutting down")
		ended, cancel := context.WithCancelCause(ctx)
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ended, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Hour)})
			got <- err
		}()
		Eventually(sent.Count).Should(Equal(1))
		cancel(cause)
		var err error
		Eventually(got).Should(Receive(&err))
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).To(MatchError(cause))
	})

	It("ends after one ttl where ctx has no deadline", func() {
		start := time.Now()
		_, err := locks.Obtain(context.Background(), "a", 50*time.Millisecond, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Millisecond),
		})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(start)).To(BeNumerically(">=", 50*time.Millisecond))
	})

	It("ends with ErrClosed when the Client is closed", func(ctx SpecContext) {
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Hour)})
			got <- err
		}()
		Eventually(sent.Count).Should(Equal(1))
		Expect(locks.Close()).To(Succeed())
		Eventually(got).Should(Receive(Equal(redislock.ErrClosed)))
	})
})
