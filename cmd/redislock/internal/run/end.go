package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
)

// releaseTime bounds how long a run tries to release locks that are valid for that long: a second at least.
func releaseTime(left time.Duration) time.Duration {
	return min(max(left, time.Second), locking.ReleaseLimit)
}

// ending returns a ctx for giving the locks up. A signal ends it as well.
func (h *hold) ending(signals *job.Signals) (context.Context, context.CancelFunc) {
	left := h.left()
	if h.unnamed != nil {
		left = remaining(h.unnamed.Until())
	}
	signals.RemoveJobControl()
	ctx, end := signals.Ending(context.Background())
	ctx, cancel := context.WithTimeout(ctx, releaseTime(left))
	return ctx, func() {
		cancel()
		end()
	}
}

// release releases what was acquired, until ctx ends. It returns an error that matches redislock.ErrLockNotHeld if some of
// it was lost, and a *locking.UnreleasedError if keys stay.
func (h *hold) release(ctx context.Context, tell func(error)) error {
	lock := cmp.Or(h.kept, h.unnamed)
	if lock == nil {
		return nil
	}
	err := locking.GiveUp(ctx, h.Session, lock, time.Now().Add(h.ttl), tell) // a renewal may have been sent just now
	if h.unnamed != nil && errors.Is(err, redislock.ErrLockNotHeld) {
		return locking.Release(ctx, h.Session, lock.Keys(), h.token, tell)
	}
	return err
}

// leave leaves what was acquired locked until the time end, without this process. It returns an error that matches
// redislock.ErrLockNotHeld if some of it was lost, and otherwise an error that says what holds.
func (h *hold) leave(ctx context.Context, end time.Time, tell func(error)) error {
	certain, keys := h.kept.Until(), locking.Names(h.kept.Keys())
	h.stopAll() // before the Refresh: a renewal gives the keys their ttl again
	by := time.Now().Add(max(h.ttl, time.Until(end)))
	err := locking.Insist(ctx, func(ctx context.Context) error { return h.expireAt(ctx, end) }, func(why error) {
		tell(fmt.Errorf("still trying to leave %s locked until %s: %w",
			keys, locking.ClockTime(end), locking.Plainly(h.Session, why)))
	})
	switch {
	case err == nil, errors.Is(err, redislock.ErrLockNotHeld):
		return err
	case !errors.Is(err, redislock.ErrNotObtained):
		if end.Before(certain) {
			certain = end // the Refresh may have been executed
		}
		return fmt.Errorf("cannot leave %s locked until %s: %w; held until %s, expired by %s", keys, locking.ClockTime(end),
			locking.Plainly(h.Session, err), locking.ClockTime(certain), locking.ClockTime(by))
	case time.Until(end) <= 0: // the answer was so late that nothing is left to rely on
		return nil
	}
	return redislock.ErrLockNotHeld
}

// expireAt makes the keys expire at that time, or a moment later if it is too near.
func (h *hold) expireAt(ctx context.Context, end time.Time) error {
	for range 2 {
		rest := max(time.Until(end), locking.LeastTTL)
		if err := h.kept.Refresh(ctx, rest, nil); err != nil {
			return err
		}
		if rest >= h.ttl {
			return nil
		}
		// A renewal that was on its way may have been executed after the Refresh. After an error or a loss, left is 0.
		if left, _ := h.kept.TTL(ctx); left <= rest {
			return nil
		}
	}
	return nil
}

// abandon gives up what was acquired for a command that has not run. It reports keys that stay.
func (f *runFlags) abandon(h *hold, signals *job.Signals) {
	if h.kept == nil && h.unnamed == nil {
		return
	}
	ctx, end := h.ending(signals)
	defer end()
	if err := h.release(ctx, h.Complain); !errors.Is(err, redislock.ErrLockNotHeld) {
		f.complain(h, err)
	}
}

// complain reports why locks could not be given up, if they could not.
func (f *runFlags) complain(h *hold, err error) {
	if err == nil {
		return
	}
	h.gaveIn = true
	if stays, ok := errors.AsType[*locking.UnreleasedError](err); ok && f.log != nil {
		f.log.stays(stays)
		return
	}
	h.Complain(err)
}
