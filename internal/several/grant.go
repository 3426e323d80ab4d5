package several

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/script"
)

// makeLock makes the lock of a round that was won. It returns ErrNotObtained, and notes why, if the lock has lapsed by now,
// or if a quorum has no fencing token for it.
func (s *Rounds) makeLock(ctx context.Context) error {
	fence, err := s.fence(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict = undecided // unless the lock is made, late answers are given back from now on
	if err != nil {
		s.Failure = err
		if s.places.quorum {
			return fault.ErrNotObtained // the next round of a waiter may do better
		}
		s.stepBack(ctx)
		if fault.Ended(ctx) != nil {
			return fault.ErrCut
		}
		return err
	}
	h := newLock(ctx, s.places, s.keys, s.token)
	h.Fence = fence
	h.SetMetadata(s.want.Metadata)
	h.obtained = s.want.Metadata
	var requests []majority.Request
	h.lock, requests = majority.Acquiring(len(s.parts), s.places.need, s.began, s.want.TTL)
	for i, p := range s.parts {
		p.request = requests[i]
		h.at[i].FenceKey, h.at[i].Obtained, h.at[i].coming = p.FenceKey, p.TTL, make(chan struct{})
	}
	for _, p := range s.parts {
		if p.answer != granted {
			continue
		}
		if !p.lags(fence) { // below: a mend must not be on its way if there is no lock in the end
			h.answer(h.ctx, p.request, p.reply(fence))
		}
		if h.Since.IsZero() || p.grant.Since.Before(h.Since) {
			h.Since = p.grant.Since
		}
	}
	if lease.Passed(h.until()) {
		s.Failure = fault.TooLate(s.began, s.want.TTL)
		return fault.ErrNotObtained
	}
	s.lock = h
	for i, p := range s.parts { // a place that is busy joins when it lands
		switch {
		case p.answer == granted && !p.lags(fence):
			p.PassDoubt(&h.at[i].Claim)
		case p.Token != s.token: // a call of an earlier round has ended since this one was won, or goes on
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

// fence returns the fencing token of a round that was won, or 0 if none is wanted. Each server of a quorum has minted one.
// If too few of these are alike, fence raises the counters to the largest one, so every later majority mints a larger one.
// Across slots, the fencing token is minted now, when all keys are held.
func (s *Rounds) fence(ctx context.Context) (int64, error) {
	key, token := s.want.FenceKey, s.token
	switch {
	case key == "":
		return 0, nil
	case !s.places.quorum:
		return s.places.all[0].FenceTo(ctx, s.keys, token, script.Keys{}, key, 0)
	}
	var largest int64
	var lower []int
	s.mu.Lock()
	for _, p := range s.parts {
		if p.answer == granted {
			largest = max(largest, p.grant.Fence)
		}
	}
	have := s.count(func(p *part) bool { return p.answer == granted && p.grant.Fence == largest })
	for i, p := range s.parts {
		if p.lags(largest) {
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
		ctx, cancel := context.WithTimeout(ctx, p.health.Patience(time.Now(), len(p.keys.Names), 0, health.NoLimit))
		defer cancel()
		return p.raise(ctx, token, key, largest)
	}, func(i int, err error) bool {
		if err == nil {
			have++
			s.mu.Lock()
			s.parts[i].grant.Fence = largest
			s.mu.Unlock()
		} else {
			errs = append(errs, s.named(s.parts[i], err))
		}
		return have >= s.places.need
	})
	if have < s.places.need {
		return 0, fault.Failed("obtain", s.keys, fault.Joined(errs))
	}
	return largest, nil
}
