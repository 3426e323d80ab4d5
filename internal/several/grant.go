package several

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/script"
)

// makeLock makes the lock of a round that was won. It returns ErrNotObtained, and notes why, if the lock has lapsed by now,
// or if a quorum has no fencing token for it.
func (t *Tries) makeLock(ctx context.Context) error {
	fence, err := t.fence(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verdict = undecided // unless the lock is made, late answers are given back from now on
	if err != nil {
		t.Failure = err
		if t.places.quorum {
			return fault.ErrNotObtained // the next round of a waiter may do better
		}
		t.stepBack(ctx)
		if fault.Ended(ctx) != nil {
			return fault.ErrCut
		}
		return err
	}
	l := newLock(ctx, t.places, t.keys, t.token)
	l.Fence = fence
	l.SetMetadata(t.want.Metadata)
	l.obtained = t.want.Metadata
	var requests []majority.Request
	l.lock, requests = majority.Acquiring(len(t.attempts), t.places.need, t.began, t.want.TTL)
	for i, a := range t.attempts {
		a.request = requests[i]
		at := l.at[i]
		at.Origin, at.FenceKey, at.Lasts = claim.Random, a.FenceKey, a.TTL
		at.coming = make(chan struct{})
	}
	for _, a := range t.attempts {
		if a.vote != granted {
			continue
		}
		if !a.lags(fence) { // below: a mend must not be on its way if there is no lock in the end
			l.apply(l.ctx, a.request, a.answer(fence))
		}
		if l.Since.IsZero() || a.grant.Since.Before(l.Since) {
			l.Since = a.grant.Since
		}
	}
	if lease.Passed(l.until()) {
		t.Failure = fault.TooLate(t.began, t.want.TTL)
		return fault.ErrNotObtained
	}
	t.lock = l
	for i, a := range t.attempts { // a place that is busy joins when it lands
		if a.Token == t.token {
			l.at[i].Ask()
		}
		switch {
		case a.vote == granted && !a.lags(fence):
			a.passTo(ctx, l.at[i])
		case a.Token != t.token: // a call of an earlier round has ended since this one was won, or goes on
			l.apply(l.ctx, a.request, answer{Answer: majority.Answer{Result: majority.Unsent}, lost: a.Keys.Names})
			if !a.busy {
				t.settle(ctx, a)
			}
		case !a.busy:
			t.join(ctx, a)
		}
	}
	return nil
}

// fence returns the fencing token of a round that was won, or 0 if none is wanted. Each server of a quorum has minted one.
// If too few of these are alike, fence raises the counters to the largest one, so every later majority mints a larger one.
// Across slots, the fencing token is minted now, when all keys are held.
func (t *Tries) fence(ctx context.Context) (int64, error) {
	key, token := t.want.FenceKey, t.token
	switch {
	case key == "":
		return 0, nil
	case !t.places.quorum:
		return t.places.all[0].FenceTo(ctx, t.keys, token, script.Keys{}, key, 0)
	}
	var largest int64
	var lower []int
	t.mu.Lock()
	for _, a := range t.attempts {
		if a.vote == granted {
			largest = max(largest, a.grant.Fence)
		}
	}
	have := t.count(func(a *attempt) bool { return a.vote == granted && a.grant.Fence == largest })
	for i, a := range t.attempts {
		if a.lags(largest) {
			lower = append(lower, i)
		}
	}
	t.mu.Unlock()
	if have >= t.places.need {
		return largest, nil
	}
	var errs []error
	sideBySide(lower, func(i int) error {
		s := t.places.all[i]
		ctx, cancel := context.WithTimeout(ctx, s.health.Patience(time.Now(), len(s.keys.Names), 0, health.NoLimit))
		defer cancel()
		return s.raise(ctx, token, key, largest)
	}, func(i int, err error) bool {
		if err == nil {
			have++
			t.mu.Lock()
			t.attempts[i].grant.Fence = largest
			t.mu.Unlock()
		} else {
			errs = append(errs, t.named(t.attempts[i], err))
		}
		return have >= t.places.need
	})
	if have < t.places.need {
		return 0, fault.Failed("obtain", t.keys, fault.Joined(errs))
	}
	return largest, nil
}
