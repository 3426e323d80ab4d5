package place

import (
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// Look makes the renewal of a lock that is due; see schedule.Item.
func (h *Hold) Look(now time.Time) (next time.Time, early time.Duration) {
	r, next := h.renew(now)
	if r == nil {
		return next, 0
	}
	h.Place.Renewals.Enqueue(r)
	return next, r.lease.Early
}

// Wanted reports whether the lock is kept.
func (h *Hold) Wanted() bool { return h.IsKept() }

// Entry is the lock's place in the schedule.
func (h *Hold) Entry() *schedule.Entry { return &h.entry }

// Home returns the place among whose renewals it is.
func (h *Hold) Home() *Place { return h.Place }

// holdRenewal is one renewal of a lock at one place.
type holdRenewal struct {
	Renewal

	hold  *Hold
	lease *lease.Renewal

	// What to tell a Tracer; see renewed.
	matters bool
	left    time.Duration // of the validity
	err     error
	loss    *life.Lost
}

// Finish applies the result, and tells a Tracer how the renewal has ended, unless that makes no difference any more.
func (r *holdRenewal) Finish(sent bool) {
	if !sent { // it is due again after its patience
		return
	}
	h := r.hold
	all := h.Place.Renewals.schedule
	switch next, exact := h.renewed(r); {
	case next.IsZero():
	case exact:
		all.LookAt(h, next)
		h.renewSooner() // a Refresh that began just now, or a loss, may have asked for an earlier look
	default:
		all.LookBy(h, next)
	}
	if !r.matters {
		return
	}
	if tell := h.Events().Refreshed; tell != nil {
		tell(r.Call.Ctx, life.Refreshed{Keys: h.Keys.Names, Renewal: true, TTL: r.lease.TTL, Left: r.left, Err: r.err})
	}
	if r.loss != nil {
		h.Events().Lost(r.Call.Ctx, *r.loss)
	}
}

// renewSooner tells the scheduler, if the lock is kept, that its renewal may be due sooner than before.
func (h *Hold) renewSooner() {
	h.Life.Mu.Lock()
	due := h.Lease.Due()
	h.Life.Mu.Unlock()
	h.Place.Renewals.LookBy(h, due)
}

// renew returns the renewal that is due at the given time, and when to look at the lock again if the renewal has no
// result. If none is due, it returns nil and the time when one will be, or the zero time if the lock is no longer kept
// or no longer valid.
func (h *Hold) renew(now time.Time) (*holdRenewal, time.Time) {
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	if !h.IsRenewed() || lease.Passed(h.Lease.Until()) {
		return nil, time.Time{}
	}
	due, next := h.Lease.Renew(now)
	if due == nil {
		return nil, next
	}
	sends := h.Renewal(h.RenewalCtx(), due.TTL, due.Until, due.Patience)
	return &holdRenewal{Renewal: sends, hold: h, lease: due}, next
}

// renewed notes the result of a renewal. It returns when to look at the lock next (the zero time for no change), and
// whether it must not look sooner.
func (h *Hold) renewed(r *holdRenewal) (next time.Time, exact bool) {
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	if !h.IsRenewed() {
		return time.Time{}, false
	}
	before := h.Lease.Until()
	r.left = max(0, time.Until(before))
	var loss script.Loss
	err := r.Call.Err
	if err == nil {
		loss, err = script.ReadLoss(h.Keys.Names, r.Call.Reply)
	}
	switch {
	case !loss.IsNone():
		r.matters, r.err = true, h.Place.contextCause(loss)
		r.loss = h.lose(loss, r.err)
		return time.Now(), false // to be ended
	case err != nil:
		next, counts := h.Lease.RenewalFailed(r.lease, time.Now())
		if counts {
			h.Renewed(err)
			r.matters, r.err = true, fault.Failed("renew", h.Keys.Names, err)
		}
		return next, false
	}
	next = h.Lease.Renewed(r.lease, r.Call.Sent)
	if h.Lease.Until().After(before) {
		h.Renewed(nil)
		r.matters = true
	}
	return next, true
}
