package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// KeepAlive renews the lock, with the ttl of its last Obtain or Refresh, until ctx ends, the returned function is called,
// the lock is released or lost, or the Client is closed. The returned context ends then as well, and when the lock is lost
// it ends no later than [Lock.Until]. A deadline on ctx is thus the cap on the whole hold.
//
// [context.Cause] of the returned context tells why it has ended:
//   - an error that matches [ErrLockNotHeld] if the keys are gone or another's; a [*LostError] if only some are;
//   - an error that says that the lease ran out unrenewed, and wraps the last error of Redis, or
//     [context.DeadlineExceeded] if there was none, as after a pause of the process;
//   - the cause of ctx if that has ended, [context.Canceled] after the returned function, an error that wraps
//     context.Canceled after Release, and [ErrClosed] after Close.
//
// The context tells the truth even before any timer has had its turn, after a pause of the process, say: each look at
// its Err, Done or Cause checks the clocks. Contexts derived from it may lag, so check the context itself, or Until,
// right before a critical step.
//
// KeepAlive does not block and costs no goroutine and no timer of its own: one scheduler renews all locks of a Client, in
// common pipelines, when a third of their validity has passed. A renewal that fails is tried again for as long as the
// lock is valid. A renewal never shortens a ttl and never creates a key, so one that is on the wire when the lock is
// released or the function called does no harm, and nobody waits for it. An explicit Refresh goes on working beside.
//
// KeepAlive may be called again: the lock is renewed while any of the contexts lives, and each ends by itself. Always
// call the returned function; it may be called several times and from several goroutines. It does not release the lock.
//
// For a nil lock or one that was released or lost, the returned context has ended already, with ErrLockNotHeld; with
// [ErrInvalid] if ctx is nil, or if the lock comes from Attach and has not been refreshed, since its ttl is not known
// then; and with ErrClosed after Close.
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
	if !l.client.keeper.add(l) {
		l.unkeep(k)
		end(ErrClosed)
		return inner, func() {}
	}
	// Whatever ends the context ends the keeping. The function runs in a goroutine of its own, and only then.
	context.AfterFunc(inner, func() { l.unkeep(k) })
	return k, func() { end(nil) }
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
	if k.Context.Err() == nil && passed(k.lock.Until()) {
		k.end(k.lock.whyEnded())
	}
}

// keep adds a context to those that the lock's renewal serves.
func (l *Lock) keep(k *kept) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended != nil && !errors.Is(l.ended, ErrLockNotHeld):
		return fmt.Errorf("%w: %w", ErrLockNotHeld, l.ended)
	case l.ended != nil:
		return l.ended
	case l.ttl == 0:
		return invalid("an attached lock has no ttl that could be renewed; call Refresh first")
	}
	l.kept = append(l.kept, k)
	return nil
}

// unkeep takes a context that has ended away from the lock, and with the last one the lock from the scheduler.
func (l *Lock) unkeep(k *kept) {
	l.mu.Lock()
	for i, other := range l.kept {
		if other == k {
			l.kept = append(l.kept[:i:i], l.kept[i+1:]...)
			break
		}
	}
	last := len(l.kept) == 0
	l.mu.Unlock()
	if last {
		l.client.keeper.remove(l)
	}
}

// endKept ends every context of the lock.
func (l *Lock) endKept(cause error) {
	l.mu.Lock()
	ending := l.kept
	l.kept = nil
	l.mu.Unlock()
	for _, k := range ending {
		k.end(cause)
	}
	if len(ending) > 0 {
		l.client.keeper.remove(l)
	}
}

// whyEnded returns why a lock is valid no longer.
func (l *Lock) whyEnded() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endedOrLapsed()
}

// endedOrLapsed is whyEnded with l.mu held.
func (l *Lock) endedOrLapsed() error {
	if l.ended != nil {
		return l.ended
	}
	return fmt.Errorf("redislock: the lease on %s ran out unrenewed: %w",
		describe(l.keys), cmp.Or(l.renewErr, context.DeadlineExceeded))
}

