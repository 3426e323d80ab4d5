package place

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// MaxBelated is how many grants in a row may come too late.
const MaxBelated = 2

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
func (s *Single) decline(ctx context.Context, since time.Time, taken []string) (again bool, err error) {
	s.Waiter.TryAgain()
	s.Failure = fault.TooLate(since, s.TTL)
	s.Belated++
	again = s.Belated < MaxBelated
	if !s.Custom {
		back := s.ReleaseCall(ctx)
		if s.Waiter != nil { // a try that is still on its way may enter the lines again, with the old token
			s.Waiter.Leave(back)
			s.Waiter.Renew()
		}
		s.Place.Cleanups.Sweep(undo.New(back, undo.Late, s.Keys.Names, s.TTL), 0, s.abandoned...)
		s.Token, s.Doubtful = NewToken(), false
		s.abandoned, s.Late, s.taken = nil, false, nil // they have the old token
		return again, s.Failure
	}
	if len(taken) == 0 { // the others may belong to an earlier hold
		return again, s.Failure
	}
	back := s.Place.ReleaseCall(ctx, s.Token, script.Box(taken))
	back.GiveUp = time.Now().Add(s.TTL)
	before := s.taken
	s.taken = append(s.taken, taken...) // for withdraw, if this fails or a hook panics
	answered := s.Place.Redis.Do(ctx, back)
	if !answered || back.Err == nil {
		s.taken = before
	}
	if !answered {
		s.Place.Cleanups.Persist(back, undo.Late, taken)
		back = &transport.Call{Err: fault.ErrUnanswered}
	}
	if back.Err != nil {
		s.Doubtful = true
		s.fail(back)
		if fault.Ended(ctx) != nil {
			return false, fault.ErrCut
		}
		return false, s.Failure
	}
	return again && !back.Doubtful, s.Failure
}
