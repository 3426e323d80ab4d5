package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// ttl returns the remaining ttl that enough places have at least.
func (h *several) ttl(ctx context.Context) (time.Duration, error) {
	type answer struct {
		left time.Duration
		err  error
	}
	free, stop := detached(ctx)
	defer stop()
	p := h.newPoll()
	refreshing := h.isRefreshing()
	var left []time.Duration
	brief, enough := context.WithCancel(free)
	defer enough()
	sideBySide(h.numbers(), func(i int) answer {
		lock, _ := h.await(brief, i)
		if lock == nil {
			return answer{err: errNoHold}
		}
		left, err := lock.ttl(free)
		return answer{left, err}
	}, func(i int, a answer) bool {
		switch {
		case a.err != nil:
			return p.note(i, a.err)
		case a.left == 0:
			return p.note(i, ErrLockNotHeld)
		}
		left = append(left, a.left)
		return p.note(i, nil)
	})
	err := p.err(ctx, "ttl", ErrLockNotHeld)
	switch {
	case errors.Is(err, ErrLockNotHeld):
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

// isRefreshing reports whether some places have not answered a Refresh yet. The Refresh may have returned.
func (h *several) isRefreshing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.busy > 0
}

// refresh refreshes all holds, and obtains those again that are missing once enough have been refreshed.
func (h *several) refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	if h.wasReleased() {
		return ErrNotObtained
	}
	metadata := ""
	if opt != nil {
		metadata = opt.Metadata
	}
	valid, stop := whileValid(ctx, h, lateAnswer)
	defer stop()
	cut, err := retry(valid, nil, opt.strategy(), until(h), func() (bool, error) {
		return h.tryRefresh(ctx, valid, ttl, metadata)
	})
	if cut {
		err = failed("refresh", h.keys, fmt.Errorf("%w; the last try: %w", outlived(ctx), err))
	}
	if err != nil {
		h.check(ctx)
	}
	return err
}

// tryRefresh refreshes all holds once. It reports whether that failed in a way that makes another try worthwhile. valid
// comes from whileValid.
func (h *several) tryRefresh(ctx, valid context.Context, ttl time.Duration, metadata string) (again bool, err error) {
	free, stop := detached(valid)
	defer stop()
	p := h.newPoll()
	numbers := h.numbers()
	h.mu.Lock()
	lapsed, lapsedAt := lease.Passed(h.untilLocked()), h.lapsedAt
	for i := range h.at {
		switch {
		case !lapsed || !h.at[i].isStuck():
		case h.places.quorum:
			h.at[i].distrust()
		default: // nothing would make the place count again
			h.mu.Unlock()
			return false, ErrNotObtained
		}
	}
	h.busy += len(numbers)
	h.last.ttl = ttl
	if metadata != "" {
		h.last.metadata = metadata
	}
	h.mu.Unlock()
	var confirmed atomic.Bool // by enough places
	brief, enough := context.WithCancel(free)
	defer enough()
	sideBySide(numbers, func(i int) error {
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.busy--
		}()
		if lock, _ := h.await(brief, i); lock == nil {
			return errNoHold
		}
		err := h.refreshAt(free, i, lastRefresh{ttl, metadata})
		if err != nil && confirmed.Load() { // too late to be mended below
			h.mend()
		}
		return err
	}, p.note)
	err = p.err(ctx, "refresh", ErrNotObtained)
	switch {
	case err == nil:
		confirmed.Store(true)
		return false, h.refreshed(lapsedAt, metadata)
	case errors.Is(err, ErrNotObtained):
		return false, err
	case ended(valid) != nil:
		return false, failed("refresh", h.keys, outlived(ctx))
	case !slices.ContainsFunc(p.errs, func(err error) bool {
		return !errors.Is(err, errLate) && (!lapsed || !errors.Is(err, errUnproven))
	}):
		return false, fmt.Errorf("%w: %w", ErrNotObtained, err)
	}
	return true, err
}

