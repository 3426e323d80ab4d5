package retry

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// restarter is a strategy that counts, so calls cannot share it as it is.
type restarter interface {
	restart() Strategy // returns a new strategy like this one, with its count at 0
}

// Restart returns s as it was at its start. A strategy of the caller's own, and nil, stay as they are.
func Restart(s Strategy) Strategy {
	if r, ok := s.(restarter); ok {
		return r.restart()
	}
	return s
}

// orNone returns s, or a strategy that stops at once if s is nil.
func orNone(s Strategy) Strategy {
	if s == nil {
		return Linear(0)
	}
	return s
}

// Linear always waits the same time.
type Linear time.Duration

// NextBackoff is part of Strategy.
func (d Linear) NextBackoff() time.Duration { return time.Duration(d) }

type exponential struct {
	least, most time.Duration
	count       atomic.Int64 // tries so far
}

// Exponential returns a strategy that doubles the wait, from 4 ms on, within these bounds. A most of 0 is none.
func Exponential(least, most time.Duration) Strategy { return &exponential{least: least, most: most} }

func (b *exponential) NextBackoff() time.Duration {
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

func (b *exponential) restart() Strategy { return Exponential(b.least, b.most) }

type limited struct {
	strategy Strategy
	limit    int64
	count    atomic.Int64 // retries so far
}

// Limit returns a strategy that stops s after so many retries.
func Limit(s Strategy, retries int) Strategy {
	return &limited{strategy: orNone(s), limit: int64(retries)}
}

func (r *limited) NextBackoff() time.Duration {
	if r.count.Add(1) > r.limit {
		return 0
	}
	return r.strategy.NextBackoff()
}

func (r *limited) restart() Strategy {
	return &limited{strategy: Restart(r.strategy), limit: r.limit}
}

type jitter struct {
	strategy Strategy
	fraction float64
}

// Jitter returns a strategy that varies the waits of s at random, by up to that fraction of each.
func Jitter(s Strategy, fraction float64) Strategy {
	if !(fraction > 0) { // catches NaN
		fraction = 0
	}
	return jitter{strategy: orNone(s), fraction: min(fraction, 1)}
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

func (j jitter) restart() Strategy {
	return jitter{strategy: Restart(j.strategy), fraction: j.fraction}
}
