package life

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// Life is what a handle knows of its lock. Set Fence and Since before others know the lock.
type Life struct {
	Fence int64     // the fencing token; 0 for none
	Since time.Time // when the request was sent that obtained the lock, or found it

	Mu            sync.Mutex // protects the fields below, except Random, and what the Bearer says
	Random        bool       // the library chose the token, so no other lock has it; set once
	told          bool       // the end of the present hold was told
	releasedAgain bool       // Release was called more than once
	losses        int32      // how often it was found lost
	metadata      string
	released      time.Time // when Release was first called; zero if it was not
	ended         error     // why the lock is no longer held; nil while it is held, as far as is known
	renewErr      error     // how the last renewal failed, if it did
	kept          []*kept   // the contexts for which the lock is kept alive
}

// Bearer is what bears a lock. The methods in the second group are called while Life.Mu is locked.
type Bearer interface {
	Handle() *Life
	Names() (keys []string, token string)
	Events() *Events // never nil

	ValidUntil() time.Time // the end of the validity
	KnowsTTL() bool        // there is a ttl to renew the lock with
	FoundLost() *Lost      // notes a loss that is known, but not told yet, with Lose; nil for none

	StartRenewing() bool // false after Close
	StopRenewing()       // unless the lock is kept again
}

// errReleased is the cause of the contexts of a released lock.
var errReleased = fmt.Errorf("redislock: the lock was released: %w", context.Canceled)

// Until returns up to when the lock is certainly held, as far as its handle knows.
func Until(b Bearer) time.Time {
	l := b.Handle()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	until := b.ValidUntil()
	if !l.released.IsZero() && l.released.Before(until) {
		until = l.released
	}
	// Before compares monotonic readings alone if both times have one. If the wall clock has passed, return only that.
	if wall := until.Round(0); !time.Now().Round(0).Before(wall) {
		return wall
	}
	return until
}

// Metadata returns the metadata that this handle last stored or found.
func (l *Life) Metadata() string {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.metadata
}

// SetMetadata notes what this handle has stored or found; "" changes nothing. The caller holds l.Mu, or nobody else knows
// the lock yet.
func (l *Life) SetMetadata(metadata string) {
	if metadata != "" {
		l.metadata = metadata
	}
}

// WasReleased reports whether Release was called.
func (l *Life) WasReleased() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.IsReleased()
}

// IsReleased is WasReleased for callers that hold l.Mu.
func (l *Life) IsReleased() bool { return !l.released.IsZero() }

// IsLost reports whether the lock was found lost, and was not released before that. The caller holds l.Mu.
func (l *Life) IsLost() bool { return l.ended != nil && l.ended != errReleased }

// Losses returns how often the lock was found lost. The caller holds l.Mu.
func (l *Life) Losses() int32 { return l.losses }

// Lose notes that keys were found lost, and why the lock is no longer held. It returns what to tell after l.Mu is unlocked,
// or nil for nothing. The caller holds l.Mu.
func Lose(b Bearer, loss Loss, why error) *Lost {
	l := b.Handle()
	l.losses++
	l.ended = why
	if l.IsReleased() { // the Release may have freed the keys; if not, it tells the loss
		return nil
	}
	return endLost(b, loss, why)
}

// Check ends the lock if its Bearer knows of a loss, and ends its contexts if it is no longer valid. Either sends a Lost
// event.
func Check(ctx context.Context, b Bearer) {
	l := b.Handle()
	l.Mu.Lock()
	var event *Lost
	if l.ended == nil {
		event = b.FoundLost()
	}
	l.Mu.Unlock()
	if event != nil {
		b.Events().Lost(ctx, *event)
	}
	Lapse(b)
}

// Revive notes that a Refresh was confirmed. valid says that the lock is valid by it: otherwise it revives no hold, and what
// was told stays told. The caller holds l.Mu.
func (l *Life) Revive(valid bool) {
	if !l.IsReleased() {
		l.ended, l.told = nil, l.told && !valid
	}
	l.renewErr = nil
}

// Renewed notes how a renewal has ended. The caller holds l.Mu.
func (l *Life) Renewed(err error) { l.renewErr = err }

// whyEnded returns why a lock is no longer valid. The caller holds Life.Mu.
func whyEnded(b Bearer) error {
	l := b.Handle()
	keys, _ := b.Names()
	switch {
	case l.ended != nil:
		return l.ended
	case l.renewErr != nil:
		return fmt.Errorf("%w: %s: %w", fault.ErrLapsed, fault.Describe(keys), l.renewErr)
	}
	return fmt.Errorf("%w: %s", fault.ErrLapsed, fault.Describe(keys))
}

// Lapse ends every context of a lock that is no longer valid. It sends a Lost event, unless the lock was released or was
// found lost before. Lapse returns whether no context is left: false means that the lock is valid and kept.
func Lapse(b Bearer) bool {
	over, send := Lapsing(b)
	if send != nil {
		send()
	}
	return over
}

// Lapsing is Lapse, but leaves the event to its caller, who calls send; nil if there is no event.
func Lapsing(b Bearer) (over bool, send func()) {
	l := b.Handle()
	l.Mu.Lock()
	if l.ended == nil && !lease.Passed(b.ValidUntil()) {
		defer l.Mu.Unlock()
		return len(l.kept) == 0, nil
	}
	ending := l.kept
	l.kept = nil
	var lapsed *Lost
	if len(ending) > 0 && l.ended == nil { // else it was found lost or released, and that was told there
		lapsed = noteLapse(b)
	}
	cause := whyEnded(b)
	l.Mu.Unlock()
	endAll(b, ending, cause)
	if lapsed == nil {
		return true, nil
	}
	ctx := context.WithoutCancel(ending[0].Context)
	return true, func() { b.Events().Lost(ctx, *lapsed) }
}

// noteLapse returns what to tell of a kept lock whose validity is over. The caller holds Life.Mu.
func noteLapse(b Bearer) *Lost {
	l := b.Handle()
	if loss := b.FoundLost(); l.ended != nil {
		return loss
	}
	return endLost(b, Loss{Cause: Lapsed}, whyEnded(b))
}

// EndKept ends every context of the lock.
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

// unkeep removes an ended context from the lock. If it was the last one, it stops the renewals.
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

// IsKept reports whether any context of the lock is still to be served.
func (l *Life) IsKept() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Keeps()
}

// Keeps is IsKept for callers that hold l.Mu.
func (l *Life) Keeps() bool { return len(l.kept) > 0 }

// IsRenewed reports whether the lock is to be renewed: it is kept, and held as far as is known. The caller holds l.Mu.
func (l *Life) IsRenewed() bool { return len(l.kept) > 0 && l.ended == nil }

// RenewalCtx returns a ctx for a renewal of a lock that is kept. It has the values of the oldest kept one, because a hook
// may look at them, and does not end. The caller holds l.Mu.
func (l *Life) RenewalCtx() context.Context { return context.WithoutCancel(l.kept[0].Context) }
