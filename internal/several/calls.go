package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
)

// TTL returns the remaining ttl that enough places have at least.
func (h *Lock) TTL(ctx context.Context) (time.Duration, error) {
	type answer struct {
		left time.Duration
		err  error
	}
	free, stop := place.Detached(ctx)
	defer stop()
	p := h.newPoll()
	refreshing := h.isRefreshing()
	var left []time.Duration
	brief, enough := context.WithCancel(free)
	defer enough()
	sideBySide(h.present(), func(i int) answer {
		if h.await(brief, i); !h.isHeld(i) {
			return answer{err: errNoHold}
		}
		left, err := h.at[i].TTL(free)
		return answer{left, err}
	}, func(i int, a answer) bool {
		switch {
		case a.err != nil:
			return p.note(i, nil, a.err)
		case a.left == 0:
			return p.note(i, h.at[i].Keys.Names, fault.ErrLockNotHeld)
		}
		left = append(left, a.left)
		return p.note(i, nil, nil)
	})
	err := p.err(ctx, "ttl", fault.ErrLockNotHeld)
	switch {
	case errors.Is(err, fault.ErrLockNotHeld):
		return 0, nil
	case err != nil:
		return 0, err
	}
	slices.SortFunc(left, func(a, b time.Duration) int { return int(min(max(b-a, -1), 1)) })
	least := left[h.places.need-1]
	if refreshing || h.isRefreshing() { // the first answers may be those of places that the last refresh had not reached yet
		least = max(least, time.Until(h.until()).Truncate(time.Millisecond))
	}
	return least, nil
}

// present returns the numbers of the places that have the keys, or may get them in a moment: see await.
func (h *Lock) present() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var numbers []int
	for i := range h.at {
		if h.lock.IsHeld(i) || h.at[i].coming != nil {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// isRefreshing reports whether some places have not answered a Refresh yet. The Refresh may have returned.
func (h *Lock) isRefreshing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.at {
		if h.at[i].refreshes.AreUnderWay() {
			return true
		}
	}
	return false
}

// Free releases the keys at all places. until is the end of the validity before the Release.
func (h *Lock) Free(ctx context.Context, _, until time.Time) (life.Loss, error) {
	h.mu.Lock()
	if !h.over {
		h.over, h.counted = true, until
		for i := range h.at {
			at := &h.at[i]
			switch {
			case h.lock.IsAcquiring(i): // it is given back when it has answered (10b)
			case at.hasSome() || h.obtained == 0: // another handle may have got them back
				at.releases = true
			case h.lock.MayAcquire(i):
				h.giveBack(ctx, i)
			}
		}
		h.lock.End()
	}
	p := h.newPoll()
	var numbers []int
	longest := make([]time.Duration, len(h.at))
	for i := range h.at {
		longest[i] = h.longest(i)
		if at := &h.at[i]; at.releases || at.coming != nil {
			numbers = append(numbers, i)
		} else {
			p.noteLost(i, at.Keys.Names)
		}
	}
	until = h.counted // also for a later Release: an unanswered request of the first may have freed the keys
	h.mu.Unlock()
	free, stop := place.Detached(ctx)
	defer stop()
	// Enough places may answer before others, whose releases then go on. Close waits for these.
	for _, i := range numbers {
		h.places.all[i].Calls.Add(1)
	}
	brief, enough := context.WithCancel(free)
	defer enough()
	now := time.Now()
	type freed struct {
		lost []string
		err  error
	}
	sideBySide(numbers, func(i int) freed {
		defer h.places.all[i].Calls.Add(-1)
		at := &h.at[i]
		if !at.releases {
			if err := h.awaitFreed(brief, i); err != nil {
				return freed{at.Keys.Names, err}
			}
			return freed{}
		}
		loss, err := at.Free(free, now, until, longest[i])
		h.mu.Lock()
		defer h.mu.Unlock()
		at.taken = at.taken || loss.Cause == life.Taken
		switch {
		case err == nil:
			at.freed = true
		case err == fault.ErrLockNotHeld && at.freed:
			return freed{} // by an earlier Release, but not enough others were
		}
		return freed{loss.Keys, err}
	}, func(i int, f freed) bool { return p.note(i, f.lost, f.err) })
	err := p.err(ctx, "release", fault.ErrLockNotHeld)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || errors.Is(err, fault.ErrLockNotHeld) {
		for i := range h.at {
			h.at[i].freed = false
		}
	}
	return life.Loss{Cause: h.lossCause(), Keys: p.loss.Keys}, err
}

// awaitFreed waits for a place that had not answered the obtain when the lock was released: see await. What it grants is on
// its way back then.
func (h *Lock) awaitFreed(ctx context.Context, i int) error {
	h.await(ctx, i)
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := &h.at[i]; at.coming != nil || at.lost != nil {
		return fault.ErrLockNotHeld
	}
	return nil
}
