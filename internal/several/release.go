package several

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// Free releases the keys at all places. until is the end of the validity before the Release. If a Release has found the lock
// lost, later ones say the same: what a request has acquired since did not count, and was given back.
func (h *Lock) Free(ctx context.Context, _, until time.Time) (life.Loss, error) {
	h.mu.Lock()
	if !h.over {
		h.giveUp(ctx, until)
	}
	p, before := h.newPoll(), h.foundLost
	var asked, others []int                   // the places whose answers decide, and those that are released as well
	ended := make([]chan struct{}, len(h.at)) // by place
	for i, at := range h.at {
		if at.releases {
			ended[i] = make(chan struct{})
			at.freeing = ended[i]
		}
		if at.counts {
			asked = append(asked, i)
			continue
		}
		p.noteLost(i, at.Keys.Names)
		if at.releases {
			others = append(others, i)
		}
	}
	if p.isDecided() || before != nil {
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
		if ended[i] == nil {
			return h.awaitFreed(brief, i)
		}
		defer close(ended[i])
		return h.freeAt(free, i, now, until)
	}
	for _, i := range others {
		transport.Go(func() { // ends with the call
			guarded(func() { release(i) }, func(*panicked) {})
		})
	}
	sideBySide(asked, release, p.note)
	if before != nil {
		return before.Loss, before.err
	}
	err := p.err(ctx, "release", fault.ErrLockNotHeld)
	h.mu.Lock()
	defer h.mu.Unlock()
	loss := life.Loss{Cause: h.lossCause(), Keys: p.loss.Keys}
	switch {
	case err == nil:
		for _, at := range h.at {
			at.freed = false
		}
	case p.isLost(): // otherwise the cause of a ctx may match ErrLockNotHeld
		h.foundLost = &lossFound{loss, err}
	}
	return loss, err
}

// giveUp ends the lock, and decides how a Release frees each place. The caller holds h.mu.
func (h *Lock) giveUp(ctx context.Context, until time.Time) {
	h.over, h.counted = true, until
	for i, at := range h.at {
		at.counts = h.counts(i)
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

// counts reports whether a Release counts how a place answers. If the place is known to have lost all keys, it does not: a
// guard that is closed does not say that keys were gone. The caller holds h.mu.
func (h *Lock) counts(i int) bool {
	switch at := h.at[i]; {
	case at.coming != nil, at.Obtained == 0: // see awaitFreed; and another handle may have got the keys back
		return true
	case h.lock.IsAcquiring(i):
		return false
	default:
		return at.had && (at.partly || len(at.lost) < len(at.Keys.Names))
	}
}

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
