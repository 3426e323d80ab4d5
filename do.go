package redislock

import (
	"context"
	"errors"
	"time"
)

// Do runs fn under the lock on keys: it acquires the lock as [Client.ObtainMulti] does, keeps it alive while fn runs,
// and releases it. The ctx of fn is that of [Lock.KeepAlive]: it ends when the lock is found lost, at [Lock.Until] at
// the latest, and with ctx. So a deadline on ctx limits the wait and the work together. Nothing is renewed after ctx
// has ended, so an fn that then runs for longer than the ttl loses the lock.
//
// Do blocks until fn has returned and the lock is released. When the ctx of fn ends, Do still waits for fn. It returns:
//   - the error of ObtainMulti, if the lock could not be acquired; fn was not called then;
//   - the error of fn, unchanged;
//   - if the lock was lost while fn ran, whatever fn returned: the cause of the loss, as KeepAlive reports it, joined
//     with the error of fn if there was one, so that [errors.Is] finds both;
//   - the error of Release, if fn returned nil and the lock was not lost.
//
// If fn panics or calls runtime.Goexit, Do releases the lock and lets the panic or exit go on. A Do inside the fn of
// another Do on overlapping keys waits for its own caller, unless both have the same [Options.Token]; then the inner
// one releases the keys that both hold. After Close, Do returns [ErrClosed], and a running fn's ctx ends with ErrClosed
// as its cause.
//
// The package-level Do makes a Client, and so a scheduler, for each call. To hold many locks at a time, use one Client.
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
		_ = lock.Release(ctx) // Close came in between; if this fails, the keys expire
		return ErrClosed
	}
	returned := false
	defer func() {
		stop()
		// Release before comparing any errors: the caller's own may panic.
		released := lock.Release(ctx)
		loss := lost(ctx, kept)
		if !returned {
			return // a panic or Goexit: the caller gets no error
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

// Do is short for New(client).Do(…).
func Do(
	ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options, fn func(context.Context) error,
) error {
	return newShort(client).Do(ctx, keys, ttl, opt, fn)
}

// lost returns why a kept context has ended, if its lock was lost or lapsed. The cause of its parent does not count,
// even if that is the loss of another lock, around this one.
func lost(parent, kept context.Context) error {
	cause := context.Cause(kept)
	// The library's own causes can all be compared, so a cause that cannot is the parent's.
	if !canCompare(cause) || cause == context.Cause(parent) ||
		!errors.Is(cause, ErrLockNotHeld) && !errors.Is(cause, ErrLapsed) {
		return nil
	}
	return cause
}
