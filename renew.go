package redislock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
)

// renewals renews the kept locks of all Clients of one Redis client. It sends together what is due in one round of the
// schedule.
type renewals struct {
	redis    *transport.Redis
	schedule *schedule.Schedule
	due      []*renewal // due in the present round; belongs to the schedule's goroutine
}

func newRenewals(redis *transport.Redis) *renewals {
	r := &renewals{redis: redis}
	r.schedule = schedule.New(r.endRound)
	return r
}

// upkeep is a lock as an item of the schedule of renewals.
type upkeep hold

// Look makes the renewal of a lock that is due.
func (u *upkeep) Look(now time.Time) (next time.Time, early time.Duration) {
	h := (*hold)(u)
	r, next := h.renew(now)
	if r == nil {
		return next, 0
	}
	h.place.renewals.due = append(h.place.renewals.due, r)
	return next, r.lease.Early
}

// Wanted reports whether the lock is kept.
func (u *upkeep) Wanted() bool { return (*hold)(u).isKept() }

// Entry is the lock's place in the schedule.
func (u *upkeep) Entry() *schedule.Entry { return &u.entry }

// add starts the renewals of a lock. It reports false if the lock's Client is closed; then the caller ends the lock's
// contexts. It looks only afterwards, so either it or a Close that comes at the same time finds the other.
func (r *renewals) add(h *hold) bool {
	h.place.keeps.Store(true)
	r.schedule.Add((*upkeep)(h))
	return !isClosed(h.place.closed)
}

// remove stops the renewals of a lock, unless it is kept again.
func (r *renewals) remove(h *hold) { r.schedule.Remove((*upkeep)(h)) }

// lookBy makes the scheduler look at a lock no later than at that time.
func (r *renewals) lookBy(h *hold, at time.Time) { r.schedule.LookBy((*upkeep)(h), at) }

// end ends every kept context of the locks of a Client that was closed.
func (r *renewals) end(p *place) {
	for _, item := range r.schedule.Items() {
		h := (*hold)(item.(*upkeep))
		if h.place == p && !lapse(h) {
			endKept(h, ErrClosed)
			if h.of != nil { // the contexts must have ended when Close returns
				endKept(h.of.whole, ErrClosed)
			}
		}
	}
}

// endRound sends the renewals that are due, those of the locks that lapse first before the others. over are the locks
// that were found to be no longer kept or no longer valid.
func (r *renewals) endRound(over []schedule.Item) {
	for _, item := range over {
		h := (*hold)(item.(*upkeep))
		over, report := endLapsed(h)
		if !over && !r.add(h) { // a Refresh has extended it since
			endKept(h, ErrClosed)
		}
		if report != nil {
			// Not in this goroutine, which has to end the contexts of other locks in time: the Tracer may ask Redis what has
			// become of the keys, and Redis may be down.
			go report()
		}
	}
	if len(r.due) == 0 {
		return
	}
	slices.SortFunc(r.due, func(a, b *renewal) int { return a.lease.Until.Compare(b.lease.Until) })
	calls := make([]*transport.Call, len(r.due))
	for i, due := range r.due {
		calls[i] = due.call
		calls[i].Alone = due.hold.place.redis.Separates()
	}
	r.due = nil
	patience := func(c *transport.Call) time.Duration { return c.Tag.(*renewal).lease.Patience }
	r.redis.SendBatches(calls, patience, func(c *transport.Call) { r.finish(c.Tag.(*renewal)) })
}

// finish applies the result of a renewal that has ended.
func (r *renewals) finish(done *renewal) {
	switch next, exact := done.hold.renewed(done); {
	case next.IsZero():
	case exact:
		r.schedule.LookAt((*upkeep)(done.hold), next)
		done.hold.renewSooner() // a Refresh that began just now, or a loss, may have asked for an earlier look
	default:
		r.schedule.LookBy((*upkeep)(done.hold), next)
	}
	done.tell()
}

// renewal is one renewal of a lock.
type renewal struct {
	hold  *hold
	lease *lease.Renewal
	call  *transport.Call

	// What to tell a Tracer; see renewed.
	matters bool
	left    time.Duration // of the validity
	err     error
	loss    *Lost
}

// tell tells a Tracer how the renewal has ended, unless that makes no difference any more.
func (r *renewal) tell() {
	switch {
	case !r.matters:
		return
	case r.hold.of != nil:
		r.hold.of.whole.renewed(r)
		return
	}
	t := r.hold.place.tracer
	if t.Refreshed != nil {
		t.Refreshed(r.call.Ctx, Refreshed{Keys: r.hold.keys, Renewal: true, TTL: r.lease.TTL, Left: r.left, Err: r.err})
	}
	if r.loss != nil {
		tell(r.call.Ctx, t.Lost, *r.loss)
	}
}

// renew returns the renewal that is due at the given time, and when to look at the lock again if the renewal has no
// result. If none is due, it returns nil and the time when one will be, or the zero time if the lock is no longer kept
// or no longer valid.
func (h *hold) renew(now time.Time) (*renewal, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) == 0 || h.ended != nil || lease.Passed(h.lease.Until()) {
		return nil, time.Time{}
	}
	due, next := h.lease.Renew(now)
	if due == nil {
		return nil, next
	}
	r := &renewal{hold: h, lease: due}
	ctx := context.WithoutCancel(h.kept[0].Context) // a hook may look at its values
	r.call = h.newRefresh(ctx, due.TTL, "", true)
	r.call.Tag = r
	return r, next
}

// renewed notes the result of a renewal. It returns when to look at the lock next (the zero time for no change), and
// whether it must not look sooner.
func (h *hold) renewed(r *renewal) (next time.Time, exact bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) == 0 || h.ended != nil {
		return time.Time{}, false
	}
	before := h.lease.Until()
	r.left = max(0, time.Until(before))
	err := r.call.Err
	if err == nil {
		err = readLossCause(h.keys, r.call.Reply)
	}
	switch {
	case errors.Is(err, ErrLockNotHeld):
		r.matters, r.err = true, err
		r.loss = h.lose(r.call.Reply)
		return time.Now(), false // to be ended
	case err != nil:
		next, counts := h.lease.RenewalFailed(r.lease, time.Now())
		if counts {
			h.renewErr = err
			r.matters, r.err = true, failed("renew", h.keys, err)
		}
		return next, false
	}
	next = h.lease.Renewed(r.lease, r.call.Sent)
	if h.lease.Until().After(before) {
		h.renewErr = nil
		r.matters = true
	}
	return next, true
}
