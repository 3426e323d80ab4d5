package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/argument"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/several"
)

// Lock is a hold on one or more keys. It is safe for concurrent use and must not be copied. The methods of a nil *Lock
// behave as for a lock that is not held, except that TTL returns [ErrLockNotHeld].
type Lock struct {
	several *several.Lock // of a lock at several places; nil for one at one place
	one     place.Lock    // of a lock at one place: part of the Lock, so that it costs no allocation of its own
}

// exists reports whether l came from a Client. The zero Lock is not held, like a nil one.
func (l *Lock) exists() bool { return l != nil && (l.several != nil || l.one.Exists()) }

// part is what a Lock has inside: a lock at one place, or one at several.
type part interface {
	life.Owner
	Home() *place.Place
	TTL(ctx context.Context) (time.Duration, error)
	Refresh(ctx context.Context, ttl time.Duration, metadata string, strategy retry.Strategy) error
	Free(ctx context.Context, until time.Time) (life.Loss, error) // does the work of a Release that began now
}

// part returns what l has inside.
func (l *Lock) part() part {
	if l.several != nil {
		return l.several
	}
	return &l.one
}

// names returns the keys and the token of the lock; none for a nil lock. Do not change the slice.
func (l *Lock) names() (keys []string, token string) {
	if !l.exists() {
		return nil, ""
	}
	return l.part().Names()
}

// Key returns the first key of the lock, or "" for a nil lock.
func (l *Lock) Key() string {
	keys, _ := l.names()
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// Keys returns a copy of the keys, in the order in which they were given, each once.
func (l *Lock) Keys() []string {
	keys, _ := l.names()
	return slices.Clone(keys)
}

// Token returns the token that the keys hold, or "" for a nil lock. Anyone who knows it can attach to the lock.
func (l *Lock) Token() string {
	_, token := l.names()
	return token
}

// Metadata returns the metadata that this handle last stored or, if it is attached, found.
func (l *Lock) Metadata() string {
	if !l.exists() {
		return ""
	}
	return l.part().Handle().Metadata()
}

// FenceToken returns the fencing token of this hold. It is 0 without [Options.FenceKey] and for an attached lock. It is
// higher than that of every earlier hold with the same FenceKey, even when a token acquires its keys again. This holds
// also after the counter was lost, unless the clock of the server, or of the one that takes over, is behind. A resource
// that remembers the highest token it has seen, and refuses lower ones, is safe from a holder that outlived its lock.
func (l *Lock) FenceToken() int64 {
	if !l.exists() {
		return 0
	}
	return l.part().Handle().Fence
}

// Until returns the time up to which the lock is certainly held, as far as this handle knows. That is the time when the
// last successful Obtain, Refresh or renewal was sent, plus its ttl, less 1 % and 1 ms. Check it right before a step that
// the lock protects:
//
//	if !time.Now().Before(lock.Until()) { … }
//
// The time has passed as soon as either the monotonic clock or the wall clock says so, because the monotonic clock
// stands still while a machine is suspended. On Linux, macOS and Windows, a wall clock that was set forward does not
// end a lock that is kept alive.
//
// Until lies in the past once the lock was released, or a Refresh or a renewal has found it lost. A Refresh to a shorter
// ttl brings it forward as soon as it is sent. This handle does not see what happens through other handles of the same
// token. Until never blocks. For a nil lock it returns the zero time.
func (l *Lock) Until() time.Time {
	if !l.exists() {
		return time.Time{}
	}
	return life.Until(l.part())
}

// TTL asks Redis for the shortest remaining ttl of the lock's keys, in whole milliseconds, rounded down. It returns 0
// if the lock has lost any of its keys, and the largest Duration if no key has an expiry. On a quorum, it returns the ttl
// that a majority of the servers have at least. Under [WithGuard], it is 0 also while the keys are forgotten and the lock
// has not put them back yet; Until says for how long the lock is valid all the same.
//
// TTL blocks until Redis answers or ctx ends. It returns an error, wrapped, if Redis fails or ctx ends first; an error
// that wraps [ErrInvalid] for a nil ctx; and [ErrLockNotHeld] for a nil lock.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	switch {
	case !l.exists():
		return 0, ErrLockNotHeld
	case ctx == nil:
		return 0, fault.ErrNilContext
	}
	return l.part().TTL(ctx)
}

