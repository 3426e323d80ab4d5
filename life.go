package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// life is what a handle knows of its lock, whether that is held at one place or at several: whether it is still held. It
// ends with a Release or a loss; a Refresh may revive a lock that was lost.
type life struct {
	fence int64
	since time.Time // when the request was sent that obtained the lock, or found it

	mu            sync.Mutex // protects the fields below, except random, and the lease of a hold
	random        bool       // the library chose the token, so no other lock has it; set once
	told          bool       // a Tracer has been told of the end of the present hold
	releasedAgain bool       // Release was called more than once
	losses        int32      // how often it was found lost
	metadata      string
	released      time.Time // when Release was first called; zero if it was not
	ended         error     // why the lock is no longer held; nil while it is held, as far as is known
	renewErr      error     // how the last renewal failed, if it did
	kept          []*kept   // the contexts for which the lock is kept alive
}

// bearer is what bears a lock: a hold at one place, or several of them. The functions below do for both what concerns the
// handle of a caller.
type bearer interface {
	handle() *life
	names() (keys []string, token string)
	tells() *Tracer // of the events of the lock; never nil

	validUntil() time.Time // the end of the validity; the caller holds life.mu
	knowsTTL() bool        // there is a ttl to renew the lock with; the caller holds life.mu
	foundLost() *Lost      // notes a loss that is known, but not reported yet; nil for none; the caller holds life.mu

	startRenewing() bool // false after Close
	stopRenewing()       // unless the lock is kept again

	ttl(ctx context.Context) (time.Duration, error)
	refresh(ctx context.Context, ttl time.Duration, opt *Options) error
	free(ctx context.Context, now, until time.Time) (LossCause, error) // the work of a Release that began now
}

// until returns Lock.Until.
func until(b bearer) time.Time {
	l := b.handle()
	l.mu.Lock()
	defer l.mu.Unlock()
	until := b.validUntil()
	if !l.released.IsZero() && l.released.Before(until) {
		until = l.released
	}
	// Before compares monotonic readings alone if both times have one. If the wall clock has passed, return only that.
	if wall := until.Round(0); !time.Now().Round(0).Before(wall) {
		return wall
	}
	return until
}

// currentMetadata returns the metadata that this handle last stored or found.
func (l *life) currentMetadata() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.metadata
}

// isKept reports whether any context of the lock is still to be served.
func (l *life) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept) > 0
}

// ending is whyEnded for callers that do not hold life.mu.
func ending(b bearer) error {
	l := b.handle()
	l.mu.Lock()
	defer l.mu.Unlock()
	return whyEnded(b)
}

// whyEnded returns why a lock is no longer valid. The caller holds life.mu.
func whyEnded(b bearer) error {
	l := b.handle()
	keys, _ := b.names()
	switch {
	case l.ended != nil:
		return l.ended
	case l.renewErr != nil:
		return fmt.Errorf("%w: %s: %w", ErrLapsed, fault.Describe(keys), l.renewErr)
	}
	return fmt.Errorf("%w: %s", ErrLapsed, fault.Describe(keys))
}

// wasReleased reports whether Release was called.
func (l *life) wasReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.released.IsZero()
}

// keep adds a context to those for which the lock is renewed.
func keep(b bearer, k *kept) error {
	l := b.handle()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.released.IsZero():
		return fmt.Errorf("%w: %w", ErrLockNotHeld, errReleased)
	case l.ended != nil || lease.Passed(b.validUntil()):
		return whyEnded(b)
	case !b.knowsTTL():
		return fault.Invalid("an attached lock has no ttl that could be renewed; call Refresh first")
	}
	l.kept = append(l.kept, k)
	return nil
}

// unkeep removes an ended context from the lock. If it was the last one, it stops the renewals.
func unkeep(b bearer, k *kept) {
	l := b.handle()
	l.mu.Lock()
	l.kept = slices.DeleteFunc(l.kept, func(other *kept) bool { return other == k })
	last := len(l.kept) == 0
	l.mu.Unlock()
	if last {
		b.stopRenewing()
	}
}

// endKept ends every context of the lock.
func endKept(b bearer, cause error) {
	l := b.handle()
	l.mu.Lock()
	ending := l.kept
	l.kept = nil
	l.mu.Unlock()
	endAll(b, ending, cause)
}

// endAll ends contexts that were removed from the lock.
func endAll(b bearer, ending []*kept, cause error) {
	for _, k := range ending {
		k.end(cause)
	}
	if len(ending) > 0 {
		b.stopRenewing()
	}
}

// lapse ends every context of a lock that is no longer valid. It tells a Tracer of that, unless the lock was released, or
// was found to be lost before. It reports whether no context is left: false means that the lock is valid and kept.
func lapse(b bearer) bool {
	over, report := endLapsed(b)
	if report != nil {
		report()
	}
	return over
}

