package place

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/undo"
)

// GuardClosed says that a guard was found closed. Its fields are those of GuardClosed in the root.
type GuardClosed struct {
	Server string
	For    time.Duration
}

// IsGuarded reports whether the locks of the place have a guard. Then a lock that has lapsed never comes back.
func (p *Place) IsGuarded() bool { return p.set.Scripts.Guard.IsSet() }

// MaxTTL returns the longest ttl that a guard allows; 0 without one.
func (p *Place) MaxTTL() time.Duration { return p.set.Scripts.Guard.MaxTTL }

// noteClosure reports a guard that was found closed, once for each term of the server. It does so in another goroutine,
// because the caller may hold a mutex.
func (p *Place) noteClosure(ctx context.Context, c script.Closure) {
	if c.IsOver() || p.set.GuardClosed == nil {
		return
	}
	if before := p.closedIn.Swap(&c.Term); before == nil || *before != c.Term {
		go p.set.GuardClosed(context.WithoutCancel(ctx), GuardClosed{Server: p.Address(), For: c.For})
	}
}

// notExecuted returns the error of a refresh that a guard has not executed.
func notExecuted(again time.Duration) error {
	return fmt.Errorf("the guard has closed, because Redis may have forgotten locks; it renews none for another %v", again)
}

// revivals are the refreshes of a Claim that may put its keys back, because the place has a guard and Redis forgets. A
// release before them does not free the keys: see Claim.undoLate. Claim.mu protects the fields.
type revivals struct {
	underWay []chan struct{} // closed when the refresh has ended
	unheard  bool            // one has ended, but may still be executed
}

// BeginRevival notes that a refresh is about to be sent. Call the returned function when it has ended, and say whether it
// may still be executed.
func (k *Claim) BeginRevival() (end func(doubtful bool)) {
	if !k.Place.IsGuarded() {
		return func(bool) {}
	}
	ended := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.revivals == nil {
		k.revivals = &revivals{}
	}
	r := k.revivals
	r.underWay = append(r.underWay, ended)
	return func(doubtful bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		r.unheard = r.unheard || doubtful
		r.underWay = slices.DeleteFunc(r.underWay, func(other chan struct{}) bool { return other == ended })
		close(ended)
	}
}

// undoRevivals releases the keys again, in the background, when the refreshes have ended that were under way during the
// release, and that may have put the keys back after it.
func (k *Claim) undoRevivals(ctx context.Context) {
	k.mu.Lock()
	r := k.revivals
	if r == nil || len(r.underWay) == 0 && !r.unheard {
		k.mu.Unlock()
		return
	}
	underWay, unheard := slices.Clone(r.underWay), r.unheard
	r.unheard = false
	k.mu.Unlock()
	x := undo.New(k.Place.ReleaseCall(ctx, k.Token, k.Keys), undo.Resent, k.Keys.Names, k.Place.set.Scripts.Guard.MaxTTL)
	k.Place.Cleanups.Run(x, func() error {
		for _, ended := range underWay {
			<-ended
		}
		k.mu.Lock()
		x.Again = unheard || r.unheard // also one that was under way may still be executed
		k.mu.Unlock()
		return k.Place.Cleanups.SweepNow(x)
	})
}

// attachClosed returns the error of an Attach that a guard has refused.
func attachClosed(keys []string, c script.Closure) error {
	return fault.Failed("attach", keys, fmt.Errorf("%w: the guard is closed for another %v, because Redis may have forgotten "+
		"locks", fault.ErrNotObtained, c.For))
}
