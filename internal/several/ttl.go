package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/place"
)

// TTL returns the remaining ttl that enough places have at least.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	free, stop := place.Detached(ctx)
	defer stop()
	brief, enough := context.WithCancel(free)
	defer enough()
	p, refreshing := l.newPoll(), l.isRefreshing()
	sideBySide(l.places.numbers(), func(i int) answer {
		if l.await(brief, i); !l.isHeld(i) {
			return answer{err: errNoHold}
		}
		left, err := l.at[i].TTL(free)
		if err == nil && left == 0 {
			return answer{lost: l.at[i].Keys.Names, err: fault.ErrLockNotHeld}
		}
		return answer{left: left, err: err}
	}, p.note)
	err := p.err(ctx, "ttl", fault.ErrLockNotHeld)
	switch {
	case errors.Is(err, fault.ErrLockNotHeld):
		return 0, nil
	case err != nil:
		return 0, err
	}
	slices.Sort(p.left)
	least := p.left[len(p.left)-l.places.need]
	if refreshing || l.isRefreshing() { // the first answers may be those of places that the last refresh had not reached yet
		least = max(least, time.Until(l.until()).Truncate(time.Millisecond))
	}
	return least, nil
}

// isHeld reports whether a place has the keys, as far as is known.
func (l *Lock) isHeld(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lock.IsHeld(i)
}

// isRefreshing reports whether some places have not answered a Refresh yet. The Refresh may have returned.
func (l *Lock) isRefreshing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.at, func(at *record) bool { return at.refreshes.AreUnderWay() })
}
