package life

import (
	"context"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// KeepAlive returns a context for which the lock is renewed until it ends, and a function that ends it.
func KeepAlive(ctx context.Context, b Bearer) (context.Context, context.CancelFunc) {
	inner, end := context.WithCancelCause(ctx)
	k := &kept{Context: inner, lock: b, end: end}
	if err := keep(b, k); err != nil {
		end(err)
		return inner, func() {}
	}
	if !b.StartRenewing() {
		unkeep(b, k)
		end(fault.ErrClosed)
		return inner, func() {}
	}
	// Stop renewing when the context ends, for whatever reason. Only then does this start a goroutine.
	context.AfterFunc(inner, func() { unkeep(b, k) })
	return k, func() {
		k.check() // a lapse must not be hidden by the stop that follows it
		end(nil)
	}
}

// kept is the context of a lock that is kept alive. The inner context is one of package context, so that contexts derived
// from this one need no goroutine.
type kept struct {
	context.Context

	lock Bearer
	end  context.CancelCauseFunc
}

func (k *kept) Err() error {
	k.check()
	return k.Context.Err()
}

func (k *kept) Done() <-chan struct{} {
	k.check()
	return k.Context.Done()
}

// Value is what context.Cause calls to find the cause.
func (k *kept) Value(key any) any {
	k.check()
	return k.Context.Value(key)
}

// check ends the context if the lock is no longer valid, because the scheduler may not have run yet.
func (k *kept) check() {
	if k.Context.Err() == nil && lease.Passed(Until(k.lock)) {
		Lapse(k.lock)
		k.end(ending(k.lock)) // another goroutine may be about to do this, but it must be done when check returns
	}
}

// ending is whyEnded for callers that do not hold Life.Mu.
func ending(b Bearer) error {
	l := b.Handle()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return whyEnded(b)
}
