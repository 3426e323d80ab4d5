package redislock

import (
	"context"
	"fmt"
	"time"
)

// startRenewing starts the renewals of all holds. Each is renewed in the pipelines of its own server. It reports false after
// Close.
func (h *several) startRenewing(ctx context.Context) bool {
	if isClosed(h.closed) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keeping != nil {
		return true
	}
	h.keeping = context.WithoutCancel(ctx)
	for i := range h.at {
		if h.at[i].lock != nil {
			h.keepAt(i)
		}
	}
	return true
}

// keepAt starts the renewals of one hold. The caller holds h.mu.
func (h *several) keepAt(i int) {
	at := &h.at[i]
	lock := at.lock
	var renewed context.Context
	renewed, at.stop = keepAlive(h.keeping, lock)
	at.renewed = renewed
	context.AfterFunc(renewed, func() { h.lapsed(renewed, i) })
}

// stopRenewing stops the renewals, unless the lock is kept again.
func (h *several) stopRenewing() {
	h.life.mu.Lock()
	h.mu.Lock()
	var stops []context.CancelFunc
	if len(h.life.kept) == 0 { // with both locked: a KeepAlive that comes now starts the renewals again
		h.keeping = nil
		for i := range h.at {
			h.places.all[i].health.forget(h)
			if at := &h.at[i]; at.stop != nil {
				stops = append(stops, at.stop)
				at.stop = nil
			}
		}
	}
	h.mu.Unlock()
	h.life.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// lapsed notes that the renewals of a hold have ended. It does nothing if others have begun since.
func (h *several) lapsed(renewed context.Context, i int) {
	cause := context.Cause(renewed)
	h.mu.Lock()
	at := &h.at[i]
	if h.keeping == nil || at.renewed != renewed {
		h.mu.Unlock()
		return
	}
	at.stop = nil
	if cause == ErrClosed { // the place still has the keys
		h.mu.Unlock()
		endKept(h, ErrClosed)
		return
	}
	if at.missing.IsZero() {
		at.missing = time.Now()
	}
	ctx := h.keeping
	h.mu.Unlock()
	h.check(ctx)
}

// check ends the lock if too many places have lost keys, and ends its contexts if it is no longer valid.
func (h *several) check(ctx context.Context) {
	if cause := h.loss(); cause != nil {
		h.life.mu.Lock()
		var event *Lost
		if h.ended == nil {
			event = h.lose(cause)
		}
		h.life.mu.Unlock()
		h.mu.Lock()
		h.over = true
		h.mu.Unlock()
		if event != nil {
			tell(ctx, h.tracer.Lost, *event)
		}
	}
	lapse(h)
}

// loss returns why the lock is lost, or nil if it is not, as far as is known.
func (h *several) loss() error {
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
			ErrLockNotHeld, describe(h.keys), gone, len(h.at))
	}
	return cause
}

// lossCause returns LossTaken if another holder has some key of the lock, as far as the holds know.
func (h *several) lossCause() LossCause {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.at {
		if lock := h.at[i].lock; lock != nil && lock.wasTaken() {
			return LossTaken
		}
	}
	return LossGone
}

// renewed takes the result of a renewal of one hold.
func (h *several) renewed(r *renewal) {
	i := r.hold.of.at
	if h.lockAt(i) != r.hold {
		return
	}
	if r.call.Err == nil {
		_ = h.confirm(i, r.call.Sent, r.err)
	}
	before, gained := h.gain(r.lease.TTL)
	event := Refreshed{Keys: h.keys, Renewal: true, TTL: r.lease.TTL, Left: max(0, time.Until(before)), Err: r.err}
	tells := gained
	h.life.mu.Lock()
	if gained {
		h.renewErr = nil
	}
	if r.err != nil {
		h.renewErr = r.err
		tells = h.renewalFailed(i)
	}
	h.life.mu.Unlock()
	if told := h.tracer.Refreshed; told != nil && tells {
		told(r.call.Ctx, event)
	}
	if r.err != nil {
		h.check(r.call.Ctx)
	}
	h.mend() // also after a loss: the others may have been renewed just before
}

// renewalFailed notes that a renewal has failed at one place, and reports whether no majority is left without a
// failure. It reports true once per round of failures. A place that fails a second time begins the next round.
func (h *several) renewalFailed(i int) bool {
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
func (h *several) gain(ttl time.Duration) (before time.Time, gained bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.shown
	now := h.untilLocked()
	if gained = now.Sub(before) > ttl/4; gained { // a round of renewals comes after a third, or a little sooner
		h.shown = now
	}
	return before, gained
}
