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

// closing is a closure of a guard that was reported.
type closing struct {
	term string
	end  time.Time
}

// noteClosure reports a guard that was found closed: once for each term of the server, and again if the server forgets again
// in the same term, as after a FLUSHALL, when the guard has been open meanwhile. It reports in another goroutine, because
// the caller may hold a mutex.
func (p *Place) noteClosure(ctx context.Context, c script.Closure) {
	if !c.IsOver() && p.set.GuardClosed != nil {
		p.reportClosure(ctx, c.For, c.Term)
	}
}

func (p *Place) reportClosure(ctx context.Context, closed time.Duration, term string) {
	now := time.Now()
	next := &closing{term: term, end: now.Add(closed)}
	if before := p.closing.Load(); before != nil && before.term == term && now.Before(before.end) {
		return
	} else if p.closing.CompareAndSwap(before, next) { // otherwise another answer has just reported it
		go p.set.GuardClosed(context.WithoutCancel(ctx), GuardClosed{Server: p.Address(), For: closed})
	}
}

// notExecuted returns the error of a refresh that a guard has not executed.
func notExecuted(again time.Duration) error {
	return fmt.Errorf("the guard has closed, because Redis may have forgotten locks; it renews none for another %v", again)
}

// BeginRevival notes that a refresh is about to be sent. Under a guard, it may put keys back that Redis has forgotten, and
// then a release before it does not free them: see undoRevivals. Call end when the refresh has ended, and say whether it may
// still be executed. If may is false, a release has begun, which does not know of the refresh: do not send it.
func (c *Claim) BeginRevival() (end func(doubtful bool), may bool) {
	if !c.Place.IsGuarded() {
		return func(bool) {}, true
	}
	ended := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stray()
	s.underWay = append(s.underWay, ended)
	may = !s.released
	return func(doubtful bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.unheard = s.unheard || doubtful
		if !s.released { // otherwise it may have been executed after the release, which was not answered before
			s.underWay = slices.DeleteFunc(s.underWay, func(other chan struct{}) bool { return other == ended })
		}
		close(ended)
	}, may
}

// awaitRelease returns what is closed when a release has begun.
func (c *Claim) awaitRelease() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stray()
	if s.over == nil {
		s.over = make(chan struct{})
		if s.released {
			close(s.over)
		}
	}
	return s.over
}

// endRevivals notes that a release has begun.
func (c *Claim) endRevivals() {
	if !c.Place.IsGuarded() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := c.strays; {
	case s == nil:
		c.strays = noStrays
	case !s.released:
		if s.released = true; s.over != nil {
			close(s.over)
		}
	}
}

// undoRevivals releases the keys again, in the background, when the refreshes have ended that were under way during the
// release, and that may have put the keys back after it.
func (c *Claim) undoRevivals(ctx context.Context) {
	c.mu.Lock()
	s := c.strays
	if s == nil || len(s.underWay) == 0 && !s.unheard {
		c.mu.Unlock()
		return
	}
	underWay := s.underWay
	s.underWay = nil
	c.mu.Unlock()
	x := undo.New(c.Place.ReleaseCall(ctx, c.Token, c.Keys), undo.Resent, c.Keys.Names, c.Place.set.Scripts.Guard.MaxTTL)
	c.Place.Cleanups.Run(x, func() error {
		for _, ended := range underWay {
			<-ended
		}
		c.mu.Lock()
		x.Again = s.unheard // only now: one of those that were under way may have ended without an answer
		s.unheard = false
		c.mu.Unlock()
		return c.Place.Cleanups.SweepNow(x)
	})
}

// attachClosed returns the error of an Attach that a guard has refused.
func attachClosed(keys []string, c script.Closure) error {
	return fault.Failed("attach", keys, fmt.Errorf("%w: the guard is closed for another %v, because Redis may have forgotten "+
		"locks", fault.ErrNotObtained, c.For))
}
