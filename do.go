package redislock

import (
	"context"
	"errors"
	"time"
)

// Do runs fn under the lock on keys: it obtains the lock as [Client.ObtainMulti] does, keeps it alive while fn runs,
// and releases it. The ctx of fn is that of [Lock.KeepAlive]: it ends when the lock is found lost, no later than the
// lease, and with ctx. A deadline on ctx is thus the cap on waiting and working together. Once ctx has ended, nothing
// is renewed any more, so an fn that goes on for longer than the ttl loses the lock.
//
// Do blocks until fn has returned and the lock is released; when the ctx of fn ends, Do waits for fn. It returns:
//   - the error of ObtainMulti, if there was no lock; fn was not called then;
//   - the error of fn, as it is;
//   - if the lock was lost while fn ran, whatever fn returned: the cause of the loss, as KeepAlive tells it, joined with
//     the error of fn if there was one, so that [errors.Is] finds both;
//   - the error of Release, if fn returned nil and the lock was not lost.
//
// A panic in fn, and a runtime.Goexit, releases the lock and goes on. Do inside the fn of another Do on overlapping
// keys waits for its own caller, unless both have the same [Options.Token]; then the inner one releases the keys that
// both have. After Close, Do returns [ErrClosed], and the ctx of an fn that is running ends with it as its cause.
//
// The package-level Do makes a Client, and so a scheduler, for each call: with many locks at a time, use one Client.
func (c *Client) Do(
	ctx context.Context, keys []string, ttl time.Duration, opt *Options, fn func(context.Context) error,
) (err error) {
	if fn == nil {
		return invalid("fn is nil")
	}
	lock, err := c.ObtainMulti(ctx, keys, ttl, opt)
	if err != nil {
		return err
	}
	kept, stop := lock.KeepAlive(ctx)
	if context.Cause(kept) == ErrClosed {
		_ = lock.Release(ctx) // Close came in between; the keys lapse if this fails
		return ErrClosed
	}
	returned := false
	defer func() {
		stop()
		// The release is sent before any error is looked at: some are the caller's own, and may panic.
		released := lock.Release(ctx)
		loss := lost(ctx, kept)
		if !returned {
			return // a panic: there is nobody to return an error to
		}
		if loss == nil && errors.Is(released, ErrLockNotHeld) {
			loss = released
		}
		switch {
		case loss != nil && err == nil:
			err = loss
		case loss != nil && !errors.Is(err, loss):
			err = errors.Join(err, loss)
		case err == nil:
			err = released
		}
	}()
	err = fn(kept)
	returned = true
	return err
}

// Do is a short-cut for New(client).Do(…).
func Do(
	ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options, fn func(context.Context) error,
) error {
	return newShort(client).Do(ctx, keys, ttl, opt, fn)
}

// lost returns why a kept context has ended, if that was because its lock was lost or lapsed. What its parent ended
// with is not that, even if it is the loss of another lock, around this one.
func lost(parent, kept context.Context) error {
	cause := context.Cause(kept)
	// None of the library's own causes is of a type that cannot be compared, so such a one is the parent's.
	if !canCompare(cause) || cause == context.Cause(parent) ||
		!errors.Is(cause, ErrLockNotHeld) && !errors.Is(cause, ErrLapsed) {
		return nil
	}
	return cause
}
