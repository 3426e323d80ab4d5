package redislock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// single makes the tries of an obtain at one place. It belongs to the goroutine of the caller, who waits no longer than ctx
// allows.
type single struct {
	attempt
	progress

	// Of tries that were abandoned without an answer.
	abandoned []*transport.Call // those that may still run
	taken     []string          // keys to be given back, because late grants of such tries newly acquired them
}

// waitForOwn waits for earlier work under a custom token: see undo.Cleanups.WaitForOwn.
func (s *single) waitForOwn(ctx context.Context) error {
	if !s.custom {
		return nil
	}
	return s.place.cleanups.WaitForOwn(ctx, s.token, s.keys.Names, s.waiter != nil && fault.HasDeadline(ctx))
}

// try asks once for all keys. It reports whether another try makes sense, which it does after a refusal.
func (s *single) try(ctx context.Context) (again bool, err error) {
	if fault.Ended(ctx) != nil {
		return false, errCut
	}
	if s.waiter != nil {
		done, h := s.waiter.Admit(ctx, s.place.closed, len(s.keys.Names))
		switch {
		case h != nil:
			return s.grant(ctx, s.waiter.Since(h), h.Fence, s.keys.Names)
		case done != nil:
			defer done()
		case fault.Ended(ctx) != nil:
			return false, errCut
		default:
			return false, ErrClosed
		}
	}
	c := new(transport.Call)
	s.fillObtain(c)
	s.tries++
	began := time.Now()
	c.GiveUp = began.Add(s.ttl)
	var cancel context.CancelFunc
	s.collect()
	c.Ctx, cancel = s.waiter.Patience(ctx, len(s.abandoned))
	defer cancel()
	if s.place.redis.Do(c.Ctx, c) || hear(c) {
		return s.conclude(ctx, c)
	}
	s.abandoned = append(s.abandoned, c)
	again, err = s.conclude(ctx, &transport.Call{Ctx: c.Ctx, Err: cmp.Or(c.Failure(), s.unanswered(began, s.ttl))})
	if again {
		s.waiter.TryAgain() // the abandoned try took longer than a wait would
	}
	return again, err
}

// conclude applies the result of a try that has ended.
func (s *single) conclude(ctx context.Context, c *transport.Call) (again bool, err error) {
	s.doubtful = s.doubtful || c.Doubtful
	s.resends += int(c.Resends)
	if c.Err != nil {
		s.fail(c)
		if fault.Ended(ctx) != nil {
			return false, errCut
		}
		return s.waiter.Bear(ctx, c.Err), s.failure
	}
	s.failure = nil
	g, err := s.read(ctx, c)
	switch {
	case err == ErrNotObtained:
		if s.belated > 0 && !lease.Passed(lease.ValidUntil(c.Sent, s.ttl)) {
			s.belated = 0
		}
		return true, err
	case err != nil:
		return false, err
	}
	return s.grant(ctx, c.Sent, g.Fence, g.Taken)
}

// grant makes a lock that was granted after the given time, unless it has already lapsed. Like try, it reports whether
// another try makes sense.
func (s *single) grant(ctx context.Context, since time.Time, fence int64, taken []string) (again bool, err error) {
	valid := lease.Granted(since, s.ttl)
	if lease.Passed(valid.Until()) {
		return s.decline(ctx, since, taken)
	}
	s.lock = new(Lock)
	s.fill(&s.lock.one, since, valid, fence)
	s.lock.one.unanswered = s.unansweredTries(s.abandoned)
	return false, nil
}

// end ends the obtain. Unless it made a lock, it gives everything back in the background.
func (s *single) end(ctx context.Context, panicked bool) {
	if panicked {
		s.doubtful = true
	}
	if panicked || s.lock == nil {
		s.withdraw(ctx, s.abandoned, s.taken)
	}
	s.waiter.QuitInbox()
}

// lastWord is how long an obtain waits for a call whose ctx has ended. Unless go-redis is reading the reply, it returns
// such a call at once, and a healthy server answers within this time. A round at several places also waits for so long
// before it counts a place as absent.
const lastWord = 2 * time.Millisecond

// hear reports whether an abandoned call ends within lastWord after all.
func hear(c *transport.Call) bool {
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-c.Done():
		return true
	case <-timer.C:
		return false
	}
}

// fail notes how a try has failed. If its error is only the end of its ctx, it was still waiting for something, for
// example a connection, after an earlier attempt had failed. Then the earlier failure says more.
func (s *single) fail(c *transport.Call) {
	if c.Ctx != nil && c.Ctx.Err() != nil && errors.Is(c.Err, c.Ctx.Err()) {
		c.Err = fault.ErrUnanswered
		if s.failure != nil {
			return
		}
	}
	s.failure = s.failed(c.Err)
}

// collect notes the results of abandoned tries that have ended by now. A waiter may abandon some every hour.
func (s *single) collect() {
	s.abandoned = slices.DeleteFunc(s.abandoned, func(c *transport.Call) bool {
		if !fault.IsClosed(c.Done()) {
			return false
		}
		s.taken = append(s.taken, s.note(c)...)
		return true
	})
}
