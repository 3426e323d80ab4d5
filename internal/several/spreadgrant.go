package several

import (
	"context"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/script"
)

// make makes the lock of a round that was won. It returns ErrNotObtained, and notes why, if the lock has lapsed
// by now, or if there is no fencing token for it on a quorum.
func (s *Spreading) make(ctx context.Context) error {
	fence, err := s.fence(ctx)
	if err != nil {
		s.Failure = err
		s.mu.Lock()
		s.won = false
		s.mu.Unlock()
		if s.places.quorum {
			return fault.ErrNotObtained // the next round of a waiter may do better
		}
		s.undo(ctx)
		if fault.Ended(ctx) != nil {
			return fault.ErrCut
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.won = false
	h := newLock(ctx, s.places, s.keys, s.token)
	h.fenceKey, h.Fence, h.obtained, h.Random = s.fenceKey, fence, s.ttl, true
	h.SetMetadata(s.metadata)
	var requests []majority.Request
	h.lock, requests = majority.Acquiring(len(s.parts), s.places.need, s.began, s.ttl)
	for i := range s.parts {
		p := &s.parts[i]
		p.request = requests[i]
		h.at[i].FenceKey, h.at[i].Obtained, h.at[i].coming = p.FenceKey, s.ttl, make(chan struct{})
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.isGranted() && p.round == s.round {
			if !p.lags(h) { // below: a mend must not be on its way if there is no lock in the end
				h.answer(h.ctx, p.request, p.reply(h))
			}
			if h.Since.IsZero() || p.grant.Since.Before(h.Since) {
				h.Since = p.grant.Since
			}
		}
	}
	if lease.Passed(h.until()) {
		s.Failure = fault.TooLate(s.began, s.ttl)
		return fault.ErrNotObtained
	}
	s.holds = h
	for i := range s.parts { // a place that is busy joins when it lands
		p := &s.parts[i]
		switch {
		case p.state == partGranted && !p.busy && !p.lags(h):
			s.joined(p)
		case p.round != s.round: // a call of an earlier round has ended since this one was won, or goes on
			h.answer(h.ctx, p.request, reply{Answer: majority.Answer{Result: majority.Unsent}, lost: p.Keys.Names})
			if !p.busy {
				s.settle(ctx, p)
			}
		case !p.busy:
			s.join(ctx, p)
		}
	}
	return nil
}

// reply returns what a place has answered to the request of the lock's round. The caller holds Spreading.mu, and no call is
// under way to the place.
func (p *part) reply(h *Lock) reply {
	a := reply{Answer: majority.Answer{Doubtful: p.Doubtful}, err: p.err, lost: p.Keys.Names}
	switch {
	case p.lags(h): // it has the keys, but does not count before a mend has raised the counter
		a.lost = nil
	case p.state == partGranted:
		a.Result, a.Until = majority.Confirmed, lease.ValidUntil(p.grant.Since, p.TTL)
	case p.Late: // nobody can rely on it
		a.Doubtful = true
	case p.state == partRefused:
		a.Result = majority.Denied
	}
	return a
}

// lags reports whether a place has granted, but its fence counter is too low: a majority with this place could mint a
// smaller token next. The caller holds Spreading.mu.
func (p *part) lags(h *Lock) bool {
	return p.state == partGranted && h.isFenced() && p.grant.Fence < h.Fence
}

// join tells the lock what a place has answered that had not when the lock was made. If it has refused, it is asked again:
// others may have been about to give back what they had there. With three places, a server that forgets its data does no
// harm. The caller holds s.mu.
func (s *Spreading) join(ctx context.Context, p *part) {
	i, h := s.number(p), s.holds
	a := p.reply(h)
	h.answer(h.ctx, p.request, a)
	if p.state == partGranted {
		s.joined(p)
		return
	}
	if a.Result == majority.Denied {
		h.mendSoon(i)
	}
	p.QuitLine(ctx)
}

// joined ends the part of a place that has granted: what it has belongs to the lock now. The caller holds s.mu.
func (s *Spreading) joined(p *part) {
	h, i := s.holds, s.number(p)
	p.PassDoubt(&h.at[i].Claim)
	p.Waiter.QuitInbox()
	if p.lags(h) {
		h.mendSoon(i)
	}
}

// fence returns the fencing token of a round that was won, or 0 if none is wanted. A quorum has minted one at each place
// already. If not enough of these are alike, it raises the counters to the largest, so that every later majority mints
// a larger one. Across slots, the fencing token is minted now, when all keys are held.
func (s *Spreading) fence(ctx context.Context) (int64, error) {
	switch {
	case s.fenceKey == "":
		return 0, nil
	case !s.places.quorum:
		return s.places.all[0].FenceTo(ctx, s.keys, s.token, script.Keys{}, s.fenceKey, 0)
	}
	var largest int64
	var lower []int
	have := 0
	s.mu.Lock()
	for i := range s.parts {
		if p := &s.parts[i]; p.isGranted() {
			largest = max(largest, p.grant.Fence)
		}
	}
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case !p.isGranted():
		case p.grant.Fence == largest:
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
		ctx, cancel := context.WithTimeout(ctx, p.health.Patience(len(p.keys.Names), 0, health.NoLimit))
		defer cancel()
		counter, err := p.FenceTo(ctx, p.keys.Names, s.token, p.keys, s.fenceKey, largest)
		if err == nil && counter < largest { // it may be larger: locks of other keys can use the same counter
			err = errGone
		}
		return err
	}, func(i int, err error) bool {
		if err == nil {
			have++
			s.mu.Lock()
			s.parts[i].grant.Fence = largest
			s.mu.Unlock()
		} else {
			errs = append(errs, s.named(&s.parts[i], err))
		}
		return have >= s.places.need
	})
	if have < s.places.need {
		return 0, fault.Failed("obtain", s.keys, fault.Joined(errs))
	}
	return largest, nil
}
