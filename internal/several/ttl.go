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
func (h *Lock) TTL(ctx context.Context) (time.Duration, error) {
	free, stop := place.Detached(ctx)
	defer stop()
	brief, enough := context.WithCancel(free)
	defer enough()
	p, refreshing := h.newPoll(), h.isRefreshing()
	sideBySide(h.places.numbers(), func(i int) reply {
		if h.await(brief, i); !h.isHeld(i) {
			return reply{err: errNoHold}
		}
		left, err := h.at[i].TTL(free)
		if err == nil && left == 0 {
			return reply{lost: h.at[i].Keys.Names, err: fault.ErrLockNotHeld}
		}
		return reply{left: left, err: err}
	}, p.note)
	err := p.err(ctx, "ttl", fault.ErrLockNotHeld)
	switch {
	case errors.Is(err, fault.ErrLockNotHeld):
		return 0, nil
	case err != nil:
		return 0, err
	}
	slices.Sort(p.left)
	least := p.left[len(p.left)-h.places.need]
	if refreshing || h.isRefreshing() { // the first answers may be those of places that the last refresh had not reached yet
		least = max(least, time.Until(h.until()).Truncate(time.Millisecond))
	}
	return least, nil
}

// isHeld reports whether a place has the keys, as far as is known.
func (h *Lock) isHeld(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock.IsHeld(i)
}

// isRefreshing reports whether some places have not answered a Refresh yet. The Refresh may have returned.
func (h *Lock) isRefreshing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.at, func(at *record) bool { return at.refreshes.AreUnderWay() })
}