// endLapsed is lapse, but leaves it to the caller to tell a Tracer: with report, unless that is nil.
func endLapsed(b bearer) (over bool, report func()) {
	l := b.handle()
	l.mu.Lock()
	if l.ended == nil && !lease.Passed(b.validUntil()) {
		defer l.mu.Unlock()
		return len(l.kept) == 0, nil
	}
	ending := l.kept
	l.kept = nil
	var lapsed *Lost
	if len(ending) > 0 && l.ended == nil { // else it was found lost or released, and that was reported there
		lapsed = noteLapse(b)
	}
	cause := whyEnded(b)
	l.mu.Unlock()
	endAll(b, ending, cause)
	if lapsed == nil {
		return true, nil
	}
	ctx := context.WithoutCancel(ending[0].Context)
	return true, func() { tell(ctx, b.tells().Lost, *lapsed) }
}

// noteLapse returns what to tell a Tracer of a kept lock whose validity is over. The caller holds life.mu.
func noteLapse(b bearer) *Lost {
	l := b.handle()
	if loss := b.foundLost(); l.ended != nil {
		return loss
	}
	return endLost(b, LossLapsed, nil, whyEnded(b))
}

// release does the work of Lock.Release, apart from checking its arguments.
func release(ctx context.Context, b bearer) error {
	now := time.Now()
	until, lapsed := beginRelease(b, now)
	err := fault.ErrPanicked // unless free returns
	defer func() {
		if lapsed != nil {
			tell(ctx, b.tells().Lost, *lapsed)
		}
		tellReleased(ctx, b, now, err)
	}()
	cause, result := b.free(ctx, now, until)
	if errors.Is(result, ErrLockNotHeld) {
		tellLost(ctx, b, cause, result)
	}
	err = result
	return err
}

// beginRelease gives the lock up and ends its kept contexts. It returns the end of the validity before that, and what to
// tell a Tracer if the lock had lapsed.
func beginRelease(b bearer, now time.Time) (until time.Time, lapsed *Lost) {
	l := b.handle()
	l.mu.Lock()
	ending := l.kept
	l.kept = nil
	if len(ending) > 0 && lease.Passed(b.validUntil()) {
		if l.ended == nil {
			lapsed = noteLapse(b)
		}
		l.ended = whyEnded(b) // if the lock lapsed before, its contexts say that, and not that it was released
	}
	if l.releasedAgain = !l.released.IsZero(); !l.releasedAgain {
		l.released = now
		l.ended = cmp.Or(l.ended, errReleased)
	}
	until = b.validUntil()
	cause := l.ended
	l.mu.Unlock()
	endAll(b, ending, cause)
	return until, lapsed
}

// endHold notes that a Tracer is told of the end of the present hold. It returns how long the hold lasted, or 0 if the
// Tracer was told before. The caller holds l.mu.
func (l *life) endHold(end time.Time) time.Duration {
	if l.told {
		return 0
	}
	l.told = true
	return max(end.Sub(l.since), 1) // 0 means that the Tracer was told before
}

// endLost is endHold for a lock that was lost. It returns the event to report after life.mu is unlocked, or nil for none.
// The caller holds life.mu.
func endLost(b bearer, cause LossCause, lost []string, err error) *Lost {
	l, end := b.handle(), time.Now()
	if !l.released.IsZero() {
		end = l.released
	}
	held := l.endHold(end)
	if held == 0 || b.tells().Lost == nil {
		return nil
	}
	keys, _ := b.names()
	return &Lost{Keys: keys, LostKeys: lost, Cause: cause, Held: held, Err: err}
}

// tellLost reports that a release has found keys lost, unless the end of the hold was reported before, or another Release
// may have freed the keys, or reports the loss.
func tellLost(ctx context.Context, b bearer, cause LossCause, err error) {
	l := b.handle()
	keys, _ := b.names()
	l.mu.Lock()
	var event *Lost
	if !l.releasedAgain {
		event = endLost(b, cause, lostKeys(keys, err), err)
	}
	l.mu.Unlock()
	if event != nil {
		tell(ctx, b.tells().Lost, *event)
	}
}

// tellReleased reports the end of a Release that was called at the given time.
func tellReleased(ctx context.Context, b bearer, called time.Time, err error) {
	l, t := b.handle(), b.tells()
	if t.Released == nil && t.Lost == nil {
		return
	}
	l.mu.Lock()
	held := l.endHold(l.released) // also without Released: a later Release must not report a loss
	l.mu.Unlock()
	keys, _ := b.names()
	tell(ctx, t.Released, Released{Keys: keys, Held: held, Wait: time.Since(called), Err: err})
}

// errReleased is the cause of the contexts of a released lock.
var errReleased = fmt.Errorf("redislock: the lock was released: %w", context.Canceled)
