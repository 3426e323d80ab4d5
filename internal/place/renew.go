package place

import (
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// A Hold is an Upkeep.

// Look enqueues the renewal of the lock, if it is due. It returns when to look again if the renewal has no result, or the
// zero time if the lock is no longer kept or no longer valid.
func (h *Hold) Look(now time.Time) (next time.Time, early time.Duration) {
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	if !h.IsRenewed() || lease.Passed(h.Lease.Until()) {
		return time.Time{}, 0
	}
	due, next := h.Lease.Renew(now)
	if due == nil {
		return next, 0
	}
	sends := h.Renewal(h.RenewalCtx(), due.TTL, h.LastMetadata(), due.Until, due.Patience)
	h.Place.Renewals.Enqueue(&holdRenewal{Renewal: sends, hold: h, lease: due})
	return next, due.Early
}

// Wanted reports whether the lock is kept.
func (h *Hold) Wanted() bool { return h.IsKept() }

// Entry returns the lock's entry in the schedule of renewals.
func (h *Hold) Entry() *schedule.Entry { return &h.entry }

// Home returns the place among whose renewals the lock is.
func (h *Hold) Home() *Place { return h.Place }

// renewSooner makes the schedule look at the lock, if it is kept, as soon as its renewal is due: that may be sooner than
// before.
func (h *Hold) renewSooner() {
	h.Life.Mu.Lock()
	due := h.Lease.Due()
	h.Life.Mu.Unlock()
	h.Place.Renewals.LookBy(h, due)
}

// holdRenewal is one renewal of a Hold.
type holdRenewal struct {
	Renewal

	hold  *Hold
	lease *lease.Renewal

	// What to report to the owner of the Client. Finish sets these fields.
	matters bool
	left    time.Duration // of the validity
	err     error
	loss    *life.Lost
}

// Finish applies the result, and reports it unless it makes no difference any more.
func (r *holdRenewal) Finish(sent bool) {
	if !sent { // the lock is due again after the patience
		return
	}
	h := r.hold
	next, exact, back := r.apply()
	switch {
	case next.IsZero():
	case exact:
		h.Place.Renewals.LookAt(h, next)
		h.renewSooner() // a Refresh that began just now, or a loss, may have asked for an earlier look
	default:
		h.Place.Renewals.LookBy(h, next)
	}
	if report := h.Events().Refreshed; report != nil && r.matters {
		report(r.Call.Ctx, life.Refreshed{Keys: h.Keys.Names, Renewal: true, TTL: r.lease.TTL, Left: r.left, Err: r.err})
	}
	h.Events().SendRestored(r.Call.Ctx, h.Keys.Names, back) // also if the renewal gains nothing: the server has the keys again
	h.Events().SendLost(r.Call.Ctx, r.loss)
}

// apply applies the result to the lock. It returns when to look at the lock next (the zero time for no change), and
// whether the schedule must not look sooner, and the keys that a guard has put back.
func (r *holdRenewal) apply() (next time.Time, exact bool, back []string) {
	h := r.hold
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	if !h.IsRenewed() {
		return time.Time{}, false, nil
	}
	before := h.Lease.Until()
	r.left = max(0, time.Until(before))
	var got script.Refreshed
	err := r.Call.Err
	if err == nil {
		got, err = script.ReadRefreshed(h.Keys.Names, r.Call.Reply)
		h.Place.noteClosure(r.Call.Ctx, got.Closure)
	}
	switch back = got.Back; {
	case !got.Loss.IsNone():
		r.matters, r.err = true, h.Place.contextCause(got.Loss)
		r.loss = h.lose(got.Loss, r.err)
		return time.Now(), false, back // the next look ends the contexts
	case got.Again > 0:
		err = notExecuted(got.Again)
		h.Renewed(err)
		r.matters, r.err = true, fault.Failed("renew", h.Keys.Names, err)
		return h.Lease.Postponed(time.Now(), got.Again), true, nil
	case h.Place.IsGuarded() && lease.Passed(before):
		return time.Now(), false, back // the next look ends the contexts
	case err != nil:
		next, counts := h.Lease.RenewalFailed(r.lease, time.Now())
		if counts {
			h.Renewed(err)
			r.matters, r.err = true, fault.Failed("renew", h.Keys.Names, err)
		}
		return next, false, nil
	}
	next = h.Lease.Renewed(r.lease, r.Call.Sent)
	if h.Lease.Until().After(before) {
		h.Renewed(nil)
		r.matters = true
	}
	return next, true, back
}
