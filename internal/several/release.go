package several

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// Free releases the keys at all places. until is the end of the validity before the Release. All calls that begin before one
// has ended share what is found at each place; those that follow find that the lock is lost.
func (l *Lock) Free(ctx context.Context, _, until time.Time) (life.Loss, error) {
	l.mu.Lock()
	if !l.over {
		l.giveUp(until)
	}
	p, before := l.newPoll(), l.foundLost
	var asked, others []int // the places whose answers decide, and those that are released as well
	for i, at := range l.at {
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
	l.mu.Unlock()
	free, stop := place.Detached(ctx)
	defer stop()
	// Free returns when enough places have answered. The other releases go on, and Close waits for them.
	for _, i := range slices.Concat(asked, others) {
		l.places.all[i].DetachedCalls.Add(1)
	}
	brief, enough := context.WithCancel(free)
	defer enough()
	release := func(i int) answer { return l.releaseAt(free, brief, i) }
	for _, i := range others {
		transport.Go(func() { // ends with the call
			catch(func() { release(i) }, func(*panicked) {})
		})
	}
	sideBySide(asked, release, p.note)
	if before != nil {
		return before.Loss, before.err
	}
	err := p.err(ctx, "release", fault.ErrLockNotHeld)
	l.mu.Lock()
	defer l.mu.Unlock()
	loss := life.Loss{Cause: l.lossCause(), Keys: p.loss.Keys}
	switch {
	case err == nil:
		l.foundLost = &lossFound{life.Loss{Cause: life.Gone, Keys: l.keys}, fault.ErrLockNotHeld}
	case p.isLost(): // otherwise the cause of a ctx may match ErrLockNotHeld
		l.foundLost = &lossFound{loss, err}
	}
	return loss, err
}

// giveUp ends the lock, and decides how a Release frees each place. The caller holds l.mu.
func (l *Lock) giveUp(until time.Time) {
	l.over, l.counted = true, until
	for i, at := range l.at {
		at.counts = l.counts(i)
		at.releases = at.had || at.coming != nil || at.Origin == claim.Attached // another handle may have got the keys back
		if !at.releases {
			l.drop(i)
		}
	}
	l.lock.End()
}

// drop frees, in the background, what late answers have taken at a place that has never had the keys, or may still take
// (10b). The caller holds l.mu.
func (l *Lock) drop(i int) {
	at := l.at[i]
	at.Drop(l.ctx, claim.Terms{Why: claim.Late, Lasts: l.longest(i)}, at.Keys.Names)
}

// counts reports whether a Release counts how a place answers. If the place is known to have lost all keys, it does not: a
// guard that is closed does not say that keys were gone. The caller holds l.mu.
func (l *Lock) counts(i int) bool {
	switch at := l.at[i]; {
	case at.coming != nil, at.Origin == claim.Attached: // see releaseAt; and another handle may have got the keys back
		return true
	case l.lock.IsAcquiring(i):
		return false
	default:
		return at.had && (at.partly || len(at.lost) < len(at.Keys.Names))
	}
}

// lateFreeing is the release at a place that had not answered the obtain yet when the first Release began. All calls share
// it.
type lateFreeing struct {
	ended  chan struct{} // closed when it has ended; answer is set before
	answer answer
}

// releaseAt releases the keys at one place: if it has not answered the obtain yet, as soon as it has. If it has not
// done so by the time when brief ends, or a new server is expected to have answered, it counts as a place that has
// never had the keys.
func (l *Lock) releaseAt(ctx, brief context.Context, i int) answer {
	at := l.at[i]
	defer at.Place.DetachedCalls.Add(-1)
	l.mu.Lock()
	if at.late == nil && at.coming != nil {
		at.late = l.freeLate(at.coming, i)
	}
	late := at.late
	l.mu.Unlock()
	if late == nil || fault.IsClosed(late.ended) {
		return l.freeAt(ctx, i)
	}
	if !l.await(brief, i) {
		return at.missing()
	}
	select {
	case <-late.ended:
		return late.answer
	case <-brief.Done():
		return answer{err: fault.ErrUnanswered}
	}
}

// freeLate begins the release at a place that has not answered the obtain yet.
func (l *Lock) freeLate(coming <-chan struct{}, i int) *lateFreeing {
	late := &lateFreeing{ended: make(chan struct{}), answer: answer{err: fault.ErrPanicked}} // unless freeAt returns
	calls := &l.at[i].Place.DetachedCalls
	calls.Add(1)
	transport.Go(func() { // ends with the call
		defer calls.Add(-1)
		defer close(late.ended)
		<-coming
		catch(func() { late.answer = l.freeAt(l.ctx, i) }, func(*panicked) {})
	})
	return late
}

// freeAt releases the keys at one place, unless that has never had them.
func (l *Lock) freeAt(ctx context.Context, i int) answer {
	at := l.at[i]
	l.mu.Lock()
	has, until, longest := at.had || at.Origin == claim.Attached, l.counted, l.longest(i)
	if !has {
		l.drop(i)
	}
	l.mu.Unlock()
	if !has {
		return at.missing()
	}
	found, err := at.Free(ctx, claim.Terms{Why: claim.Release, Until: until, Lasts: longest})
	if err != nil {
		return answer{err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at.taken = at.taken || found.Taken > 0
	return answer{lost: found.Keys, err: at.Place.LossError(found.Loss, fault.ErrLockNotHeld)}
}

// missing is the answer of a place that has never had the keys.
func (r *record) missing() answer { return answer{lost: r.Keys.Names, err: fault.ErrLockNotHeld} }
