package life

import (
	"context"
	"fmt"
	"slices"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// KeepAlive returns a context for which the lock is renewed until that context ends, and a function that ends it.
func KeepAlive(ctx context.Context, o Owner) (context.Context, context.CancelFunc) {
	inner, end := context.WithCancelCause(ctx)
	k := &kept{Context: inner, owner: o, end: end}
	if err := keep(o, k); err != nil {
		end(err)
		return inner, func() {}
	}
	if !o.StartRenewing() {
		unkeep(o, k)
		end(fault.ErrClosed)
		return inner, func() {}
	}
	// Stop the renewals when the context ends, for whatever reason. This starts a goroutine only then.
	context.AfterFunc(inner, func() { unkeep(o, k) })
	return k, func() {
		k.check() // the cause of a lock that has lapsed before says that
		end(nil)
	}
}

// kept is the context of a lock that is kept alive. The inner context is one of package context, so contexts derived from
// this one need no goroutine.
type kept struct {
	context.Context

	owner Owner
	end   context.CancelCauseFunc
}

func (k *kept) Err() error {
	k.check()
	return k.Context.Err()
}

func (k *kept) Done() <-chan struct{} {
	k.check()
	return k.Context.Done()
}

// Value is what context.Cause calls to find the cause, and Kept to find the context.
func (k *kept) Value(key any) any {
	if key == any(keptKey{}) {
		return k
	}
	k.check()
	return k.Context.Value(key)
}

// keptKey is the key under which a context of KeepAlive holds itself.
type keptKey struct{}

// Kept returns the locks for which ctx is kept alive, the innermost first, without those that have ended.
func Kept(ctx context.Context) (owners []Owner) {
	for {
		k, _ := ctx.Value(keptKey{}).(*kept)
		if k == nil {
			return owners
		}
		if k.Err() == nil && !slices.Contains(owners, k.owner) {
			owners = append(owners, k.owner)
		}
		ctx = k.Context
	}
}

// check ends the context if the lock is no longer valid, because the schedule of renewals may not have run yet.
func (k *kept) check() {
	if k.Context.Err() == nil && lease.Passed(Until(k.owner)) {
		Lapse(k.owner)
		l := k.owner.Handle()
		l.Mu.Lock()
		cause := whyEnded(k.owner)
		l.Mu.Unlock()
		k.end(cause) // another goroutine may be about to do this, but the context must have ended when check returns
	}
}

// keep adds a context to those for which the lock is renewed.
func keep(o Owner, k *kept) error {
	l := o.Handle()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case l.IsReleased():
		return fmt.Errorf("%w: %w", fault.ErrLockNotHeld, errReleased)
	case l.ended != nil || lease.Passed(o.ValidUntil()):
		return whyEnded(o)
	case !o.KnowsTTL():
		return fault.Invalid("an attached lock has no ttl that could be renewed; call Refresh first")
	}
	l.kept = append(l.kept, k)
	return nil
}

// unkeep removes an ended context from the lock. After the last one, it stops the renewals.
func unkeep(o Owner, k *kept) {
	l := o.Handle()
	l.Mu.Lock()
	l.kept = slices.DeleteFunc(l.kept, func(other *kept) bool { return other == k })
	last := len(l.kept) == 0
	l.Mu.Unlock()
	if last {
		o.StopRenewing()
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

// Check looks for a loss that the Owner knows of, and then does the work of Lapse. Either sends a Lost event.
func Check(ctx context.Context, o Owner) {
	l := o.Handle()
	l.Mu.Lock()
	var event *Lost
	if l.ended == nil {
		event = o.FoundLost()
	}
	l.Mu.Unlock()
	o.Events().SendLost(ctx, event)
	Lapse(o)
}

// Lapse ends all contexts of a lock that is no longer valid. It sends a Lost event, unless the lock was released or was
// found lost before. over says that no context is left; if it is false, the lock is valid and kept.
func Lapse(o Owner) (over bool) {
	over, send := Lapsing(o)
	if send != nil {
		send()
	}
	return over
}

// Lapsing is Lapse, but its caller sends the event by calling send; nil for no event.
func Lapsing(o Owner) (over bool, send func()) {
	l := o.Handle()
	l.Mu.Lock()
	if l.ended == nil && !lease.Passed(o.ValidUntil()) {
		defer l.Mu.Unlock()
		return !l.Keeps(), nil
	}
	ending := l.kept
	l.kept = nil
	var lapsed *Lost
	if len(ending) > 0 && l.ended == nil { // otherwise the loss or the Release was reported where it was noted
		lapsed = noteLapse(o)
	}
	cause := whyEnded(o)
	l.Mu.Unlock()
	endAll(o, ending, cause)
	if lapsed == nil {
		return true, nil
	}
	ctx := context.WithoutCancel(ending[0].Context)
	return true, func() { o.Events().SendLost(ctx, lapsed) }
}

// noteLapse notes that the validity of a kept lock is over. It returns the event to send after Life.Mu is unlocked, or nil
// for none. The caller holds Life.Mu.
func noteLapse(o Owner) *Lost {
	if loss := o.FoundLost(); o.Handle().ended != nil {
		return loss
	}
	return endLost(o, Loss{Cause: Lapsed}, whyEnded(o))
}

// EndKept ends all contexts of the lock.
func EndKept(o Owner, cause error) {
	l := o.Handle()
	l.Mu.Lock()
	ending := l.kept
	l.kept = nil
	l.Mu.Unlock()
	endAll(o, ending, cause)
}

// endAll ends contexts that were removed from the lock.
func endAll(o Owner, ending []*kept, cause error) {
	for _, k := range ending {
		k.end(cause)
	}
	if len(ending) > 0 {
		o.StopRenewing()
	}
}
