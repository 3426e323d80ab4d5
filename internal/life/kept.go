package life

import (
	"context"
	"fmt"
	"slices"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// KeepAlive returns a context for which the lock is renewed until that context ends, and a function that ends it.
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
	// Stop the renewals when the context ends, for whatever reason. This starts a goroutine only then.
	context.AfterFunc(inner, func() { unkeep(b, k) })
	return k, func() {
		k.check() // the cause of a lock that has lapsed before says that
		end(nil)
	}
}

// kept is the context of a lock that is kept alive. The inner context is one of package context, so contexts derived from
// this one need no goroutine.
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

// check ends the context if the lock is no longer valid, because the schedule of renewals may not have run yet.
func (k *kept) check() {
	if k.Context.Err() == nil && lease.Passed(Until(k.lock)) {
		Lapse(k.lock)
		l := k.lock.Handle()
		l.Mu.Lock()
		cause := whyEnded(k.lock)
		l.Mu.Unlock()
		k.end(cause) // another goroutine may be about to do this, but the context must have ended when check returns
	}
}

// keep adds a context to those for which the lock is renewed.
func keep(b Bearer, k *kept) error {
	l := b.Handle()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case l.IsReleased():
		return fmt.Errorf("%w: %w", fault.ErrLockNotHeld, errReleased)
	case l.ended != nil || lease.Passed(b.ValidUntil()):
		return whyEnded(b)
	case !b.KnowsTTL():
		return fault.Invalid("an attached lock has no ttl that could be renewed; call Refresh first")
	}
	l.kept = append(l.kept, k)
	return nil
}

// unkeep removes an ended context from the lock. After the last one, it stops the renewals.
func unkeep(b Bearer, k *kept) {
	l := b.Handle()
	l.Mu.Lock()
	l.kept = slices.DeleteFunc(l.kept, func(other *kept) bool { return other == k })
	last := len(l.kept) == 0
	l.Mu.Unlock()
	if last {
		b.StopRenewing()
	}
}

// IsKept reports whether the lock is kept alive for any context.
func (l *Life) IsKept() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Keeps()
}

// Keeps is IsKept for callers that hold l.Mu.
func (l *Life) Keeps() bool { return len(l.kept) > 0 }

// IsRenewed reports whether the lock is to be renewed: it is kept, and held as far as is known. The caller holds l.Mu.
func (l *Life) IsRenewed() bool { return l.Keeps() && l.ended == nil }

// RenewalCtx returns a ctx for a renewal of a lock that is kept. The ctx does not end. It has the values of the oldest kept
// context, because a hook may look at them. The caller holds l.Mu.
func (l *Life) RenewalCtx() context.Context { return context.WithoutCancel(l.kept[0].Context) }

// Check looks for a loss that its Bearer knows of, and then does the work of Lapse. Either sends a Lost event.
func Check(ctx context.Context, b Bearer) {
	l := b.Handle()
	l.Mu.Lock()
	var event *Lost
	if l.ended == nil {
		event = b.FoundLost()
	}
	l.Mu.Unlock()
	b.Events().SendLost(ctx, event)
	Lapse(b)
}

// Lapse ends all contexts of a lock that is no longer valid. It sends a Lost event, unless the lock was released or was
// found lost before. over says that no context is left; if it is false, the lock is valid and kept.
func Lapse(b Bearer) (over bool) {
	over, send := Lapsing(b)
	if send != nil {
		send()
	}
	return over
}

// Lapsing is Lapse, but its caller sends the event by calling send; nil for no event.
func Lapsing(b Bearer) (over bool, send func()) {
	l := b.Handle()
	l.Mu.Lock()
	if l.ended == nil && !lease.Passed(b.ValidUntil()) {
		defer l.Mu.Unlock()
		return !l.Keeps(), nil
	}
	ending := l.kept
	l.kept = nil
	var lapsed *Lost
	if len(ending) > 0 && l.ended == nil { // otherwise the loss or the Release was reported where it was noted
		lapsed = noteLapse(b)
	}
	cause := whyEnded(b)
	l.Mu.Unlock()
	endAll(b, ending, cause)
	if lapsed == nil {
		return true, nil
	}
	ctx := context.WithoutCancel(ending[0].Context)
	return true, func() { b.Events().SendLost(ctx, lapsed) }
}

// noteLapse notes that the validity of a kept lock is over. It returns the event to send after Life.Mu is unlocked, or nil
// for none. The caller holds Life.Mu.
func noteLapse(b Bearer) *Lost {
	if loss := b.FoundLost(); b.Handle().ended != nil {
		return loss
	}
	return endLost(b, Loss{Cause: Lapsed}, whyEnded(b))
}

// EndKept ends all contexts of the lock.
func EndKept(b Bearer, cause error) {
	l := b.Handle()
	l.Mu.Lock()
	ending := l.kept
	l.kept = nil
	l.Mu.Unlock()
	endAll(b, ending, cause)
}

// endAll ends contexts that were removed from the lock.
func endAll(b Bearer, ending []*kept, cause error) {
	for _, k := range ending {
		k.end(cause)
	}
	if len(ending) > 0 {
		b.StopRenewing()
	}
}
