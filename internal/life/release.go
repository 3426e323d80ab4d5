package life

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// Release gives the lock up, frees its keys with free, and tells how that ended. free gets the time of the call, and the end
// of the validity before it. If it returns an error that matches ErrLockNotHeld, it also returns what is lost.
func Release(
	ctx context.Context, b Bearer, free func(ctx context.Context, now, until time.Time) (Loss, error),
) error {
	now := time.Now()
	until, lapsed := beginRelease(b, now)
	err := fault.ErrPanicked // unless free returns
	defer func() {
		if lapsed != nil {
			b.Events().Lost(ctx, *lapsed)
		}
		tellReleased(ctx, b, now, err)
	}()
	loss, result := free(ctx, now, until)
	if errors.Is(result, fault.ErrLockNotHeld) {
		tellLost(ctx, b, loss, result)
	}
	err = result
	return err
}

// beginRelease gives the lock up and ends its kept contexts. It returns the end of the validity before that, and what to
// tell if the lock had lapsed.
func beginRelease(b Bearer, now time.Time) (until time.Time, lapsed *Lost) {
	l := b.Handle()
	l.Mu.Lock()
	ending := l.kept
	l.kept = nil
	if len(ending) > 0 && lease.Passed(b.ValidUntil()) {
		if l.ended == nil {
			lapsed = noteLapse(b)
		}
		l.ended = whyEnded(b) // if the lock lapsed before, its contexts say that, and not that it was released
	}
	if l.releasedAgain = l.IsReleased(); !l.releasedAgain {
		l.released = now
		l.ended = cmp.Or(l.ended, errReleased)
	}
	until = b.ValidUntil()
	cause := l.ended
	l.Mu.Unlock()
	endAll(b, ending, cause)
	return until, lapsed
}

// tellLost tells that a release has found keys lost, unless the end of the hold was told before, or another Release may have
// freed the keys, or tells the loss.
func tellLost(ctx context.Context, b Bearer, loss Loss, err error) {
	l := b.Handle()
	l.Mu.Lock()
	var event *Lost
	if !l.releasedAgain {
		event = endLost(b, loss, err)
	}
	l.Mu.Unlock()
	if event != nil {
		b.Events().Lost(ctx, *event)
	}
}

// tellReleased tells the end of a Release that was called at the given time.
func tellReleased(ctx context.Context, b Bearer, called time.Time, err error) {
	l, t := b.Handle(), b.Events()
	if t.Released == nil && t.Lost == nil {
		return
	}
	l.Mu.Lock()
	held := l.endHold(l.released) // also without Released: a later Release must not tell a loss
	l.Mu.Unlock()
	keys, _ := b.Names()
	if t.Released != nil {
		t.Released(ctx, Released{Keys: keys, Held: held, Wait: time.Since(called), Err: err})
	}
}
