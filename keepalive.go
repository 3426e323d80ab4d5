package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// KeepAlive renews the lock, with the ttl of its last Obtain or Refresh, until ctx ends, the returned function is
// called, the lock is released or lost, or the Client is closed. The returned context ends then as well, and when the
// lock is lost it ends no later than [Lock.Until]. A deadline on ctx is thus the cap on the whole hold.
//
// [context.Cause] of the returned context tells why it has ended:
//   - an error that matches [ErrLockNotHeld] if the keys are gone or another's; a [*LostError] if only some are;
//   - an error that matches [ErrLapsed] if the lease ran out unrenewed; it wraps the last error of Redis, if there was one
//     and not just a pause of the process;
//   - the cause of ctx if that has ended, [context.Canceled] after the returned function, an error that wraps
//     context.Canceled after Release, and [ErrClosed] after Close.
//
// The context tells the truth even before any timer has had its turn, after a pause of the process, say: each look at
// its Err, Done or Cause checks the clocks. Contexts derived from it may lag, so check the context itself, or Until,
// right before a critical step.
//
// KeepAlive does not block and costs no goroutine and no timer of its own, if ctx is one of package context: one
// scheduler renews all locks of a Client, in common pipelines, when a third of their validity has passed. A renewal
// that fails is tried again for as long as the lock is valid. A renewal never shortens a ttl and never creates a key,
// so one that is on the wire when the lock is released or the function called does no harm, and nobody waits for it. An
// explicit Refresh goes on working beside.
//
// KeepAlive may be called again: the lock is renewed while any of the contexts lives, and each ends by itself. Always
// call the returned function; it may be called several times and from several goroutines. It does not release the lock.
//
// For a nil lock or one that was released or lost, the returned context has ended already, with ErrLockNotHeld; with
// ErrLapsed past Until; with [ErrInvalid] if ctx is nil, or if the lock comes from Attach and has not been refreshed,
// since its ttl is not known then; and with ErrClosed after Close.
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
	if !l.client.renewals.add(l) {
		l.unkeep(k)
		end(ErrClosed)
		return inner, func() {}
	}
	// Whatever ends the context ends the keeping. The function runs in a goroutine of its own, and only then.
	context.AfterFunc(inner, func() { l.unkeep(k) })
	return k, func() {
		k.look() // a lapse is not to be hidden by the stop that follows it
		end(nil)
	}
}

// stillborn returns a context that has ended already.
func stillborn(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ended, end := context.WithCancelCause(ctx)
	end(cause)
	return ended, func() {}
}

// errReleased is why the contexts of a released lock have ended.
var errReleased = fmt.Errorf("redislock: the lock was released: %w", context.Canceled)

// kept is the context of a lock that is kept alive. The context inside is one of package context, so contexts derived
// from this one hang on it without a goroutine.
type kept struct {
	context.Context

	lock *Lock
	end  context.CancelCauseFunc
}

func (k *kept) Err() error {
	k.look()
	return k.Context.Err()
}

func (k *kept) Done() <-chan struct{} {
	k.look()
	return k.Context.Done()
}

// Value is how package context asks for the cause.
func (k *kept) Value(key any) any {
	k.look()
	return k.Context.Value(key)
}

// look ends the context if the lock is valid no longer: the scheduler may not have had its turn yet.
func (k *kept) look() {
	if k.Context.Err() == nil && lease.Passed(k.lock.Until()) {
		k.lock.lapse()
		k.end(k.lock.ending()) // another goroutine may be about to, but this one must not return before
	}
}

// keep adds a context to those that the lock's renewal serves.
func (l *Lock) keep(k *kept) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.released.IsZero():
		return fmt.Errorf("%w: %w", ErrLockNotHeld, errReleased)
	case l.ended != nil || lease.Passed(l.lease.Until()):
		return l.whyEnded()
	case l.lease.TTL() == 0:
		return invalid("an attached lock has no ttl that could be renewed; call Refresh first")
	}
	l.kept = append(l.kept, k)
	return nil
}

// unkeep takes a context that has ended away from the lock, and with the last one the lock from the scheduler.
func (l *Lock) unkeep(k *kept) {
	l.mu.Lock()
	l.kept = slices.DeleteFunc(l.kept, func(other *kept) bool { return other == k })
	last := len(l.kept) == 0
	l.mu.Unlock()
	if last {
		l.client.renewals.remove(l)
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

// endAll ends contexts that were taken away from the lock.
func (l *Lock) endAll(ending []*kept, cause error) {
	for _, k := range ending {
		k.end(cause)
	}
	if len(ending) > 0 {
		l.client.renewals.remove(l)
	}
}

// lapse ends every context of a lock that is valid no longer. It reports false if there are some that live on.
func (l *Lock) lapse() bool {
	l.mu.Lock()
	if l.ended == nil && !lease.Passed(l.lease.Until()) {
		defer l.mu.Unlock()
		return len(l.kept) == 0
	}
	ending, cause := l.kept, l.whyEnded()
	l.kept = nil
	var lapsed *Lost
	if len(ending) > 0 && l.ended == nil { // else it was found lost or released, and whoever did so tells
		lapsed = l.endLost(LossLapsed, nil, cause)
	}
	l.mu.Unlock()
	l.endAll(ending, cause)
	if lapsed != nil {
		tell(context.WithoutCancel(ending[0].Context), l.client.tracer.Lost, *lapsed)
	}
	return true
}

// ending is whyEnded for those who do not hold l.mu.
func (l *Lock) ending() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whyEnded()
}

// whyEnded returns why a lock is valid no longer. l.mu is held.
func (l *Lock) whyEnded() error {
	switch {
	case l.ended != nil:
		return l.ended
	case l.renewErr != nil:
		return fmt.Errorf("%w: %s: %w", ErrLapsed, describe(l.keys), l.renewErr)
	}
	return fmt.Errorf("%w: %s", ErrLapsed, describe(l.keys))
}

// isKept reports whether any context of the lock lives.
func (l *Lock) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept) > 0
}

// lose notes that a reply has reported a loss, and returns what to tell a Tracer when l.mu is no longer held. l.mu is
// held.
func (l *Lock) lose(reply any) *Lost {
	l.lease.End(time.Now())
	l.ended = readLossCause(l.keys, reply)
	lost, cause := readLostKeys(l.keys, reply)
	return l.endLost(cause, lost, l.ended)
}
