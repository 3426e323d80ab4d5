package redislock

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// RetryStrategy decides how long to wait before each further try. The strategies of this package start afresh for each
// Obtain and Refresh, so any number of calls and goroutines can share one value. The library uses a custom strategy as it
// is: if the strategy counts, give each call its own.
type RetryStrategy interface {
	// NextBackoff returns how long to wait before the next try. A value under 1 ns stops the retries.
	NextBackoff() time.Duration
}

// restarter is a strategy that counts, so calls cannot share it as it is.
type restarter interface {
	restart() RetryStrategy // returns a new strategy like this one, with its count at 0
}

// restart returns s as it was at its start, if s is a restarter; else s itself.
func restart(s RetryStrategy) RetryStrategy {
	if r, ok := s.(restarter); ok {
		return r.restart()
	}
	return s
}

// orNoRetry returns s, or NoRetry if s is nil, as in Options. Otherwise a nil strategy would panic at the first refusal.
func orNoRetry(s RetryStrategy) RetryStrategy {
	if s == nil {
		return NoRetry()
	}
	return s
}

type linearBackoff time.Duration

// NoRetry tries once: 0, 0, 0, …
func NoRetry() RetryStrategy {
	return linearBackoff(0)
}

// LinearBackoff waits the same time before each try: d, d, d, … without limit.
func LinearBackoff(d time.Duration) RetryStrategy {
	return linearBackoff(d)
}

func (d linearBackoff) NextBackoff() time.Duration {
	return time.Duration(d)
}

type exponentialBackoff struct {
	least, most time.Duration
	count       atomic.Int64 // tries so far
}

// ExponentialBackoff doubles the wait before each try: 4 ms, 8 ms, 16 ms, … A wait is never shorter than least and,
// unless most is 0, never longer than most. Do not make most shorter than least. The number of tries has no limit.
// ExponentialBackoff(10*time.Millisecond, 100*time.Millisecond) waits 10, 10, 16, 32, 64, 100, 100, … ms.
func ExponentialBackoff(least, most time.Duration) RetryStrategy {
	return &exponentialBackoff{least: least, most: most}
}

func (b *exponentialBackoff) NextBackoff() time.Duration {
	doublings := min(b.count.Add(1), 25) // at most 2^26 ms, which is 18.6 hours
	wait := time.Millisecond << (doublings + 1)
	switch {
	case wait < b.least:
		return b.least
	case b.most != 0 && wait > b.most:
		return b.most
	}
	return wait
}

func (b *exponentialBackoff) restart() RetryStrategy {
	return ExponentialBackoff(b.least, b.most)
}

type limitedRetry struct {
	strategy RetryStrategy
	limit    int64
	count    atomic.Int64 // retries so far
}

// LimitRetry stops s after limit retries, which is after limit+1 tries: LimitRetry(LinearBackoff(d), 2) waits d, d and
// then stops. A limit under 1 means one try. So does a nil s, which counts as [NoRetry].
func LimitRetry(s RetryStrategy, limit int) RetryStrategy {
	return &limitedRetry{strategy: orNoRetry(s), limit: int64(limit)}
}

func (r *limitedRetry) NextBackoff() time.Duration {
	if r.count.Add(1) > r.limit {
		return 0
	}
	return r.strategy.NextBackoff()
}

func (r *limitedRetry) restart() RetryStrategy {
	return &limitedRetry{strategy: restart(r.strategy), limit: r.limit}
}

type jitter struct {
	strategy RetryStrategy
	fraction float64
}

// Jitter varies the waits of s at random, evenly over ± fraction of each, so that callers that were refused together do
// not try again together: Jitter(LinearBackoff(100*time.Millisecond), 0.2) waits between 80 and 120 ms. A fraction under
// 0 counts as 0, and one over 1 as 1. The number of tries is that of s. A nil s counts as [NoRetry].
func Jitter(s RetryStrategy, fraction float64) RetryStrategy {
	if !(fraction > 0) { // catches NaN
		fraction = 0
	}
	return jitter{strategy: orNoRetry(s), fraction: min(fraction, 1)}
}

func (j jitter) NextBackoff() time.Duration {
	wait := j.strategy.NextBackoff()
	if wait < 1 {
		return wait
	}
	spread := float64(wait) * (1 + j.fraction*(2*rand.Float64()-1))
	if spread >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(time.Duration(spread), 1) // 0 would mean to stop
}

func (j jitter) restart() RetryStrategy {
	return jitter{strategy: restart(j.strategy), fraction: j.fraction}
}
