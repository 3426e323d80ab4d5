package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// Free releases the keys at all places. until is the end of the validity before the Release.
func (h *Lock) Free(ctx context.Context, _, until time.Time) (life.Loss, error) {
	h.mu.Lock()
	if !h.over {
		h.over, h.counted = true, until
		for i, at := range h.at {
			switch {
			case at.had || at.Obtained == 0: // another handle may have got the keys back
				at.releases = true
			case h.lock.IsAcquiring(i): // acquired releases what the place grants (10b)
			case h.lock.MayAcquire(i):
				h.giveBack(ctx, i)
			}
		}
		h.lock.End()
	}
	p := h.newPoll()
	var asked, others []int // the places whose answers count, and those that are released as well
	for i, at := range h.at {
		switch {
		case !at.releases && at.coming == nil:
			p.noteLost(i, at.Keys.Names)
		case at.isLost():
			p.noteLost(i, at.Keys.Names)
			others = append(others, i)
		default:
			asked = append(asked, i)
		}
	}
	if p.isDecided() { // the lock was found lost, and no answer changes that
		asked, others = nil, append(others, asked...)
	}
	until = h.counted // as the first Release: one of its unanswered requests may have freed the keys
	h.mu.Unlock()
	free, stop := place.Detached(ctx)
	defer stop()
	// Free returns when enough places have answered. The other releases go on, and Close waits for them.
	for _, i := range slices.Concat(asked, others) {
		h.places.all[i].Calls.Add(1)
	}
	brief, enough := context.WithCancel(free)
	defer enough()
	now := time.Now()
	release := func(i int) reply {
		defer h.places.all[i].Calls.Add(-1)
		if h.at[i].releases {
			return h.freeAt(free, i, now, until)
		}
		return h.awaitFreed(brief, i)
	}
	for _, i := range others {
		transport.Go(func() { // ends with the call
			guarded(func() { release(i) }, func(*panicked) {})
		})
	}
	sideBySide(asked, release, p.note)
	err := p.err(ctx, "release", fault.ErrLockNotHeld)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || errors.Is(err, fault.ErrLockNotHeld) {
		for _, at := range h.at {
			at.freed = false
		}
	}
	return life.Loss{Cause: h.lossCause(), Keys: p.loss.Keys}, err
}

// isLost reports whether the place has said that all keys are lost. Then the answer to the release says nothing new: keys
// that requests have acquired since do not count, and a guard that is closed does not say which keys were gone. An attached
// lock does not know that, because another handle may have got the keys back.
func (at *record) isLost() bool { return at.Obtained > 0 && len(at.lost) == len(at.Keys.Names) }

// freeAt releases the keys at one place.
func (h *Lock) freeAt(ctx context.Context, i int, now, until time.Time) reply {
	at := h.at[i]
	h.mu.Lock()
	longest := h.longest(i)
	h.mu.Unlock()
	loss, err := at.Free(ctx, now, until, longest)
	h.mu.Lock()
	defer h.mu.Unlock()
	at.taken = at.taken || loss.Cause == life.Taken
	switch {
	case err == nil:
		at.freed = true
	case err == fault.ErrLockNotHeld && at.freed:
		return reply{} // an earlier Release freed the keys here, but at too few places
	}
	return reply{lost: loss.Keys, err: err}
}

// awaitFreed waits for a place that had not answered the obtain when the lock was released. acquired releases what that
// place grants.
func (h *Lock) awaitFreed(ctx context.Context, i int) reply {
	h.await(ctx, i)
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.at[i]; at.coming != nil || at.lost != nil {
		return reply{lost: at.Keys.Names, err: fault.ErrLockNotHeld}
	}
	return reply{}
}
