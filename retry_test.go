package redislock_test

import (
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
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

	It("are never stopped by Jitter, and stop with what it spreads", func() {
		Expect(next(redislock.Jitter(redislock.LinearBackoff(1), 7), 100)).To(HaveEach(BeNumerically(">=", 1)))
		Expect(next(redislock.Jitter(redislock.LinearBackoff(math.MaxInt64), 1), 100)).To(HaveEach(BeNumerically(">=", 1)))
		Expect(next(redislock.Jitter(redislock.NoRetry(), 1), 2)).To(HaveEach(BeZero()))
	})
})
