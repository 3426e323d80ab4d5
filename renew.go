package redislock

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// renewals renews the kept locks of all Clients of one Redis client. It sends together what is due in one round of the
// schedule. A lock at several places is among the renewals of its first place.
type renewals struct {
	schedule *schedule.Schedule
	due      []renewal // due in the present round; belongs to the schedule's goroutine
}

func newRenewals() *renewals {
	r := &renewals{}
	r.schedule = schedule.New(r.endRound)
	return r
}

// upkeep is a kept lock as an item of the schedule of renewals.
type upkeep interface {
	schedule.Item
	bearer() life.Bearer
	home() *place // among whose renewals it is
}

// renewal is a request that renews a lock at a place.
type renewal interface {
	request() *transport.Call
	at() *place
	until() time.Time        // the end of the lock's validity
	patience() time.Duration // how long to wait for the answer before another renewal follows
	finish(sent bool)        // applies the result of the request, which has ended; or it was not sent
}

// add starts the renewals of a lock. It reports false if the lock's Client is closed; then the caller ends the lock's
// contexts. It looks only afterwards, so either it or a Close that comes at the same time finds the other.
func (r *renewals) add(u upkeep) bool {
	p := u.home()
	p.keeps.Store(true)
	r.schedule.Add(u)
	return !fault.IsClosed(p.closed)
}

// end ends every kept context of the locks of a Client that was closed.
func (r *renewals) end(p *place) {
	for _, item := range r.schedule.Items() {
		if u := item.(upkeep); u.home() == p && !life.Lapse(u.bearer()) {
			life.EndKept(u.bearer(), ErrClosed)
		}
	}
}

// endRound sends the renewals that are due, those of the locks that lapse first before the others. over are the locks
// that were found to be no longer kept or no longer valid.
func (r *renewals) endRound(over []schedule.Item) {
	for _, item := range over {
		u := item.(upkeep)
		over, report := life.Lapsing(u.bearer())
		if !over && !r.add(u) { // a Refresh has extended it since
			life.EndKept(u.bearer(), ErrClosed)
		}
		if report != nil {
			// Not in this goroutine, which has to end the contexts of other locks in time: the Tracer may ask Redis what has
			// become of the keys, and Redis may be down.
			go report()
		}
	}
	due := r.due
	r.due = nil
	send(due)
}

// send sends renewals, in shared pipelines.
func send(due []renewal) {
	slices.SortFunc(due, func(a, b renewal) int { return a.until().Compare(b.until()) })
	patience := func(c *transport.Call) time.Duration { return c.Tag.(renewal).patience() }
	for len(due) > 0 {
		redis := due[0].at().redis.Redis
		var calls []*transport.Call
		due = slices.DeleteFunc(due, func(r renewal) bool {
			if r.at().redis.Redis != redis {
				return false
			}
			c := r.request()
			c.Tag, c.Alone = r, r.at().redis.Separates()
			calls = append(calls, c)
			return true
		})
		for _, c := range redis.SendBatches(calls, patience, func(c *transport.Call) { c.Tag.(renewal).finish(true) }) {
			c.Tag.(renewal).finish(false)
		}
	}
}

// holdUpkeep is a lock at one place as an upkeep.
type holdUpkeep hold

// Look makes the renewal of a lock that is due.
func (u *holdUpkeep) Look(now time.Time) (next time.Time, early time.Duration) {
	h := (*hold)(u)
	r, next := h.renew(now)
	if r == nil {
		return next, 0
	}
	h.place.renewals.due = append(h.place.renewals.due, r)
	return next, r.lease.Early
}

// Wanted reports whether the lock is kept.
func (u *holdUpkeep) Wanted() bool { return (*hold)(u).IsKept() }

// Entry is the lock's place in the schedule.
func (u *holdUpkeep) Entry() *schedule.Entry { return &u.entry }

func (u *holdUpkeep) bearer() life.Bearer { return (*hold)(u) }

func (u *holdUpkeep) home() *place { return u.place }

// holdRenewal is one renewal of a lock at one place.
type holdRenewal struct {
	hold  *hold
	lease *lease.Renewal
	call  *transport.Call

	// What to tell a Tracer; see renewed.
	matters bool
	left    time.Duration // of the validity
	err     error
	loss    *life.Lost
}

func (r *holdRenewal) request() *transport.Call { return r.call }

func (r *holdRenewal) at() *place { return r.hold.place }

func (r *holdRenewal) until() time.Time { return r.lease.Until }

func (r *holdRenewal) patience() time.Duration { return r.lease.Patience }

// finish applies the result, and tells a Tracer how the renewal has ended, unless that makes no difference any more.
func (r *holdRenewal) finish(sent bool) {
	if !sent { // it is due again after its patience
		return
	}
	h := r.hold
	all := h.place.renewals.schedule
	switch next, exact := h.renewed(r); {
	case next.IsZero():
	case exact:
		all.LookAt((*holdUpkeep)(h), next)
		h.renewSooner() // a Refresh that began just now, or a loss, may have asked for an earlier look
	default:
		all.LookBy((*holdUpkeep)(h), next)
	}
	if !r.matters {
		return
	}
	if tell := h.Events().Refreshed; tell != nil {
		tell(r.call.Ctx, life.Refreshed{Keys: h.keys.Names, Renewal: true, TTL: r.lease.TTL, Left: r.left, Err: r.err})
	}
	if r.loss != nil {
		h.Events().Lost(r.call.Ctx, *r.loss)
	}
}

// renewSooner tells the scheduler, if the lock is kept, that its renewal may be due sooner than before.
func (h *hold) renewSooner() {
	h.Life.Mu.Lock()
	due := h.lease.Due()
	h.Life.Mu.Unlock()
	h.place.renewals.schedule.LookBy((*holdUpkeep)(h), due)
}

// renew returns the renewal that is due at the given time, and when to look at the lock again if the renewal has no
// result. If none is due, it returns nil and the time when one will be, or the zero time if the lock is no longer kept
// or no longer valid.
func (h *hold) renew(now time.Time) (*holdRenewal, time.Time) {
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	if !h.IsRenewed() || lease.Passed(h.lease.Until()) {
		return nil, time.Time{}
	}
	due, next := h.lease.Renew(now)
	if due == nil {
		return nil, next
	}
	c := h.newRefresh(due.TTL, "", true)
	c.Ctx = h.RenewalCtx()
	return &holdRenewal{hold: h, lease: due, call: c}, next
}

// renewed notes the result of a renewal. It returns when to look at the lock next (the zero time for no change), and
// whether it must not look sooner.
func (h *hold) renewed(r *holdRenewal) (next time.Time, exact bool) {
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	if !h.IsRenewed() {
		return time.Time{}, false
	}
	before := h.lease.Until()
	r.left = max(0, time.Until(before))
	var loss script.Loss
	err := r.call.Err
	if err == nil {
		loss, err = script.ReadLoss(h.keys.Names, r.call.Reply)
	}
	switch {
	case !loss.IsNone():
		r.loss = h.lose(&loss)
		r.matters, r.err = true, contextCause(&loss)
		return time.Now(), false // to be ended
	case err != nil:
		next, counts := h.lease.RenewalFailed(r.lease, time.Now())
		if counts {
			h.Renewed(err)
			r.matters, r.err = true, fault.Failed("renew", h.keys.Names, err)
		}
		return next, false
	}
	next = h.lease.Renewed(r.lease, r.call.Sent)
	if h.lease.Until().After(before) {
		h.Renewed(nil)
		r.matters = true
	}
	return next, true
}
