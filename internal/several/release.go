package several

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// Free releases the keys at all places. until is the end of the validity before the Release. All calls share what is found
// at each place.
func (l *Lock) Free(ctx context.Context, until time.Time) (life.Loss, error) {
	l.mu.Lock()
	if !l.over {
		l.giveUp(until)
	}
	p := l.newPoll()
	var asked, others []int // the places whose answers decide, and those that are released as well
	for i, at := range l.at {
		switch {
		case at.counts:
			asked = append(asked, i)
		case at.had:
			others = append(others, i)
		default: // what late answers have taken, or may still take (10b)
			at.Drop(l.ctx, claim.Terms{Why: claim.Late, Lasts: l.longest(i)}, at.Keys.Names)
		}
		if !at.counts {
			p.noteLost(i, at.Keys.Names)
		}
	}
	if p.isDecided() {
		asked, others = nil, append(others, asked...)
	}
	l.mu.Unlock()
	free, stop := place.Detached(ctx)
	defer stop()
	// Free returns when enough places have answered. The other releases go on, and Close waits for them.
	for _, i := range slices.Concat(asked, others) {
		l.places.all[i].DetachedCalls.Add(1)
	}
	release := func(i int) answer { return l.releaseAt(free, i) }
	for _, i := range others {
		transport.Go(func() { // ends with the call
			catch(func() { release(i) }, func(*panicked) {})
		})
	}
	sideBySide(asked, release, func(i int, a answer) (enough bool) {
		enough = p.note(i, a)
		l.mu.Lock()
		defer l.mu.Unlock()
		return enough || l.found != nil
	})
	err := p.err(ctx, "release", fault.ErrLockNotHeld)
	l.mu.Lock()
	defer l.mu.Unlock()
	found := finding{life.Loss{Cause: l.lossCause(), Keys: p.loss.Keys}, err}
	switch {
	case l.found != nil:
		return l.found.Loss, l.found.err
	case p.isLost() && !l.places.quorum && len(p.errs) > 0: // other keys are not free
		found.Open = true
		found.err = fault.Failed("release", l.keys, fault.Joined(slices.Concat([]error{err}, p.errs)))
	case err == nil || p.isLost():
		l.found = &found
	}
	return found.Loss, found.err
}

// finding is what a Release has found, and its error.
type finding struct {
	life.Loss

	err error
}

// giveUp ends the lock, and decides which places a Release counts. The caller holds l.mu.
func (l *Lock) giveUp(until time.Time) {
	l.over, l.counted = true, until
	for i, at := range l.at {
		at.counts = l.counts(i)
		at.sure = at.hasSome() && l.lock.IsHeld(i) // it may not have answered for so long that its keys have expired
	}
	l.lock.End()
}

// counts reports whether a Release counts how a place answers. If the place is known to have lost all keys, it does not: a
// guard that is closed does not say that keys were gone. The caller holds l.mu.
func (l *Lock) counts(i int) bool {
	switch at := l.at[i]; {
	case at.coming != nil, at.Origin == claim.Attached: // another handle may have got the keys back
		return true
	case l.lock.IsAcquiring(i):
		return false
	default:
		return at.hasSome()
	}
}

// hasSome reports whether the place is known to have some of the keys. The caller holds Lock.mu.
func (r *record) hasSome() bool { return r.had && (r.partly || len(r.lost) < len(r.Keys.Names)) }

// releaseAt releases the keys at one place. If that has not answered the obtain yet, releaseAt also waits for what that
// takes, but for no longer than for a server that nobody knows yet. Then it counts as a place that has never had the keys.
func (l *Lock) releaseAt(ctx context.Context, i int) answer {
	at, limited := l.at[i], ctx
	defer at.Place.DetachedCalls.Add(-1)
	l.mu.Lock()
	until, longest, coming := l.counted, l.longest(i), at.coming
	l.mu.Unlock()
	if coming != nil {
		var leave context.CancelFunc
		limited, leave = context.WithCancel(ctx)
		defer leave()
		timer := time.AfterFunc(health.FirstPatience, func() {
			if !fault.IsClosed(coming) {
				leave()
			}
		})
		defer timer.Stop()
	}
	found, err := at.Free(limited, claim.Terms{Why: claim.Release, Until: until, Lasts: longest})
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return answer{lost: at.Keys.Names, err: fault.ErrLockNotHeld}
	case err != nil:
		return answer{err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A release that found nothing counts as one that came after another, unless that one may have come before the keys.
	if found.Unseen && !at.sure && (found.Open || !at.had && at.Origin != claim.Attached) {
		return answer{lost: at.Keys.Names, err: fault.ErrLockNotHeld}
	}
	at.taken = at.taken || found.Taken > 0
	return answer{lost: found.Keys, err: at.Place.LossError(found.Loss, fault.ErrLockNotHeld)}
}
