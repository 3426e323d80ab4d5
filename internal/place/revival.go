package place

import (
	"context"
	"slices"

	"github.com/redislock/redislock/internal/undo"
)

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
