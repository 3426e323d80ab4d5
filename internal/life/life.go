package life

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
)

// Life is what a handle knows of its lock. Set Fence and Since before others know the lock.
type Life struct {
	Fence int64     // the fencing token; 0 for none
	Since time.Time // when the request was sent that obtained the lock, or found it

	Mu       sync.Mutex // protects the fields below, and what the Owner says
	told     bool       // the end of the present hold was reported
	over     bool       // a Release has returned what became of the keys
	waits    bool       // the event of a renewal waits to be sent
	losses   int32      // how often the lock was found lost
	metadata string
	released time.Time // when Release was first called; zero if it was not
	ended    error     // why the lock is no longer held; nil while it is held, as far as is known
	renewErr error     // how the last renewal failed; nil if it did not
	kept     []*kept   // the contexts for which the lock is kept alive
}

// Owner is what a Life belongs to: the lock. Life calls the methods of the second group while Life.Mu is locked.
type Owner interface {
	Handle() *Life
	Names() (keys []string, token string)
	Events() *Events // never nil

	ValidUntil() time.Time // the end of the validity
	KnowsTTL() bool        // the lock has a ttl for renewals
	FoundLost() *Lost      // calls Lose for a loss that is known but was not reported yet; nil for none

	StartRenewing() bool // false after Close
	StopRenewing()       // unless the lock is kept again
}

// errReleased is the cause of the contexts of a released lock.
var errReleased = fmt.Errorf("redislock: the lock was released: %w", context.Canceled)

// Until returns up to when the lock is certainly held, as far as its handle knows.
func Until(o Owner) time.Time {
	l := o.Handle()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	until := o.ValidUntil()
	if !l.released.IsZero() && l.released.Before(until) {
		until = l.released
	}
	// Before compares only the monotonic readings if both times have one. If the lock has ended by the wall clock, return
	// only that reading. If that clock was set forward, a kept lock goes on, because its next renewal tells whether Redis
	// has it still. Nobody asks Redis about another lock, and no clock of a virtual machine counts while its host pauses
	// it.
	now := time.Now()
	if now.Before(until) && (lease.PassedBy(now, until) || !l.Keeps() && lease.PassedByWall(now, until)) {
		return until.Round(0)
	}
	return until
}

// Metadata returns the metadata that this handle last stored or found.
func (l *Life) Metadata() string {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.metadata
}

// LastMetadata is Metadata for callers that hold l.Mu.
func (l *Life) LastMetadata() string { return l.metadata }

// SetMetadata notes the metadata that this handle has stored or found; "" changes nothing. The caller holds l.Mu, or nobody
// else knows the lock yet.
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

// Lose notes that keys were found lost, and why the lock is no longer held. It returns the event to send after Life.Mu is
// unlocked, or nil for none. The caller holds Life.Mu.
func Lose(o Owner, loss Loss, why error) *Lost {
	l := o.Handle()
	l.losses++
	l.ended = why
	if l.IsReleased() { // the Release may have freed the keys; if not, it reports the loss
		return nil
	}
	return endLost(o, loss, why)
}

// Revive notes that a Refresh was confirmed. valid says whether that makes the lock valid. If not, no hold begins again, and
// what was reported stays reported. The caller holds l.Mu.
func (l *Life) Revive(valid bool) {
	if !l.IsReleased() {
		l.ended, l.told = nil, l.told && !valid
	}
	l.renewErr = nil
}

// Renewed notes how a renewal has ended. The caller holds l.Mu.
func (l *Life) Renewed(err error) { l.renewErr = err }

// whyEnded returns why a lock is no longer valid. The caller holds Life.Mu.
func whyEnded(o Owner) error {
	l := o.Handle()
	keys, _ := o.Names()
	switch {
	case l.ended != nil:
		return l.ended
	case l.renewErr != nil:
		return fmt.Errorf("%w: %s: %w", fault.ErrLapsed, fault.Describe(keys), l.renewErr)
	}
	return fmt.Errorf("%w: %s", fault.ErrLapsed, fault.Describe(keys))
}

// endLost ends the present hold of a lock that was lost. It returns the event to send after Life.Mu is unlocked, or nil for
// none. The caller holds Life.Mu.
func endLost(o Owner, loss Loss, err error) *Lost {
	l, end := o.Handle(), time.Now()
	if l.IsReleased() {
		end = l.released
	}
	held := l.endHold(end)
	if held == 0 || o.Events().Lost == nil {
		return nil
	}
	keys, _ := o.Names()
	return &Lost{Keys: keys, LostKeys: loss.Keys, Cause: loss.Cause, Held: held, Err: err}
}

// endHold notes that the end of the present hold is reported. It returns how long the hold lasted, or 0 if its end was
// reported before. The caller holds l.Mu.
func (l *Life) endHold(end time.Time) time.Duration {
	if l.told {
		return 0
	}
	l.told = true
	return max(end.Sub(l.Since), 1)
}
