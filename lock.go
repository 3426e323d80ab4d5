package redislock

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
)

// Lock is a hold on one or more keys. It is safe for concurrent use and must not be copied. The methods of a nil *Lock
// behave as for a lock that is not held, except that TTL returns [ErrLockNotHeld].
type Lock struct {
	client *Client
	keys   []string
	boxed  []any // the keys and their lines; see box
	token  string
	fence  int64
	since  time.Time // when the request was sent that obtained the lock, or found it

	fenceKey string // "" for none, or if attached

	obtained time.Duration // the ttl of the obtain; 0 if attached
	number   int32         // of its place, from 1, if it is a hold of another lock; 0 for a lock of a caller
	random   bool          // the library chose the token, so no other lock has it
	doubtful bool          // a sending of its obtain was not answered: it may acquire the keys again later

	entry schedule.Entry // its place among the renewals

	// holds are what it consists of if it lives on several places, and what it is a part of if it is a hold; otherwise
	// nil. One field for both, and a small number, keep a lock on one place in the size class that it has without them.
	holds *holds

	mu            sync.Mutex // protects the fields below
	metadata      string
	lease         lease.Lease
	told          bool            // a Tracer has been told of the end of the present hold
	taken         bool            // some key was found to be another's
	releasedAgain bool            // Release was called more than once
	losses        int32           // how often it was found lost
	ended         error           // why the lock is no longer held; nil while it is held, as far as is known
	released      time.Time       // when Release was first called; zero if it was not
	release       *transport.Call // the last release, if it was not answered
	pursuit       *pursuit        // goes on with release; nil if nothing does

	unanswered *unanswered // nil if each sending of the obtain was answered, and once that no longer matters

	kept     []*kept // the contexts for which the lock is kept alive
	renewErr error   // how the last renewal failed, if it did
}

// unanswered is what is known of those sendings of an obtain that were not answered, though a later one was. One that
// arrives after a Release acquires the keys again, or takes a place in line again.
type unanswered struct {
	waiter *waiter           // of the obtain; nil if there was none
	tries  []*transport.Call // that the waiter has abandoned; they may still be under way for long

	// Of a custom token, which may have acquired the keys again by then: so only what was newly taken is released.
	custom     bool
	superseded []*cleanup // by the obtain; they may wait for such tries of earlier ones
}

// exists reports whether l came from a Client. The zero Lock is not held, like a nil one.
func (l *Lock) exists() bool { return l != nil && l.client != nil }

// parts returns what the lock consists of, or nil if it lives on one place. A lock of several has no lease of its own.
func (l *Lock) parts() *holds {
	if l.number > 0 {
		return nil
	}
	return l.holds
}

// Key returns the first key of the lock, or "" for a nil lock.
func (l *Lock) Key() string {
	if !l.exists() {
		return ""
	}
	return l.keys[0]
}

// Keys returns a copy of the keys, in the order in which they were given, each once.
func (l *Lock) Keys() []string {
	if !l.exists() {
		return nil
	}
	return slices.Clone(l.keys)
}

// Token returns the token that the keys hold, or "" for a nil lock. Anyone who knows it can attach to the lock.
func (l *Lock) Token() string {
	if !l.exists() {
		return ""
	}
	return l.token
}

// Metadata returns the metadata that this handle last stored or, if it is attached, found.
func (l *Lock) Metadata() string {
	if !l.exists() {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.metadata
}

// FenceToken returns the fencing token of this hold. It is 0 without [Options.FenceKey] and for an attached lock. It is
// higher than that of every earlier hold with the same FenceKey, also when a token acquires its keys again, and also
// after the counter was lost, unless the clock of the server, or of the one that takes over, is behind. A resource that
// remembers the highest token it has seen, and refuses lower ones, is safe from a holder that outlived its lock.
func (l *Lock) FenceToken() int64 {
	if !l.exists() {
		return 0
	}
	return l.fence
}

// Until returns the time up to which the lock is certainly held, as far as this handle knows. It counts from before the
// last successful Obtain, Refresh or renewal was sent: that time plus its ttl, less 1 % and 1 ms. Check it right before
// a step that the lock guards:
//
//	if !time.Now().Before(lock.Until()) { … }
//
// That time has passed when either the monotonic clock or the wall clock says so, because the monotonic clock stands
// still while a machine is suspended.
//
// It lies in the past once the lock was released, or a Refresh or a renewal has found it lost. A Refresh to a shorter
// ttl brings it forward as soon as it is sent. This handle does not see what happens through other handles of the same
// token. Until never blocks. For a nil lock it returns the zero time.
func (l *Lock) Until() time.Time {
	if !l.exists() {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.validUntil()
	if !l.released.IsZero() && l.released.Before(until) {
		until = l.released
	}
	// Before compares monotonic readings alone if both times have one. If the wall clock has passed, return only that.
	if wall := until.Round(0); !time.Now().Round(0).Before(wall) {
		return wall
	}
	return until
}

// validUntil returns the end of the validity. The caller holds l.mu.
func (l *Lock) validUntil() time.Time {
	if h := l.parts(); h != nil {
		return h.until()
	}
	return l.lease.Until()
}

// TTL asks Redis for the shortest remaining ttl of the lock's keys, in whole milliseconds, rounded down. It returns 0
// if the lock has lost any of its keys, and the largest Duration if no key has an expiry. Of a quorum, it returns the
// ttl that a majority of the servers have at least.
//
// TTL blocks until Redis answers or ctx ends. It returns an error, wrapped, if Redis fails or ctx ends first; an error
// that wraps [ErrInvalid] for a nil ctx; and [ErrLockNotHeld] for a nil lock.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	switch {
	case !l.exists():
		return 0, ErrLockNotHeld
	case ctx == nil:
		return 0, errNilContext
	}
	if h := l.parts(); h != nil {
		return h.ttl(ctx)
	}
	reply, err := l.client.ask("ttl", l.keys, &transport.Call{
		Script: pttlScript, Keys: l.boxed[:len(l.keys)], Token: l.token, Ctx: ctx,
	})
	if err != nil {
		return 0, err
	}
	left, ok := reply.(int64)
	switch {
	case !ok:
		return 0, failed("ttl", l.keys, unexpected(reply))
	case left < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(left) * time.Millisecond, nil
}
