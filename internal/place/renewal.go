package place

import (
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// A Lock is an Upkeep.

// Look enqueues the renewal of the lock, if it is due. It returns when to look again if the renewal has no result, or the
// zero time if the lock is no longer kept or no longer valid.
func (l *Lock) Look(now time.Time) (next time.Time, early time.Duration) {
	l.Life.Mu.Lock()
	defer l.Life.Mu.Unlock()
	if !l.IsRenewed() || lease.Passed(l.Lease.Until()) {
		return time.Time{}, 0
	}
	due, next := l.Lease.Renew(now)
	if due == nil {
		return next, 0
	}
	sends := l.Sending(l.RenewalCtx(), due.TTL, l.LastMetadata(), due.Until, due.Patience)
	l.Place.Keeper.Enqueue(&renewal{Sending: sends, lock: l, lease: due})
	return next, due.Early
}

// Wanted reports whether the lock is kept.
func (l *Lock) Wanted() bool { return l.IsKept() }

// Entry returns the lock's entry in the schedule of renewals.
func (l *Lock) Entry() *schedule.Entry { return &l.entry }

// Home returns the place whose Keeper renews the lock.
func (l *Lock) Home() *Place { return l.Place }

// renewSooner makes the schedule look at the lock, if it is kept, as soon as its renewal is due: that may be sooner than
// before.
func (l *Lock) renewSooner() {
	l.Life.Mu.Lock()
	due := l.Lease.Due()
	l.Life.Mu.Unlock()
	l.Place.Keeper.LookBy(l, due)
}

// renewal is one renewal of a Lock.
type renewal struct {
	Sending

	lock  *Lock
	lease *lease.Renewal

	// What to report to the owner of the Client. Finish sets these fields.
	matters bool
	left    time.Duration // of the validity
	err     error
	loss    *life.Lost
}

// Finish applies the result, and reports it unless it makes no difference any more.
func (r *renewal) Finish(sent bool) {
	if !sent { // the lock is due again after the patience
		return
	}
	l := r.lock
	next, exact, back := r.apply()
	switch {
	case next.IsZero():
	case exact:
		l.Place.Keeper.LookAt(l, next)
		l.renewSooner() // a Refresh that began just now, or a loss, may have asked for an earlier look
	default:
		l.Place.Keeper.LookBy(l, next)
	}
	ctx, events := r.Call.Ctx, l.Events()
	if r.matters {
		e := life.Refreshed{Keys: l.Keys.Names, Renewal: true, TTL: r.lease.TTL, Left: r.left, Err: r.err}
		events.LaterRefreshed(ctx, &l.Life, e)
	}
	events.LaterRestored(ctx, l.Keys.Names, back) // also if the renewal gains nothing: the server has the keys again
	events.LaterLost(ctx, r.loss)
}

// apply applies the result to the lock. It returns when to look at the lock next (the zero time for no change), and
// whether the schedule must not look sooner, and the keys that a guard has put back.
func (r *renewal) apply() (next time.Time, exact bool, back []string) {
	l := r.lock
	l.Life.Mu.Lock()
	defer l.Life.Mu.Unlock()
	var got script.Refreshed
	err := r.Call.Err
	if err == nil {
		got, err = script.ReadRefreshed(l.Keys.Names, r.Call.Reply)
		l.Place.noteClosure(r.Call.Ctx, got.Closure)
	}
	if !l.IsRenewed() { // a Release reports what is known of the keys
		switch {
		case !got.Loss.IsNone():
			if r.lease.Begun == l.Lease.Begun() { // otherwise a Refresh that has begun since may know better
				r.loss = l.lose(got.Loss, l.Place.contextCause(got.Loss))
			}
		case l.IsReleased() && err == nil && got.Again == 0:
			l.Lease.Renewed(r.lease, r.Call.Sent)
			l.Know(l.Lease.Until())
		}
		return time.Time{}, false, nil
	}
	before := l.Lease.Until()
	r.left = max(0, time.Until(before))
	switch back = got.Back; {
	case !got.Loss.IsNone():
		r.matters, r.err = true, l.Place.contextCause(got.Loss)
		r.loss = l.lose(got.Loss, r.err)
		return time.Now(), false, back // the next look ends the contexts
	case got.Again > 0:
		err = notExecuted(got.Again)
		l.Renewed(err)
		r.matters, r.err = true, fault.Failed("renew", l.Keys.Names, err)
		return l.Lease.Postponed(time.Now(), got.Again), true, nil
	case l.Place.IsGuarded() && lease.Passed(before):
		return time.Now(), false, back // the next look ends the contexts
	case err != nil:
		next, counts := l.Lease.RenewalFailed(r.lease, time.Now())
		if counts {
			l.Renewed(err)
			r.matters, r.err = true, fault.Failed("renew", l.Keys.Names, err)
		}
		return next, false, nil
	}
	next = l.Lease.Renewed(r.lease, r.Call.Sent)
	if l.Lease.Until().After(before) {
		l.Renewed(nil)
		r.matters = true
	}
	return next, true, back
}
