package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// KeepAlive renews the lock, with the ttl of its last Obtain or Refresh, until ctx ends, the returned function is
// called, the lock is released or lost, or the Client is closed. Then the returned context ends as well. If the lock is
// lost, the context ends at [Lock.Until] at the latest. A deadline on ctx limits for how long the lock is renewed; after
// that, it is held until its ttl ends or it is released.
//
// [context.Cause] of the returned context says why it has ended:
//   - an error that matches [ErrLockNotHeld] if the keys are gone or another holder has them; a [*LostError] if only
//     some keys are lost;
//   - an error that matches [ErrLapsed] if the validity ended without a renewal; it wraps the last error of Redis, if
//     there was one (there is none after a mere pause of the process);
//   - the cause of ctx if ctx has ended, [context.Canceled] after a call of the returned function, an error that wraps
//     context.Canceled after Release, and [ErrClosed] after Close.
//
// The context is exact even if no timer has run yet, for example after a pause of the process: each call of its Err or
// Done, and of [context.Cause], checks the clocks. Contexts derived from it may lag. Right before a critical step,
// check the context itself, or Until.
//
// KeepAlive does not block. If ctx is one of package context, it needs no goroutine and no timer of its own: one
// scheduler renews all locks of a Redis client, in shared pipelines, each after a third of its validity. The library
// retries a failed renewal for as long as the lock is valid. A renewal never shortens a ttl and never creates a key; a
// key that has lost its expiry gets one again. So a renewal that is on its way when the lock is released or the function
// is called does no harm, and nobody waits for it. Refresh may still be called meanwhile.
//
// KeepAlive may be called several times. The lock is renewed while any of the contexts lives, and each context ends by
// itself. Always call the returned function; it may be called several times and concurrently. It does not release the
// lock.
//
// The returned context has already ended, with a cause that matches:
//   - ErrLockNotHeld, for a nil lock or one that was released or lost;
//   - ErrLapsed, if Until has passed;
//   - [ErrInvalid], if ctx is nil, or if the lock comes from Attach and was never refreshed, because its ttl is then
//     unknown;
//   - ErrClosed, after Close.
func (l *Lock) KeepAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		return stillborn(context.Background(), errNilContext)
	}
	if !l.exists() {
		return stillborn(ctx, ErrLockNotHeld)
	}
	inner, end := context.WithCancelCause(ctx)
	k := &kept{Context: inner, lock: l, end: end}
	if err := l.keep(k); err != nil {
		end(err)
		return inner, func() {}
	}
	if !l.startRenewing(inner) {
		l.unkeep(k)
		end(ErrClosed)
		return inner, func() {}
	}
	// Stop renewing when the context ends, for whatever reason. Only then does this start a goroutine.
	context.AfterFunc(inner, func() { l.unkeep(k) })
	return k, func() {
		k.check() // a lapse must not be hidden by the stop that follows it
		end(nil)
	}
}

// stillborn returns a context that has already ended.
func stillborn(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ended, end := context.WithCancelCause(ctx)
	end(cause)
	return ended, func() {}
}

// errReleased is the cause of the contexts of a released lock.
var errReleased = fmt.Errorf("redislock: the lock was released: %w", context.Canceled)

// kept is the context of a lock that is kept alive. The inner context is one of package context, so that contexts
// derived from this one need no goroutine.
type kept struct {
	context.Context

	lock *Lock
	end  context.CancelCauseFunc
}

func (k *kept) Err() error {
	k.check()
	return k.Context.Err()
}

func (k *kept) Done() <-chan struct{} {
	k.check()
	return k.Context.Done()
}

// Value is what context.Cause calls to find the cause.
func (k *kept) Value(key any) any {
	k.check()
	return k.Context.Value(key)
}

// check ends the context if the lock is no longer valid, because the scheduler may not have run yet.
func (k *kept) check() {
	if k.Context.Err() == nil && lease.Passed(k.lock.Until()) {
		k.lock.lapse()
		k.end(k.lock.ending()) // another goroutine may be about to do this, but it must be done when check returns
	}
}

// keep adds a context to those for which the lock is renewed.
func (l *Lock) keep(k *kept) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.released.IsZero():
		return fmt.Errorf("%w: %w", ErrLockNotHeld, errReleased)
	case l.ended != nil || lease.Passed(l.validUntil()):
		return l.whyEnded()
	case !l.knowsTTL():
		return invalid("an attached lock has no ttl that could be renewed; call Refresh first")
	}
	l.kept = append(l.kept, k)
	return nil
}

