package life

import (
	"cmp"
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// Release gives the lock up, frees its keys with free, and reports how that ended. free gets the end of the validity before.
// If keys are lost, free also returns which. The error alone does not say so: the cause of a ctx that has ended may match
// ErrLockNotHeld. If another Release has returned what became of the keys, nothing is left to free.
func Release(ctx context.Context, o Owner, free func(ctx context.Context, until time.Time) (Loss, error)) (err error) {
	now := time.Now()
	until, over, lapsed := beginRelease(o, now)
	err = fault.ErrPanicked // unless free returns
	defer func() {
		o.Events().SendLost(ctx, lapsed)
		reportReleased(ctx, o, now, err)
		if over {
			l := o.Handle()
			l.Mu.Lock()
			l.over = true
			l.Mu.Unlock()
		}
	}()
	if over {
		return fault.ErrLockNotHeld
	}
	loss, result := free(ctx, until)
	over = result == nil || len(loss.Keys) > 0 && !loss.Open
	if result != nil && len(loss.Keys) > 0 {
		reportLost(ctx, o, loss, result)
	}
	return result
}

// beginRelease gives the lock up and ends its contexts. It returns the end of the validity before that, whether another
// Release has returned what became of the keys, and the event to send if the lock had lapsed.
func beginRelease(o Owner, now time.Time) (until time.Time, over bool, lapsed *Lost) {
	l := o.Handle()
	l.Mu.Lock()
	ending := l.kept
	l.kept = nil
	if len(ending) > 0 && lease.Passed(o.ValidUntil()) {
		if l.ended == nil {
			lapsed = noteLapse(o)
		}
		l.ended = whyEnded(o) // the contexts of a lock that has lapsed say that, and not that it was released
	}
	if !l.IsReleased() {
		l.released = now
		l.ended = cmp.Or(l.ended, errReleased)
	}
	until, over = o.ValidUntil(), l.over
	cause := l.ended
	l.Mu.Unlock()
	endAll(o, ending, cause)
	return until, over, lapsed
}

// reportLost reports that a release has found keys lost, unless the end of the hold was reported before.
func reportLost(ctx context.Context, o Owner, loss Loss, err error) {
	l := o.Handle()
	l.Mu.Lock()
	event := endLost(o, loss, err)
	l.Mu.Unlock()
	o.Events().SendLost(ctx, event)
}

// reportReleased reports the end of a Release that was called at the given time.
func reportReleased(ctx context.Context, o Owner, called time.Time, err error) {
	l, e := o.Handle(), o.Events()
	if e.Released == nil && e.Lost == nil {
		return
	}
	l.Mu.Lock()
	held := l.endHold(l.released) // also without Released, because a later Release must not report a loss
	l.Mu.Unlock()
	if e.Released != nil {
		keys, _ := o.Names()
		e.Released(ctx, Released{Keys: keys, Held: held, Wait: time.Since(called), Err: err})
	}
}
