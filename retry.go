package redislock

import (
	"time"

	"github.com/redislock/redislock/internal/retry"
)

// RetryStrategy decides how long to wait before each further try. The strategies of this package start afresh for each
// Obtain and Refresh, so any number of calls and goroutines can share one value. The library uses a custom strategy as it
// is: if the strategy counts, give each call its own.
type RetryStrategy interface {
	// NextBackoff returns how long to wait before the next try. A value under 1 ns stops the retries.
	NextBackoff() time.Duration
}

// NoRetry tries once: 0, 0, 0, …
func NoRetry() RetryStrategy { return retry.Linear(0) }

// LinearBackoff waits the same time before each try: d, d, d, … without limit.
func LinearBackoff(d time.Duration) RetryStrategy { return retry.Linear(d) }

// ExponentialBackoff doubles the wait before each try: 4 ms, 8 ms, 16 ms, … A wait is never shorter than least and,
// unless most is 0, never longer than most. Do not make most shorter than least. The number of tries has no limit.
// ExponentialBackoff(10*time.Millisecond, 100*time.Millisecond) waits 10, 10, 16, 32, 64, 100, 100, … ms.
func ExponentialBackoff(least, most time.Duration) RetryStrategy {
	return retry.Exponential(least, most)
}

// LimitRetry stops s after limit retries, which is after limit+1 tries: LimitRetry(LinearBackoff(d), 2) waits d, d and
// then stops. A limit under 1 means one try. So does a nil s, which counts as [NoRetry].
func LimitRetry(s RetryStrategy, limit int) RetryStrategy { return retry.Limit(s, limit) }

// Jitter varies the waits of s at random, evenly over ± fraction of each, so that callers that were refused together do
// not try again together: Jitter(LinearBackoff(100*time.Millisecond), 0.2) waits between 80 and 120 ms. A fraction under
// 0 counts as 0, and one over 1 as 1. The number of tries is that of s. A nil s counts as [NoRetry].
func Jitter(s RetryStrategy, fraction float64) RetryStrategy { return retry.Jitter(s, fraction) }
