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
type upkeep Lock

// Look makes the renewal of a lock that is due.
func (u *upkeep) Look(now time.Time) (next time.Time, early time.Duration) {
	l := (*Lock)(u)
	r, next := l.renew(now)
	if r == nil {
		return next, 0
	}
	l.client.renewals.due = append(l.client.renewals.due, r)
	return next, r.lease.Early
}

// Wanted reports whether the lock is kept.
func (u *upkeep) Wanted() bool { return (*Lock)(u).isKept() }

// Entry is the lock's place in the schedule.
func (u *upkeep) Entry() *schedule.Entry { return &u.entry }

// add starts the renewals of a lock. It reports false if the lock's Client is closed; then the caller ends the lock's
// contexts. It looks only afterwards, so either it or a Close that comes at the same time finds the other.
func (r *renewals) add(l *Lock) bool {
	l.client.keeps.Store(true)
	r.schedule.Add((*upkeep)(l))
	return !l.client.hasClosed()
}

// remove stops the renewals of a lock, unless it is kept again.
func (r *renewals) remove(l *Lock) { r.schedule.Remove((*upkeep)(l)) }

// lookBy makes the scheduler look at a lock no later than at that time.
func (r *renewals) lookBy(l *Lock, at time.Time) { r.schedule.LookBy((*upkeep)(l), at) }

// end ends every kept context of the locks of a Client that was closed.
func (r *renewals) end(c *Client) {
	for _, item := range r.schedule.Items() {
		l := (*Lock)(item.(*upkeep))
		if l.client == c && !l.lapse() {
			l.endKept(ErrClosed)
			if l.number > 0 { // the contexts must have ended when Close returns
				l.holds.whole.endKept(ErrClosed)
			}
		}
	}
}

// endRound sends the renewals that are due, those of the locks that lapse first before the others. over are the locks
// that were found to be no longer kept or no longer valid.
func (r *renewals) endRound(over []schedule.Item) {
	for _, item := range over {
		l := (*Lock)(item.(*upkeep))
		over, report := l.endLapsed()
		if !over && !r.add(l) { // a Refresh has extended it since
			l.endKept(ErrClosed)
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
		calls[i].Alone = due.lock.client.redis.Separates()
	}
	r.due = nil
	patience := func(c *transport.Call) time.Duration { return c.Tag.(*renewal).lease.Patience }
	r.redis.SendBatches(calls, patience, func(c *transport.Call) { r.finish(c.Tag.(*renewal)) })
}

// finish applies the result of a renewal that has ended.
func (r *renewals) finish(done *renewal) {
	switch next, exact := done.lock.renewed(done); {
	case next.IsZero():
	case exact:
		r.schedule.LookAt((*upkeep)(done.lock), next)
		done.lock.renewSooner() // a Refresh that began just now, or a loss, may have asked for an earlier look
	default:
		r.schedule.LookBy((*upkeep)(done.lock), next)
	}
	done.tell()
}

// renewal is one renewal of a lock.
type renewal struct {
	lock  *Lock
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
	case r.lock.number > 0:
		r.lock.holds.renewed(r)
		return
	}
	t := r.lock.client.tracer
	if t.Refreshed != nil {
		t.Refreshed(r.call.Ctx, Refreshed{Keys: r.lock.keys, Renewal: true, TTL: r.lease.TTL, Left: r.left, Err: r.err})
	}
	if r.loss != nil {
		tell(r.call.Ctx, t.Lost, *r.loss)
	}
}

// renew returns the renewal that is due at the given time, and when to look at the lock again if the renewal has no
// result. If none is due, it returns nil and the time when one will be, or the zero time if the lock is no longer kept
// or no longer valid.
func (l *Lock) renew(now time.Time) (*renewal, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == 0 || l.ended != nil || lease.Passed(l.lease.Until()) {
		return nil, time.Time{}
	}
	due, next := l.lease.Renew(now)
	if due == nil {
		return nil, next
	}
	r := &renewal{lock: l, lease: due}
	ctx := context.WithoutCancel(l.kept[0].Context) // a hook may look at its values
	r.call = l.newRefresh(ctx, due.TTL, "", true)
	r.call.Tag = r
	return r, next
}

// renewed notes the result of a renewal. It returns when to look at the lock next (the zero time for no change), and
// whether it must not look sooner.
func (l *Lock) renewed(r *renewal) (next time.Time, exact bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == 0 || l.ended != nil {
		return time.Time{}, false
	}
	before := l.lease.Until()
	r.left = max(0, time.Until(before))
	err := r.call.Err
	if err == nil {
		err = readLossCause(l.keys, r.call.Reply)
	}
	switch {
	case errors.Is(err, ErrLockNotHeld):
		r.matters, r.err = true, err
		r.loss = l.lose(r.call.Reply)
		return time.Now(), false // to be ended
	case err != nil:
		next, counts := l.lease.RenewalFailed(r.lease, time.Now())
		if counts {
			l.renewErr = err
			r.matters, r.err = true, failed("renew", l.keys, err)
		}
		return next, false
	}
	next = l.lease.Renewed(r.lease, r.call.Sent)
	if l.lease.Until().After(before) {
		l.renewErr = nil
		r.matters = true
	}
	return next, true
}