// lossCause says what a reply of refresh that reports a loss means to those who relied on the lock.
func lossCause(keys []string, reply any) error {
	err := loss(keys, reply, ErrLockNotHeld)
	if err != ErrLockNotHeld {
		return err
	}
	for _, entry := range reply.([]any) { // loss has made sure of that
		if index, _ := entry.(int64); index > 0 {
			return fmt.Errorf("%w: another holder has %q", ErrLockNotHeld, keys[index-1])
		}
	}
	return fmt.Errorf("%w: %s is gone", ErrLockNotHeld, describe(keys))
}

// renewal is what the scheduler has to know of a lock at one moment.
type renewal struct {
	lock     *Lock
	call     *call
	until    time.Time     // of the lock, when the renewal was made
	early    time.Duration // by how much it may be sent before its time
	patience time.Duration // after which another one follows, if this one is not answered
	certain  time.Duration // what a success makes certain
	sequence int           // of the lock, when the renewal was made
}

// isKept reports whether any context of the lock lives.
func (l *Lock) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept) > 0
}

// lapse ends every context of a lock that is valid no longer, and reports false for one that is valid, and kept.
func (l *Lock) lapse() bool {
	l.mu.Lock()
	if len(l.kept) > 0 && l.ended == nil && !passed(l.until) {
		l.mu.Unlock()
		return false
	}
	cause := l.endedOrLapsed()
	l.mu.Unlock()
	l.endKept(cause)
	return true
}

// renewal returns the renewal that is due at that time, with the time to look at the lock again if nothing comes of it. If
// none is due, it is nil, and the time is when one will be; the zero time if the lock is kept or valid no longer.
func (l *Lock) renewal(now time.Time) (*renewal, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == 0 || l.ended != nil || passed(l.until) {
		return nil, time.Time{}
	}
	early := l.ttl / 20
	if now.Add(early).Before(l.renewAt) {
		return nil, l.renewAt
	}
	left := l.until.Sub(now)
	certain := l.ttl
	if l.unanswered > 0 {
		certain = min(certain, l.unanswered)
	}
	for _, other := range l.refreshes { // may be executed after this renewal
		certain = min(certain, other.ttl)
	}
	// Another try follows each that is not answered soon, and several fit into what is left, however little that is.
	patience := max(left/4, leastPatience)
	r := &renewal{
		lock: l, until: l.until, early: early, patience: patience, certain: certain, sequence: l.sequence,
		call: &call{
			script: refreshScript, keys: l.keys, token: l.token, args: []any{l.ttl.Milliseconds(), "", "1"},
			ctx: context.Background(),
		},
	}
	return r, earlier(l.until, now.Add(patience))
}

// leastPatience is how long the scheduler waits for the answer to a renewal at least, before it sends another.
const leastPatience = 50 * time.Millisecond

// renewed draws the conclusions from a renewal that has ended. It returns when to look at the lock again; the zero time
// if there is nothing left to renew.
func (l *Lock) renewed(r *renewal) time.Time {
	l.mu.Lock()
	now := time.Now()
	if len(l.kept) == 0 || l.ended != nil {
		l.mu.Unlock()
		return time.Time{}
	}
	if r.call.err != nil {
		l.renewErr = r.call.err
		again := earlier(l.until, now.Add(jittered(max(l.until.Sub(now)/16, leastPatience/4))))
		l.mu.Unlock()
		return again
	}
	if cause := lossCause(l.keys, r.call.reply); cause != nil {
		l.lose(cause)
		l.mu.Unlock()
		l.endKept(cause)
		return time.Time{}
	}
	defer l.mu.Unlock()
	if r.sequence == l.sequence { // else a Refresh has come between, and it is not known which was executed first
		if until := validUntil(r.call.sent, r.certain); until.After(l.until) {
			l.setUntil(r.call.sent, until)
		}
	}
	return l.renewAt
}

// setUntil sets the validity that a request sent at that time has gained. l.mu is held.
func (l *Lock) setUntil(sent, until time.Time) {
	l.until, l.renewAt = until, sent.Add(until.Sub(sent)/3)
	l.renewErr = nil
}

// lose notes that the lock is held no longer. l.mu is held.
func (l *Lock) lose(cause error) {
	if now := time.Now(); now.Before(l.until) {
		l.until = now
	}
	l.ended = cause
}