// refreshed notes that enough holds have been refreshed. lapsedAt is of the time when the Refresh began; see revive.
func (h *several) refreshed(lapsedAt time.Time, metadata string) error {
	h.life.mu.Lock()
	if h.released.IsZero() { // otherwise a Release has ended it meanwhile, and nothing may be obtained again
		h.mu.Lock()
		if h.revive(lapsedAt) {
			h.ended, h.told = nil, false
			h.over, h.shown = false, h.end
		}
		h.mu.Unlock()
	}
	h.renewErr = nil
	if metadata != "" {
		h.metadata = metadata
	}
	h.life.mu.Unlock()
	h.mend()
	if lease.Passed(h.until()) {
		return ErrNotObtained
	}
	return nil
}

// refreshAt refreshes the hold at one place. If the place is obtained again meanwhile, it refreshes the new hold as well:
// what it has learned about the old one says nothing about that. The new hold gets what the last Refresh has asked for.
func (h *several) refreshAt(ctx context.Context, i int, want lastRefresh) (err error) {
	sent := time.Now()
	var lock *hold
	for now := h.lockAt(i); now != lock; now, want = h.replaced(i) {
		lock = now
		err = lock.refresh(ctx, want.ttl, &Options{Metadata: want.metadata})
		if err == ErrNotObtained && lock.whyLost() == nil {
			err = errLate
		}
	}
	return h.confirm(i, sent, err)
}

// The errors of a refresh at one place.
var (
	errLate     = errors.New("the answer came too late to be relied on")
	errUnproven = errors.New("the keys may have been acquired anew")
)

// confirm notes what a place has answered to a request that was sent at that time. It returns err, or errUnproven if the
// place has the keys and they do not count.
func (h *several) confirm(i int, sent time.Time, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := &h.at[i]
	lost := h.lostAt(i, err)
	if err == nil || lost != nil {
		h.places.all[i].health.answers(time.Now())
	}
	h.untilLocked() // the lease of the hold may have moved
	if err == nil {
		at.heard, at.lost, at.failing = sent, nil, false
		if h.proves(i) {
			at.missing = time.Time{}
		} else {
			err = errUnproven
		}
		if h.keeping != nil && at.stop == nil && at.lock != nil && !at.unproven { // its renewals ended when it lapsed
			h.keepAt(i)
		}
	} else if lost != nil {
		at.missing, at.without, at.lost = sent, time.Now(), lost
	}
	return err
}

// free releases all holds.
func (h *several) free(ctx context.Context, _, _ time.Time) error {
	h.mu.Lock()
	h.over = true
	for i := range h.at {
		if at := &h.at[i]; at.stray && at.lock == nil {
			at.stray = false
			h.giveBack(ctx, i, h.obtained, true)
		}
	}
	h.mu.Unlock()
	free, stop := detached(ctx)
	defer stop()
	p := h.newPoll()
	numbers := h.numbers()
	for i := range h.at {
		if !slices.Contains(numbers, i) {
			p.note(i, ErrLockNotHeld)
		}
	}
	// Enough places may answer before others, whose releases then go on. Close waits for these.
	for _, i := range numbers {
		h.places.all[i].calls.Add(1)
	}
	brief, enough := context.WithCancel(free)
	defer enough()
	sideBySide(numbers, func(i int) error {
		defer h.places.all[i].calls.Add(-1)
		lock, late := h.await(brief, i)
		switch {
		case late: // it is on its way back
			return nil
		case lock == nil:
			return ErrLockNotHeld
		}
		err := release(free, lock)
		h.mu.Lock()
		defer h.mu.Unlock()
		at := &h.at[i]
		if at.stray { // only now: of two releases at a time, neither could tell which of them has freed the keys
			at.stray = false
			h.giveBack(ctx, i, h.obtained, true)
		}
		switch {
		case err == nil:
			at.freed = true
		case err == ErrLockNotHeld && at.freed:
			err = nil // an earlier Release has freed it, but not enough others
		}
		return err
	}, p.note)
	err := p.err(ctx, "release", ErrLockNotHeld)
	if err == nil || errors.Is(err, ErrLockNotHeld) {
		h.mu.Lock()
		for i := range h.at {
			h.at[i].freed = false
		}
		h.mu.Unlock()
	}
	if errors.Is(err, ErrLockNotHeld) {
		tellLost(ctx, h, lostKeys(h.keys, err), h.lossCause(), err)
	}
	return err
}
