package several

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/schedule"
)

// StartRenewing starts the renewals. It returns false after Close.
func (l *Lock) StartRenewing() bool {
	if fault.IsClosed(l.places.set.Closed) {
		return false
	}
	l.mu.Lock()
	l.keeping = true
	l.mu.Unlock()
	return l.Home().Keeper.Add(l)
}

// StopRenewing stops the renewals, unless the lock is kept again.
func (l *Lock) StopRenewing() {
	l.Life.Mu.Lock()
	l.mu.Lock()
	if !l.Keeps() { // both mutexes are locked: a KeepAlive that comes next starts the renewals again
		l.keeping = false
		for _, s := range l.places.all {
			s.health.Forget(l)
		}
	}
	l.mu.Unlock()
	l.Life.Mu.Unlock()
	l.Home().Keeper.Remove(l)
}

// Look enqueues a round of renewals, if one is due; see schedule.Item.
func (l *Lock) Look(now time.Time) (next time.Time, early time.Duration) {
	l.Life.Mu.Lock()
	defer l.Life.Mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.lock.Until(now)
	if !l.IsRenewed() || lease.Passed(until) {
		return time.Time{}, 0
	}
	l.pace.Follow(now, until) // a place that lasted longer may have lost the keys
	patience, next := l.pace.Begins(now)
	if patience == 0 {
		return next, 0
	}
	l.Home().Keeper.Enqueue(l.round(l.RenewalCtx(), now, patience)...)
	return next, l.pace.Early()
}

// Wanted reports whether the lock is kept.
func (l *Lock) Wanted() bool { return l.IsKept() }

// Entry returns the lock's entry in the schedule of renewals.
func (l *Lock) Entry() *schedule.Entry { return &l.entry }

// round begins a round of renewals: one call that all places are asked to confirm. The caller holds l.mu.
func (l *Lock) round(ctx context.Context, now time.Time, patience time.Duration) (round []place.Renewal) {
	until := l.lock.Until(now)
	call, requests := l.lock.Renew(now)
	for _, r := range requests {
		at := l.at[r.Place]
		at.lasts = max(at.lasts, call.TTL)
		sends := at.Sending(ctx, call.TTL, l.kept(), until, patience)
		round = append(round, &renewal{Sending: sends, lock: l, asked: r, certain: at.refreshes.Certain(call.TTL)})
	}
	return round
}

// renewOnce renews a lock that is not kept, because a place has lost the keys. The keys may be acquired again only when a
// call is confirmed that began after the loss was known (9b).
func (l *Lock) renewOnce() {
	l.mu.Lock()
	now := time.Now()
	round := l.round(l.ctx, now, l.lock.Until(now).Sub(now))
	l.mu.Unlock()
	place.SendRenewals(round)
}

// renewal is the request of a round of renewals to one place.
type renewal struct {
	place.Sending

	lock    *Lock
	asked   majority.Request
	certain time.Duration // how long a success is certain to hold (7)
}

// Finish applies the result. It sends an event when the round is confirmed, and when no majority can confirm it any more.
func (r *renewal) Finish(sent bool) {
	l, ctx := r.lock, r.Call.Ctx
	a := answer{Answer: majority.Answer{Result: majority.Unsent}}
	if sent {
		a = l.at[r.asked.Place].read("renew", r.Call, r.certain)
	}
	out, before := l.apply(ctx, r.asked, a)
	l.Events().LaterRestored(ctx, l.keys, a.back)
	err := a.err
	switch {
	case out.Confirmed:
		err = nil
	case err == nil:
		return
	}
	l.Life.Mu.Lock()
	l.Renewed(err)
	l.Life.Mu.Unlock()
	switch {
	case out.Confirmed:
	case out.Failed:
		l.mu.Lock()
		next := l.pace.Failed(time.Now())
		l.mu.Unlock()
		l.Home().Keeper.LookBy(l, next)
	default:
		return
	}
	if l.IsKept() {
		left := max(0, time.Until(before))
		l.Events().LaterRefreshed(ctx, &l.Life, life.Refreshed{
			Keys: l.keys, Renewal: true, TTL: r.asked.Call.TTL, Left: left, Err: err,
		})
	}
}
