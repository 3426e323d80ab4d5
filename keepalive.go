package redislock

import (
	"context"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
)

// KeepAlive renews the lock, with the ttl of its last Obtain or Refresh, until ctx ends, the returned function is
// called, the lock is released or lost, or the Client is closed. Then the returned context ends as well. If the lock is
// lost, the context ends at [Lock.Until] at the latest. A deadline on ctx limits for how long the lock is renewed; after
// that, it is held until its ttl ends or it is released.
//
// [context.Cause] of the returned context says why it has ended:
//   - an error that matches [ErrLockNotHeld] if the keys are gone or another holder has them; a [*LostError] if only
//     some keys are lost;
//   - an error that matches [ErrLapsed] if the validity ended without a renewal; it wraps the last error of Redis, if
//     there was one (there is none after a mere pause of the process);
//   - the cause of ctx if ctx has ended, [context.Canceled] after a call of the returned function, an error that wraps
//     context.Canceled after Release, and [ErrClosed] after Close.
//
// The context is exact even if no timer has run yet, for example after a pause of the process: each call of its Err or
// Done, and of [context.Cause], checks the clocks. Contexts derived from it may lag. Right before a critical step,
// check the context itself, or Until.
//
// KeepAlive does not block. If ctx is one of package context, it needs no goroutine and no timer of its own: one
// scheduler renews all locks of a Redis client, in shared pipelines, each after a third of its validity. The library
// retries a failed renewal for as long as the lock is valid. A renewal never shortens a ttl and never creates a key; a
// key that has lost its expiry gets one again. So a renewal that is on its way when the lock is released or the function
// is called does no harm, and nobody waits for it. Refresh may still be called meanwhile.
//
// KeepAlive may be called several times. The lock is renewed while any of the contexts lives, and each context ends by
// itself. Always call the returned function; it may be called several times and concurrently. It does not release the
// lock.
//
// The returned context has already ended, with a cause that matches:
//   - ErrLockNotHeld, for a nil lock or one that was released or lost;
//   - ErrLapsed, if Until has passed;
//   - [ErrInvalid], if ctx is nil, or if the lock comes from Attach and was never refreshed, because its ttl is then
//     unknown;
//   - ErrClosed, after Close.
func (l *Lock) KeepAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		return stillborn(context.Background(), fault.ErrNilContext)
	}
	if !l.exists() {
		return stillborn(ctx, ErrLockNotHeld)
	}
	return life.KeepAlive(ctx, l.bearer())
}

// stillborn returns a context that has already ended.
func stillborn(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ended, end := context.WithCancelCause(ctx)
	end(cause)
	return ended, func() {}
}