// Refresh gives all keys of the lock the new ttl, counted from now, or changes nothing if any key is lost. If another
// handle has prolonged the lock, its keys may keep their longer ttl. With [Options.Metadata], Refresh also replaces the
// metadata. While the lock is still valid, it retries errors of Redis as RetryStrategy says. It does not retry after a
// loss. It ignores the other options.
//
// Refresh blocks until Redis answers, ctx ends or the lock is no longer valid, and then up to 250 ms more for a late
// answer. Calls on one lock take turns within that time. A call also waits for an abandoned Refresh to a shorter ttl that
// is still under way. Refresh sends at least one request, even past [Lock.Until], because the keys may still exist. It
// sends none past Until if some request of the Obtain was never answered, because that request may have acquired the keys
// again, after another holder.
//
// While the guard of [WithGuard] is closed, Refresh puts back keys that Redis has forgotten, all or none. Right after it has
// closed, for the deposed of WithGuard, Refresh waits. Under a guard, Refresh sends nothing past Until and waits no longer
// than that, so a lock that has lapsed never comes back.
//
// Refresh returns:
//   - [ErrNotObtained] if all keys are lost or it must not rely on them, after Release, and for a nil lock;
//   - ErrNotObtained if the answer came too late to be relied on; for a lock on several servers or slots, an error that
//     matches it;
//   - a [*LostError], which matches [ErrNotObtained] and [ErrLockNotHeld], if some keys are lost;
//   - an error that wraps [ErrInvalid] if ctx is nil, or the ttl is under 2 ms or above the maxTTL of [WithGuard];
//   - an error that wraps ctx.Err() if ctx ended first, an error that wraps [ErrLapsed] if there was no answer by 250
//     ms after Until (under a guard, by Until), and any other error of Redis, wrapped. After these three, nobody knows
//     whether the ttl has changed or still will change. So Until assumes the worse: after a Refresh to a shorter ttl, unless
//     the answer arrives after all, this handle promises no more than that ttl from then on, even after a Refresh with a
//     longer one.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	switch {
	case !l.exists():
		return ErrNotObtained
	case ctx == nil:
		return fault.ErrNilContext
	}
	p := l.part()
	if err := argument.TTL(ttl, p.Home().MaxTTL()); err != nil {
		return err
	}
	if opt == nil {
		opt = &Options{}
	}
	report := p.Events().Refreshed
	if report == nil {
		return p.Refresh(ctx, ttl, opt.Metadata, opt.strategy())
	}
	keys, _ := p.Names()
	until, err := l.Until(), fault.ErrPanicked // unless Refresh returns
	defer func() {
		report(ctx, life.Refreshed{Keys: keys, TTL: ttl, Left: max(0, time.Until(until)), Err: err})
	}()
	err = p.Refresh(ctx, ttl, opt.Metadata, opt.strategy())
	return err
}

// Release frees every key that the lock's token still holds, even if others are lost. From the call on, the lock counts
// as given up: [Lock.Until] has passed, and Refresh refuses.
//
// Release blocks until Redis answers or ctx ends. Release is cleanup, so it sends the request even if ctx has already
// ended. It then waits for the answer until [Lock.Until], but for at least 20 ms and for at most a second.
//
// If ctx ends, or the error is one that may pass, Release returns it, and the library keeps trying in the background until
// the longest ttl is over that this handle has sent, or for up to a minute if that is longer and the lock is attached: its
// ttl may be another one. A further Release meanwhile joins these tries, and starts the next one at once. Errors of the
// network may pass, and so may answers that mean "not now", as during a failover.
//
// All Releases of a handle that begin before one has returned what became of the keys return the same. A later one sends
// nothing, and returns [ErrLockNotHeld].
//
// Release returns:
//   - nil if all keys were freed, by this call or by an unanswered one that was sent before Until, or if those that are
//     missing were forgotten, because the guard of [WithGuard] is closed;
//   - [ErrLockNotHeld] if the lock held no key any more, if the keys are gone and only an unanswered call that was sent
//     after Until may have freed them, and for a nil lock;
//   - a [*LostError] if the lock had lost some keys; the others are free now. Across slots, an error that wraps it may also
//     say which slots have failed: then Release may be called again;
//   - an error that wraps [ErrInvalid] for a nil ctx;
//   - on a quorum, an error that names servers if these have not answered in time, or if nobody knows whether their keys
//     were lost or freed by an unanswered call, and what the others have answered does not decide;
//   - an error that wraps ctx.Err() if ctx ended first, and any other error of Redis or the network, wrapped. Release may
//     then be called again.
func (l *Lock) Release(ctx context.Context) error {
	switch {
	case !l.exists():
		return ErrLockNotHeld
	case ctx == nil:
		return fault.ErrNilContext
	}
	p := l.part()
	return life.Release(ctx, p, p.Free)
}

// KeepAlive renews the lock, with the ttl of its last Obtain or Refresh, until ctx ends, the returned function is
// called, the lock is released or lost, or the Client is closed. Then the returned context ends as well. If the lock is
// lost, the context ends at [Lock.Until] at the latest. A deadline on ctx limits for how long the lock is renewed. After
// that, the lock is held until its ttl ends or it is released.
//
// [context.Cause] of the returned context says why it has ended:
//   - an error that matches [ErrLockNotHeld] if the keys are gone or another holder has them; a [*LostError] if only
//     some keys are lost;
//   - an error that matches [ErrLapsed] if the validity ended without a renewal. It wraps the last error of Redis, if
//     there was one. After a mere pause of the process, there is none;
//   - the cause of ctx if ctx has ended, [context.Canceled] after a call of the returned function, an error that wraps
//     context.Canceled after Release, and [ErrClosed] after Close.
//
// The context is exact even if no timer has run yet, for example after a pause of the process: each call of its Err or
// Done, and of [context.Cause], checks the clocks. Contexts derived from it may lag. Right before a critical step,
// check the context itself, or Until.
//
// KeepAlive does not block. If ctx is one of package context, it needs no goroutine and no timer of its own: one
// scheduler renews all locks of a Redis client, in shared pipelines, each after a third of its validity. The library
// retries a failed renewal for as long as the lock is valid. A renewal never shortens a ttl and never creates a key. A key
// that has lost its expiry gets one again. So a renewal that is under way when the lock is released, or when the function
// is called, does no harm, and nobody waits for it. Refresh may still be called meanwhile.
//
// While the guard of [WithGuard] is closed, renewals put back keys that Redis has forgotten, as Refresh does. If a renewal
// is under way when the lock is released, the library releases the keys once more when it has ended.
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
	return life.KeepAlive(ctx, l.part())
}

// stillborn returns a context that has already ended.
func stillborn(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ended, end := context.WithCancelCause(ctx)
	end(cause)
	return ended, func() {}
}
