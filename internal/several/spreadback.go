package several

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/undo"
)

// undo gives back what the present round was granted, at all places.
func (s *Spreading) undo(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
	if s.queue {
		s.agree()
	}
	for i := range s.parts {
		if p := &s.parts[i]; !p.busy {
			s.undoPart(ctx, p)
		}
	}
}

// waitForUndo waits until all is given back and, on a quorum, for calls that are still under way; but if others may need
// what this obtain is granted next, for no server that takes much longer than the others. It returns an error if ctx ends or
// the Client is closed first.
func (s *Spreading) waitForUndo(ctx context.Context) error {
	_, err := s.collect(ctx, place.LastWord, func(now time.Time) (verdict, time.Time) {
		limit := s.splitPatience()
		if s.once { // what was granted is on its way back; without this, the calls of a loop pile up at a slow server
			limit = health.NoLimit
		}
		if waits, until := s.waits(now, limit); waits {
			return open, until
		}
		return undecided, time.Time{}
	})
	return err
}

// undoPart gives back what a place has granted. In line, it steps back: the waiter keeps its place, with the common
// ticket. The caller holds s.mu, and no call is under way to the place.
func (s *Spreading) undoPart(ctx context.Context, p *part) {
	granted := p.state == partGranted
	keys := p.Keys.OnlyLines()
	if granted || p.Late {
		keys = p.Keys // none is of an earlier hold, because the token is new
	}
	p.state = partIdle
	w := p.Waiter
	stays := w.HasPlace() && s.ticket > 0
	moved := stays && w.TakeTicket(s.ticket)
	if !granted && !moved && len(keys.Names) == 0 {
		return
	}
	c := p.Place.ReleaseCall(ctx, p.Token, keys)
	if stays {
		w.StepBack(c)
	}
	p.Late = false
	p.busy, p.began = true, time.Now()
	x := undo.New(c, undo.Step, keys.Names, p.TTL) // without why: it is a step of the obtain
	if !p.Place.Cleanups.Run(x, func() error {
		_, err := p.Place.Cleanups.SendRelease(x)
		s.undone(ctx, p)
		return err
	}) {
		p.busy = false
	}
}

// undone notes that a place has given back what it granted.
func (s *Spreading) undone(ctx context.Context, p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.busy = false
	s.settle(ctx, p)
	s.signal()
}

// End ends the obtain. Unless it made a lock, it gives everything back in the background.
func (s *Spreading) End(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.open, s.won = true, false, false
	if s.ticket > 0 {
		tickets.drop(s.ticket)
	}
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.busy: // it is dealt with when its call has ended
		case s.holds == nil:
			s.leave(ctx, p)
		default:
			p.Waiter.QuitInbox()
		}
	}
}

// leave gives up all that an obtain that has ended may have at a place, apart from the hold of a lock. The caller holds
// s.mu, and no call is under way to the place.
func (s *Spreading) leave(ctx context.Context, p *part) {
	gone := p.Attempt
	gone.Late = gone.Late || p.state == partGranted
	p.state, p.Waiter, p.Doubtful, p.Late = partIdle, nil, false, false
	gone.Withdraw(ctx, nil, nil)
	gone.Waiter.QuitInbox()
}
