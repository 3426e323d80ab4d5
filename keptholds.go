package redislock

import (
	"context"
	"fmt"
	"time"
)

// keep starts the renewals of all holds. Each is renewed in the pipelines of its own server. It reports false after
// Close.
func (h *holds) keep(ctx context.Context) bool {
	select {
	case <-h.whole.client.closed:
		return false
	default:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept != nil {
		return true
	}
	h.kept = context.WithoutCancel(ctx)
	for i := range h.at {
		if h.at[i].lock != nil {
			h.keepAt(i)
		}
	}
	return true
}

// keepAt starts the renewals of one hold. The caller holds h.mu.
func (h *holds) keepAt(i int) {
	at := &h.at[i]
	lock := at.lock
	var renewed context.Context
	renewed, at.stop = lock.KeepAlive(h.kept)
	at.renewed = renewed
	context.AfterFunc(renewed, func() { h.lapsed(renewed, i) })
}

// unkeep stops the renewals, unless the lock is kept again.
func (h *holds) unkeep() {
	l := h.whole
	l.mu.Lock()
	h.mu.Lock()
	var stops []context.CancelFunc
	if len(l.kept) == 0 { // with both locked: a KeepAlive that comes now starts the renewals again
		h.kept = nil
		for i := range h.at {
			h.places.all[i].health.forget(h)
			if at := &h.at[i]; at.stop != nil {
				stops = append(stops, at.stop)
				at.stop = nil
			}
		}
	}
	h.mu.Unlock()
	l.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// lapsed notes that the renewals of a hold have ended. It does nothing if others have begun since.
func (h *holds) lapsed(renewed context.Context, i int) {
	cause := context.Cause(renewed)
	h.mu.Lock()
	at := &h.at[i]
	if h.kept == nil || at.renewed != renewed {
		h.mu.Unlock()
		return
	}
	at.stop = nil
	if cause == ErrClosed { // the place still has the keys
		h.mu.Unlock()
		h.whole.endKept(ErrClosed)
		return
	}
	if at.missing.IsZero() {
		at.missing = time.Now()
	}
	ctx := h.kept
	h.mu.Unlock()
	h.check(ctx)
}

// check ends the lock if too many places have lost keys, and ends its contexts if it is no longer valid.
func (h *holds) check(ctx context.Context) {
	l := h.whole
	if cause := h.loss(); cause != nil {
		l.mu.Lock()
		var event *Lost
		if l.ended == nil {
			l.ended = cause
			event = l.endLost(h.lossCause(), lostKeys(l.keys, cause), cause)
		}
		l.mu.Unlock()
		h.mu.Lock()
		h.over = true
		h.mu.Unlock()
		if event != nil {
			tell(ctx, l.client.tracer.Lost, *event)
		}
	}
	l.lapse()
}

// loss returns why the lock is lost, or nil if it is not, as far as is known.
func (h *holds) loss() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost, gone := make([][]string, len(h.at)), 0
	for i := range h.at {
		at := &h.at[i]
		if lost[i] = at.lost; lost[i] == nil && at.lock != nil {
			lost[i] = h.lostAt(i, at.lock.whyLost())
		}
		if lost[i] != nil {
			gone++
		}
	}
	if gone <= h.places.spare() {
		return nil
	}
	cause := h.lossOf(lost, ErrLockNotHeld)
	if cause == ErrLockNotHeld {
		cause = fmt.Errorf("%w: %s is gone or another's at %d of %d places",
			ErrLockNotHeld, describe(h.whole.keys), gone, len(h.at))
	}
	return cause
}

// lossCause returns LossTaken if another holder has some key of the lock, as far as the holds know.
func (h *holds) lossCause() LossCause {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.at {
		if lock := h.at[i].lock; lock != nil && lock.wasTaken() {
			return LossTaken
		}
	}
	return LossGone
}

// whyLost returns why the lock has ended; nil if it has not.
func (l *Lock) whyLost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// wasTaken reports whether some key was found to be another's.
func (l *Lock) wasTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// renewed takes the result of a renewal of one hold.
func (h *holds) renewed(r *renewal) {
	i, l := int(r.lock.number-1), h.whole
	if h.lockAt(i) != r.lock {
		return
	}
	if r.call.Err == nil {
		_ = h.confirm(i, r.call.Sent, r.err)
	}
	before, gained := h.gain(r.lease.TTL)
	event := Refreshed{Keys: l.keys, Renewal: true, TTL: r.lease.TTL, Left: max(0, time.Until(before)), Err: r.err}
	tells := gained
	l.mu.Lock()
	if gained {
		l.renewErr = nil
	}
	if r.err != nil {
		l.renewErr = r.err
		tells = h.renewalFailed(i)
	}
	l.mu.Unlock()
	if told := l.client.tracer.Refreshed; told != nil && tells {
		told(r.call.Ctx, event)
	}
	if r.err != nil {
		h.check(r.call.Ctx)
	}
	h.mend() // also after a loss: the others may have been renewed just before
}

// renewalFailed notes that a renewal has failed at one place, and reports whether no majority is left without a
// failure. It reports true once per round of failures. A place that fails a second time begins the next round.
func (h *holds) renewalFailed(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at[i].failing {
		for j := range h.at {
			h.at[j].failing = false
		}
	}
	h.at[i].failing = true
	failing := 0
	for j := range h.at {
		if at := &h.at[j]; at.failing || at.stop == nil {
			failing++
		}
	}
	return failing == h.places.spare()+1
}

// gain returns the end of the validity that a Tracer was last told of, and whether that has moved since by more than the
// places of one renewal differ.
func (h *holds) gain(ttl time.Duration) (before time.Time, gained bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.shown
	now := h.untilLocked()
	if gained = now.Sub(before) > ttl/4; gained { // a round of renewals comes after a third, or a little sooner
		h.shown = now
	}
	return before, gained
}