// knowsTTL reports whether there is a ttl to renew the lock with. The caller holds l.mu.
func (l *Lock) knowsTTL() bool {
	if h := l.parts(); h != nil {
		return h.knowTTL()
	}
	return l.lease.TTL() > 0
}

// startRenewing starts the renewals, with the values of ctx. It reports false after Close.
func (l *Lock) startRenewing(ctx context.Context) bool {
	if h := l.parts(); h != nil {
		return h.keep(ctx)
	}
	return l.client.renewals.add(l)
}

// stopRenewing stops the renewals, unless the lock is kept again.
func (l *Lock) stopRenewing() {
	if h := l.parts(); h != nil {
		h.unkeep()
		return
	}
	l.client.renewals.remove(l)
}

// unkeep removes an ended context from the lock. If it was the last one, it removes the lock from the scheduler.
func (l *Lock) unkeep(k *kept) {
	l.mu.Lock()
	l.kept = slices.DeleteFunc(l.kept, func(other *kept) bool { return other == k })
	last := len(l.kept) == 0
	l.mu.Unlock()
	if last {
		l.stopRenewing()
	}
}

// endKept ends every context of the lock.
func (l *Lock) endKept(cause error) {
	l.mu.Lock()
	ending := l.kept
	l.kept = nil
	l.mu.Unlock()
	l.endAll(ending, cause)
}

// endAll ends contexts that were removed from the lock.
func (l *Lock) endAll(ending []*kept, cause error) {
	for _, k := range ending {
		k.end(cause)
	}
	if len(ending) > 0 {
		l.stopRenewing()
	}
}

// lapse ends every context of a lock that is no longer valid, and tells a Tracer if it has lapsed. It returns false if the
// lock is valid and has contexts left.
func (l *Lock) lapse() bool {
	over, report := l.endLapsed()
	if report != nil {
		report()
	}
	return over
}

// endLapsed is lapse, but leaves it to the caller to tell a Tracer: with report, unless that is nil.
func (l *Lock) endLapsed() (over bool, report func()) {
	l.mu.Lock()
	if l.ended == nil && !lease.Passed(l.validUntil()) {
		defer l.mu.Unlock()
		return len(l.kept) == 0, nil
	}
	ending := l.kept
	l.kept = nil
	var lapsed *Lost
	if len(ending) > 0 && l.ended == nil { // else it was found lost or released, and that was reported there
		lapsed = l.noteLapse()
	}
	cause := l.whyEnded()
	l.mu.Unlock()
	l.endAll(ending, cause)
	if lapsed == nil {
		return true, nil
	}
	ctx := context.WithoutCancel(ending[0].Context)
	return true, func() { tell(ctx, l.client.tracer.Lost, *lapsed) }
}

// noteLapse returns what to tell a Tracer of a kept lock whose validity is over. The caller holds l.mu.
func (l *Lock) noteLapse() *Lost {
	if h := l.parts(); h != nil {
		if cause := h.loss(); cause != nil { // its places know of it, and are about to report it
			l.ended = cause
			return l.endLost(h.lossCause(), lostKeys(l.keys, cause), cause)
		}
	}
	return l.endLost(LossLapsed, nil, l.whyEnded())
}

// ending is whyEnded for callers that do not hold l.mu.
func (l *Lock) ending() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whyEnded()
}

// whyEnded returns why a lock is no longer valid. The caller holds l.mu.
func (l *Lock) whyEnded() error {
	switch {
	case l.ended != nil:
		return l.ended
	case l.renewErr != nil:
		return fmt.Errorf("%w: %s: %w", ErrLapsed, describe(l.keys), l.renewErr)
	}
	return fmt.Errorf("%w: %s", ErrLapsed, describe(l.keys))
}

// isKept reports whether any context of the lock is still to be served.
func (l *Lock) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept) > 0
}

// lose notes that a reply has reported a loss, and returns what to tell a Tracer after l.mu is unlocked, or nil for
// nothing. The caller holds l.mu.
func (l *Lock) lose(reply any) *Lost {
	l.lease.End(time.Now())
	l.losses++
	l.ended = readLossCause(l.keys, reply)
	lost, cause := readLostKeys(l.keys, reply)
	l.taken = cause == LossTaken
	if !l.released.IsZero() { // the Release may have freed the keys; if not, it reports the loss
		return nil
	}
	return l.endLost(cause, lost, l.ended)
}
