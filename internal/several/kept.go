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
func (h *Lock) StartRenewing() bool {
	if fault.IsClosed(h.places.set.Closed) {
		return false
	}
	h.mu.Lock()
	h.keeping = true
	h.mu.Unlock()
	return h.Home().Renewals.Add(h)
}

// StopRenewing stops the renewals, unless the lock is kept again.
func (h *Lock) StopRenewing() {
	h.Life.Mu.Lock()
	h.mu.Lock()
	if !h.Keeps() { // both mutexes are locked: a KeepAlive that comes next starts the renewals again
		h.keeping = false
		for _, p := range h.places.all {
			p.health.Forget(h)
		}
	}
	h.mu.Unlock()
	h.Life.Mu.Unlock()
	h.Home().Renewals.Remove(h)
}

// Look enqueues a round of renewals, if one is due; see schedule.Item.
func (h *Lock) Look(now time.Time) (next time.Time, early time.Duration) {
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	until := h.lock.Until(now)
	if !h.IsRenewed() || lease.Passed(until) {
		return time.Time{}, 0
	}
	h.pace.Follow(now, until) // a place that lasted longer may have lost the keys
	patience, next := h.pace.Begins(now)
	if patience == 0 {
		return next, 0
	}
	h.Home().Renewals.Enqueue(h.round(h.RenewalCtx(), now, patience)...)
	return next, h.pace.Early()
}

// Wanted reports whether the lock is kept.
func (h *Lock) Wanted() bool { return h.IsKept() }

// Entry returns the lock's entry in the schedule of renewals.
func (h *Lock) Entry() *schedule.Entry { return &h.entry }

// round begins a round of renewals: one call that all places are asked to confirm. The caller holds h.mu.
func (h *Lock) round(ctx context.Context, now time.Time, patience time.Duration) (round []place.Renewing) {
	until := h.lock.Until(now)
	call, requests := h.lock.Renew(now)
	for _, r := range requests {
		at := h.at[r.Place]
		at.lasts = max(at.lasts, call.TTL)
		sends := at.Renewal(ctx, call.TTL, h.kept(), until, patience)
		round = append(round, &renewal{Renewal: sends, lock: h, asked: r, certain: at.refreshes.Certain(call.TTL)})
	}
	return round
}

// renewOnce renews a lock that is not kept, because a place has lost the keys. The keys may be acquired again only when a
// call is confirmed that began after the loss was known (9b).
func (h *Lock) renewOnce() {
	h.mu.Lock()
	now := time.Now()
	round := h.round(h.ctx, now, h.lock.Until(now).Sub(now))
	h.mu.Unlock()
	place.SendRenewals(round)
}

// renewal is the request of a round of renewals to one place.
type renewal struct {
	place.Renewal

	lock    *Lock
	asked   majority.Request
	certain time.Duration // how long a success is certain to hold (7)
}

// Finish applies the result. It sends an event when the round is confirmed, and when no majority can confirm it any more.
func (r *renewal) Finish(sent bool) {
	h, ctx := r.lock, r.Call.Ctx
	a := reply{Answer: majority.Answer{Result: majority.Unsent}}
	if sent {
		a = h.at[r.asked.Place].read("renew", r.Call, r.certain)
	}
	out, before := h.answer(ctx, r.asked, a)
	h.Events().SendRestored(ctx, h.keys, a.back)
	err := a.err
	switch {
	case out.Confirmed:
		err = nil
	case err == nil:
		return
	}
	h.Life.Mu.Lock()
	h.Renewed(err)
	h.Life.Mu.Unlock()
	switch {
	case out.Confirmed:
	case out.Failed:
		h.mu.Lock()
		next := h.pace.Failed(time.Now())
		h.mu.Unlock()
		h.Home().Renewals.LookBy(h, next)
	default:
		return
	}
	if report := h.Events().Refreshed; report != nil && h.IsKept() {
		left := max(0, time.Until(before))
		report(ctx, life.Refreshed{Keys: h.keys, Renewal: true, TTL: r.asked.Call.TTL, Left: left, Err: err})
	}
}
