package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
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
		case at.gone == nil:
			asked = append(asked, i)
		case at.had:
			others = append(others, i)
		default: // what late answers have taken (10b)
			at.Drop(l.ctx, claim.Terms{Why: claim.Late, Lasts: l.longest(i)}, at.Keys.Names)
		}
		p.noteLost(i, at.gone)
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
	lost := l.losses().isLost()
	for i, at := range l.at {
		at.again = at.lost != nil && l.lock.IsAcquiring(i)
		// Otherwise a mend without an answer, or another handle, may have got the lost keys back.
		if at.lost != nil && at.hasSome() && !at.partly && !at.IsDoubtful() && at.Origin != claim.Attached {
			at.Lose(at.loss(at.lost), at.held)
		}
		at.held = l.lock.HeldUntil(i)
		if !at.counts(lost) {
			at.gone = at.lost
			if at.gone == nil {
				at.gone = at.Keys.Names
			}
		}
	}
	l.lock.End()
}

// counts reports whether a Release counts how a place answers. It does unless the place is known to have none of the keys,
// and no request may have given it any since. If the lock was found lost, a mend that is under way does not change that. But
// another handle may have got the keys back for an attached one. The caller holds Lock.mu.
func (r *record) counts(lost bool) bool {
	switch {
	case r.coming != nil, r.Origin == claim.Attached:
		return true
	case lost && r.lost != nil:
		return !r.again && r.hasSome()
	}
	return r.hasSome() || r.IsDoubtful()
}

// loss returns these keys as what the place has lost.
func (r *record) loss(keys []string) script.Loss {
	return script.Loss{Keys: keys, Total: len(r.Keys.Names)}
}

// hasSome reports whether the place is known to have some of the keys. The caller holds Lock.mu.
func (r *record) hasSome() bool { return r.had && (r.partly || len(r.lost) < len(r.Keys.Names)) }

// isOpen reports whether the place is not known to have keys, but a request that has no answer may give it some. The caller
// holds Lock.mu.
func (r *record) isOpen() bool {
	return r.coming != nil || r.Origin != claim.Attached && (!r.hasSome() || r.again && r.lost != nil)
}

// errUnknown is the error of a place that has no keys any more.
var errUnknown = errors.New("nobody knows whether the keys were lost, or freed by a release without an answer")

// releaseAt releases the keys at one place. If nobody knows what that has, releaseAt waits no longer than for a server that
// nobody knows yet.
func (l *Lock) releaseAt(ctx context.Context, i int) answer {
	at, limited := l.at[i], ctx
	defer at.Place.DetachedCalls.Add(-1)
	l.mu.Lock()
	terms := claim.Terms{Why: claim.Release, Until: l.counted, Held: at.held, Lasts: l.longest(i)}
	open := at.isOpen()
	l.mu.Unlock()
	if open {
		var leave context.CancelFunc
		limited, leave = context.WithCancel(ctx)
		defer leave()
		timer := time.AfterFunc(health.FirstPatience, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if at.isOpen() {
				leave()
			}
		})
		defer timer.Stop()
	}
	found, err := at.Free(limited, terms)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return answer{err: fault.Failed("release", at.Keys.Names, fault.ErrUnanswered)}
	case err != nil:
		return answer{err: err}
	case found.Unknown:
		return answer{err: fault.Failed("release", at.Keys.Names, errUnknown)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at.taken = at.taken || found.Taken > 0
	return answer{lost: found.Keys, err: at.Place.LossError(found.Loss, fault.ErrLockNotHeld)}
}
