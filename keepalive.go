package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// KeepAlive renews the lock, with the ttl of its last Obtain or Refresh, until ctx ends, the returned function is called,
// the lock is released or lost, or the Client is closed. The returned context ends then as well, and when the lock is lost
// it ends no later than [Lock.Until]. A deadline on ctx is thus the cap on the whole hold.
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
// KeepAlive does not block and costs no goroutine and no timer of its own, if ctx is one of package context: one scheduler
// renews all locks of a Client, in common pipelines, when a third of their validity has passed. A renewal that fails is
// tried again for as long as the lock is valid. A renewal never shortens a ttl and never creates a key, so one that is on
// the wire when the lock is released or the function called does no harm, and nobody waits for it. An explicit Refresh
// goes on working beside.
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
	if !l.client.keeper.add(l) {
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
	if k.Context.Err() == nil && passed(k.lock.Until()) {
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
	case l.ended != nil || passed(l.until):
		return l.whyEnded()
	case l.ttl == 0:
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
		l.client.keeper.remove(l)
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
		l.client.keeper.remove(l)
	}
}

// lapse ends every context of a lock that is valid no longer. It reports false if there are some that live on.
func (l *Lock) lapse() bool {
	l.mu.Lock()
	if l.ended == nil && !passed(l.until) {
		defer l.mu.Unlock()
		return len(l.kept) == 0
	}
	ending, cause := l.kept, l.whyEnded()
	l.kept = nil
	l.mu.Unlock()
	l.endAll(ending, cause)
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

// renewal returns the renewal that is due at that time, with the time to look at the lock again if nothing comes of it. If
// none is due, it is nil, and the time is when one will be; the zero time if the lock is kept or valid no longer.
func (l *Lock) renewal(now time.Time) (*renewal, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == 0 || l.ended != nil || passed(l.until) {
		return nil, time.Time{}
	}
	switch {
	case now.Before(l.retryAt):
		return nil, earlier(l.until, l.retryAt)
	case now.Add(l.early).Before(l.renewAt):
		return nil, earlier(l.until, l.renewAt)
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
	patience := max(left/4, l.leastPatience())
	r := &renewal{
		lock: l, until: l.until, early: l.early, patience: patience, certain: certain, sequence: l.sequence,
		call: &call{
			script: refreshScript, keys: l.keys, boxed: l.boxed[:len(l.keys)], token: l.token,
			args: []any{l.ttl.Milliseconds(), "", "1"},
			ctx:  context.WithoutCancel(l.kept[0].Context), // a hook may look at its values
		},
	}
	r.call.renewal = r
	l.retryAt = now.Add(patience)
	return r, earlier(l.until, l.retryAt)
}

// leastPatience is how long the scheduler waits for the answer to a renewal at least, before it sends another: 50 ms, or
// less for a lock that has no two seconds, so that four tries fit into a tenth of the validity. Under 1 ms it would be busy
// for nothing. l.mu is held.
func (l *Lock) leastPatience() time.Duration {
	const most, least = 50 * time.Millisecond, time.Millisecond
	return min(most, max(least, l.early/2)) // early is a twentieth of the validity
}

// renewed draws the conclusions from a renewal that has ended. It returns when to look at the lock next, if that is not
// the zero time, and whether to look no sooner.
func (l *Lock) renewed(r *renewal) (next time.Time, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == 0 || l.ended != nil {
		return time.Time{}, false
	}
	err := r.call.err
	if _, loss := r.call.reply.([]any); err == nil && !loss && r.call.reply != int64(0) {
		err = unexpected(r.call.reply)
	}
	if err != nil {
		if !r.until.Equal(l.until) {
			return time.Time{}, false // another renewal, or a Refresh, has done better since
		}
		now := time.Now()
		l.renewErr = err
		l.retryAt = now.Add(jittered(max(l.until.Sub(now)/16, l.leastPatience()/4)))
		return earlier(l.until, l.retryAt), false
	}
	if cause := lossCause(l.keys, r.call.reply); cause != nil {
		l.lose(cause)
		return time.Now(), false // to be ended
	}
	if r.sequence == l.sequence { // else a Refresh has come between, and it is not known which was executed first
		if until := validUntil(r.call.sent, r.certain); until.After(l.until) {
			l.setUntil(r.call.sent, until)
		}
	}
	return earlier(l.until, l.renewAt), true
}

// setUntil sets the validity that a request sent at that time has gained. l.mu is held.
func (l *Lock) setUntil(sent, until time.Time) {
	validity := until.Sub(sent)
	l.until, l.renewAt, l.early = until, sent.Add(validity/3), validity/20
	l.retryAt, l.renewErr = time.Time{}, nil
}

// lose notes that the lock is held no longer. l.mu is held.
func (l *Lock) lose(cause error) {
	if now := time.Now(); now.Before(l.until) {
		l.until = now
	}
	l.ended = cause
}
