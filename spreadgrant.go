package redislock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// make makes the lock of a round that was won. It returns ErrNotObtained, and notes why, if the lock has lapsed
// by now, or if there is no fencing token for it on a quorum.
func (s *spreading) make(ctx context.Context) error {
	fence, err := s.fence(ctx)
	if err != nil {
		s.failure = err
		s.mu.Lock()
		s.won = false
		s.mu.Unlock()
		if s.places.quorum {
			return ErrNotObtained // the next round of a waiter may do better
		}
		s.undo(ctx)
		if ended(ctx) != nil {
			return errCut
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.won = false
	h := &several{
		places: s.places, tracer: s.client.tracer, closed: s.client.closed, fenceKey: s.fenceKey,
		ctx: context.WithoutCancel(ctx), at: make([]standing, len(s.parts)),
	}
	h.keys, h.token, h.fence, h.obtained, h.metadata, h.random = s.keys, s.token, fence, s.ttl, s.metadata, true
	for i := range s.parts {
		if p := &s.parts[i]; p.isGranted() && p.round == s.round {
			h.put(i, p.hold)
			if h.since.IsZero() || p.hold.since.Before(h.since) {
				h.since = p.hold.since
			}
		}
	}
	h.begin()
	if lease.Passed(h.until()) {
		s.failure = tooLate(s.began, s.ttl)
		return ErrNotObtained
	}
	s.lock, s.holds, h.shown = &Lock{several: h}, h, h.until()
	for i := range h.at {
		if h.at[i].lock == nil {
			h.at[i].coming = make(chan struct{})
		}
	}
	for i := range s.parts { // a place that is busy joins when it lands
		p := &s.parts[i]
		switch {
		case p.state == partGranted:
			p.hold = nil // it belongs to the lock now
		case !p.busy && p.round != s.round: // a call of an earlier round has ended since this one was won
			s.settle(ctx, p)
		case !p.busy:
			s.joinLate(ctx, p)
		}
	}
	return nil
}

// joinLate deals with a place that has answered when the lock was already made. The caller holds s.mu.
func (s *spreading) joinLate(ctx context.Context, p *part) {
	i := s.number(p)
	if p.topped {
		defer s.holds.ask(i, false)
	}
	if p.state == partGranted {
		s.holds.join(ctx, i, p.hold, p.doubtful, false)
		p.hold = nil
		p.waiter.quitInbox()
		return
	}
	s.holds.miss(i, p.state == partRefused, p.doubtful || p.late)
	if p.topped || p.state == partFailed {
		if p.state == partRefused {
			s.holds.mendSoon(i)
		}
		p.quitLine(ctx)
		return
	}
	s.askAgain(ctx, p)
}

// askAgain asks a place once more, now that the lock is made, if its answer has not made a valid hold: others may have been
// about to give back what they had there. With three holds, a server that forgets its data does no harm. The caller holds
// s.mu.
func (s *spreading) askAgain(ctx context.Context, p *part) {
	p.topped = true
	p.fenceKey = ""
	if s.queue {
		s.topUp(ctx, p)
		return
	}
	time.AfterFunc(topUpAfter+rand.N(topUpAfter), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.topUp(ctx, p)
	})
}

// topUp asks a place once more for a lock that is made, unless that has ended or lapsed. The caller holds s.mu.
func (s *spreading) topUp(ctx context.Context, p *part) {
	now := time.Now()
	if !s.holds.isOver() && !lease.Passed(s.holds.until()) && s.admits(p, now) {
		s.holds.ask(s.number(p), true)
		s.start(ctx, p, now)
		return
	}
	p.quitLine(ctx)
}

// topUpAfter is how long after a grant a place that has refused is asked again.
const topUpAfter = 5 * time.Millisecond

// fence returns the fencing token of a round that was won, or 0 if none is wanted. A quorum has minted one at each place
// already. If not enough of these are alike, it raises the counters to the largest, so that every later majority mints
// a larger one. Across slots, the fencing token is minted now, when all keys are held.
func (s *spreading) fence(ctx context.Context) (int64, error) {
	switch {
	case s.fenceKey == "":
		return 0, nil
	case !s.places.quorum:
		return s.client.one.fenceTo(ctx, s.keys, s.token, nil, s.fenceKey, 0)
	}
	var largest int64
	var lower []int
	have := 0
	s.mu.Lock()
	for i := range s.parts {
		if p := &s.parts[i]; p.isGranted() {
			largest = max(largest, p.hold.fence)
		}
	}
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case !p.isGranted():
		case p.hold.fence == largest:
			have++
		default:
			lower = append(lower, i)
		}
	}
	s.mu.Unlock()
	if have >= s.places.need {
		return largest, nil
	}
	var errs []error
	sideBySide(lower, func(i int) error {
		p := s.places.all[i]
		ctx, cancel := context.WithTimeout(ctx, p.health.patience(len(p.keys), 0, noLimit))
		defer cancel()
		counter, err := p.fenceTo(ctx, p.keys, s.token, p.boxed[:len(p.keys)], s.fenceKey, largest)
		if err == nil && counter < largest { // it may be larger: locks of other keys can use the same counter
			err = errGone
		}
		return err
	}, func(i int, err error) bool {
		if err == nil {
			have++
		} else {
			errs = append(errs, s.named(&s.parts[i], err))
		}
		return have >= s.places.need
	})
	if have < s.places.need {
		return 0, failed("obtain", s.keys, joined(errs))
	}
	return largest, nil
}
