package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// maxBelated is how many grants in a row may come too late.
const maxBelated = 2

// decline gives back a grant of a request that was sent at that time, and whose reply came too late to be relied on. It
// returns an error that says so.
//
// One such grant may be chance: a pause of the process or of the server. The second one in a row ends the obtain, because
// answers take longer than the ttl lasts, and the next one would as well. Each of them keeps the keys from others for a
// moment and, in line, takes the turn of the next waiter. A refusal that comes in time shows that answers can be fast
// enough, so the count begins again.
//
// With a random token, the next try uses a new token. So the old one can be released in the background, and no release
// can hit a later grant. All keys are released, because the grant may answer a resend whose first sending acquired
// them.
//
// A custom token stays. Then the release must be answered before the next try. If it is not, there is no next try.
func (s *single) decline(ctx context.Context, since time.Time, taken []string) (again bool, err error) {
	s.waiter.TryAgain()
	s.failure = fault.TooLate(since, s.ttl)
	s.belated++
	again = s.belated < maxBelated
	if !s.custom {
		back := s.newRelease(ctx)
		if s.waiter != nil { // a try that is still on its way may enter the lines again, with the old token
			s.waiter.Leave(back)
			s.waiter.Renew()
		}
		s.place.cleanups.Sweep(undo.New(back, WhyLate, s.keys.Names, s.ttl), 0, s.abandoned...)
		s.token, s.doubtful = randomToken(), false
		s.abandoned, s.late, s.taken = nil, false, nil // they have the old token
		return again, s.failure
	}
	if len(taken) == 0 { // the others may belong to an earlier hold
		return again, s.failure
	}
	back := s.place.newRelease(ctx, s.token, script.Box(taken))
	back.GiveUp = time.Now().Add(s.ttl)
	before := s.taken
	s.taken = append(s.taken, taken...) // for withdraw, if this fails or a hook panics
	answered := s.place.redis.Do(ctx, back)
	if !answered || back.Err == nil {
		s.taken = before
	}
	if !answered {
		s.place.cleanups.Persist(back, WhyLate, taken)
		back = &transport.Call{Err: fault.ErrUnanswered}
	}
	if back.Err != nil {
		s.doubtful = true
		s.fail(back)
		if fault.Ended(ctx) != nil {
			return false, errCut
		}
		return false, s.failure
	}
	return again && !back.Doubtful, s.failure
}
