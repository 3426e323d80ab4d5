package redislock

import (
	"context"
	"errors"
	"time"
)

// Do runs fn under the lock on keys: it obtains the lock as [Client.ObtainMulti] does, keeps it alive while fn runs, and
// releases it. The ctx of fn is that of [Lock.KeepAlive]: it ends when the lock is lost, before anybody else can have it,
// and with ctx. A deadline on ctx is thus the cap on waiting and working together.
//
// Do blocks until fn has returned and the lock is released; when the ctx of fn ends, Do waits for fn. It returns:
//   - the error of ObtainMulti, if there was no lock; fn was not called then;
//   - the error of fn, as it is;
//   - if the lock was lost while fn ran, whatever fn returned: the cause of the loss, as KeepAlive tells it, joined with
//     the error of fn if there was one, so that [errors.Is] finds both;
//   - the error of Release, if fn returned nil and the lock was not lost.
//
// A panic in fn, and a runtime.Goexit, releases the lock and goes on. Do inside the fn of another Do on overlapping keys
// waits for its own caller, unless both have the same [Options.Token]; then the inner one releases the keys that both
// have. After Close, Do returns [ErrClosed], and the ctx of an fn that is running ends with it as its cause.
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
	returned := false
	defer func() {
		loss := lost(kept)
		stop()
		released := lock.Release(ctx)
		if !returned {
			return // a panic: there is nobody to return an error to
		}
		if loss == nil && errors.Is(released, ErrLockNotHeld) {
			loss = released
		}
		switch {
		case loss != nil && err != nil:
			err = errors.Join(err, loss)
		case loss != nil:
			err = loss
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
	return New(client).Do(ctx, keys, ttl, opt, fn)
}

// lost returns why a kept context has ended, if that was because the lock is valid no longer.
func lost(ctx context.Context) error {
	k, ok := ctx.(*kept)
	if !ok { // it had ended from the beginning
		return context.Cause(ctx)
	}
	if k.Err() == nil {
		return nil
	}
	k.lock.mu.Lock()
	defer k.lock.mu.Unlock()
	if k.lock.ended != nil || passed(k.lock.until) {
		return k.lock.endedOrLapsed()
	}
	return nil
}
