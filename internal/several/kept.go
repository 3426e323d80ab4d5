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
	"github.com/redislock/redislock/internal/transport"
)

// renewals returns those among which the lock is: those of its first place.
func (h *Lock) renewals() *place.Renewals { return h.places.all[0].Renewals }

// StartRenewing starts the renewals. It reports false after Close.
func (h *Lock) StartRenewing() bool {
	if fault.IsClosed(h.places.set.Closed) {
		return false
	}
	h.mu.Lock()
	h.keeping = true
	h.mu.Unlock()
	return h.renewals().Add((*upkeep)(h))
}

// StopRenewing stops the renewals, unless the lock is kept again.
func (h *Lock) StopRenewing() {
	h.Life.Mu.Lock()
	h.mu.Lock()
	if !h.Keeps() { // with both locked: a KeepAlive that comes now starts the renewals again
		h.keeping = false
		for _, p := range h.places.all {
			p.health.Forget(h)
		}
	}
	h.mu.Unlock()
	h.Life.Mu.Unlock()
	h.renewals().Remove((*upkeep)(h))
}

// upkeep is a lock at several places as an upkeep.
type upkeep Lock

// Look makes the renewals of a lock that are due.
func (u *upkeep) Look(now time.Time) (next time.Time, early time.Duration) {
	h := (*Lock)(u)
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	until := h.lock.Until(now)
	if !h.IsRenewed() || lease.Passed(until) {
		return time.Time{}, 0
	}
	h.pace.Follow(now, until) // a place whose end was later may have been lost
	patience, next := h.pace.Begins(now)
	if patience == 0 {
		return next, 0
	}
	h.renewals().Enqueue(h.round(h.RenewalCtx(), now, patience)...)
	return next, h.pace.Early()
}

// Wanted reports whether the lock is kept.
func (u *upkeep) Wanted() bool { return (*Lock)(u).IsKept() }

// Entry is the lock's place in the schedule.
func (u *upkeep) Entry() *schedule.Entry { return &u.entry }

// Bearer returns the lock.
func (u *upkeep) Bearer() life.Bearer { return (*Lock)(u) }

// Home returns the place among whose renewals it is.
func (u *upkeep) Home() *place.Place { return u.places.all[0].Place }

// round begins a round of renewals: one call that all places are asked to confirm. The caller holds h.mu.
func (h *Lock) round(ctx context.Context, now time.Time, patience time.Duration) (round []place.Renewal) {
	until := h.lock.Until(now)
	call, requests := h.lock.Renew(now)
	for _, r := range requests {
		at := &h.at[r.Place]
		c := at.RefreshCall(call.TTL, "", true)
		c.Ctx = ctx
		round = append(round, &renewal{
			lock: h, asked: r, call: c,
			certain: at.refreshes.Certain(call.TTL), ends: until, waits: patience,
		})
	}
	return round
}

// renewOnce renews a lock that is not kept, because a place has lost the keys: only a call that begins when that is known
// lets them be acquired again (9b).
func (h *Lock) renewOnce() {
	h.mu.Lock()
	now := time.Now()
	round := h.round(h.ctx, now, h.lock.Until(now).Sub(now))
	h.mu.Unlock()
	place.SendRenewals(round)
}

// renewal is the request of a round of renewals to one place.
type renewal struct {
	lock    *Lock
	asked   majority.Request
	call    *transport.Call
	certain time.Duration // for how long a success is certain to hold (7)
	ends    time.Time     // the validity, when the round began
	waits   time.Duration // see place.Renewal
}

// Request returns the call.
func (r *renewal) Request() *transport.Call { return r.call }

// At returns the place that is asked.
func (r *renewal) At() *place.Place { return r.lock.at[r.asked.Place].Place }

// Until returns the end of the validity, when the round began.
func (r *renewal) Until() time.Time { return r.ends }

// Patience returns how long to wait for the answer before another round follows.
func (r *renewal) Patience() time.Duration { return r.waits }

// Finish applies the result. It tells a Tracer of a round that is confirmed, and of one that no majority can confirm any
// more.
func (r *renewal) Finish(sent bool) {
	h, ctx := r.lock, r.call.Ctx
	a := reply{Answer: majority.Answer{Result: majority.Unsent}}
	if sent {
		a = h.at[r.asked.Place].read("renew", r.call, r.certain)
	}
	out, before := h.answer(ctx, r.asked, a)
	if out.Confirmed || a.err != nil {
		h.Life.Mu.Lock()
		if out.Confirmed {
			h.Renewed(nil)
		} else {
			h.Renewed(a.err)
		}
		h.Life.Mu.Unlock()
	}
	var told error
	switch {
	case out.Failed && a.err != nil:
		told = a.err
		h.mu.Lock()
		next := h.pace.Failed(time.Now())
		h.mu.Unlock()
		h.renewals().LookBy((*upkeep)(h), next)
	case !out.Confirmed:
		return
	}
	if tell := h.Events().Refreshed; tell != nil && h.IsKept() {
		left := max(0, time.Until(before))
		tell(ctx, life.Refreshed{Keys: h.keys, Renewal: true, TTL: r.asked.Call.TTL, Left: left, Err: told})
	}
}
