package place

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Single makes the tries of an obtain at one place. It belongs to the goroutine of the caller, who waits no longer than ctx
// allows.
type Single struct {
	Attempt
	Progress

	won   bool      // a try was granted; the fields below say what
	since time.Time // not after the keys were acquired
	valid lease.Lease
	fence int64

	// Of tries that were abandoned without an answer.
	abandoned []*transport.Call // those that may still run
	taken     []string          // keys to be given back, because late grants of such tries newly acquired them
}

// Prepare says what the tries ask for, before the first one.
func (s *Single) Prepare(p *Place, o *script.Obtain) {
	s.Place, s.Keys, s.Token, s.Custom, s.TTL = p, o.Keys, o.Token, o.Custom, o.TTL
	s.Metadata, s.FenceKey = o.Metadata, o.FenceKey
}

// Queue makes a refused try wait in line, before the first one. pace may be nil; see line.Waiter.
func (s *Single) Queue(pace retry.Strategy) { s.Waiter = s.Place.Lines.New(pace) }

// Await waits in line until the next try is due. It returns false if ctx ends or the Client is closed first.
func (s *Single) Await(ctx context.Context) bool { return s.Waiter.Await(ctx, s.Place.set.Closed) }

// WaitForOwn waits for earlier work under a custom token: see undo.Cleanups.WaitForOwn.
func (s *Single) WaitForOwn(ctx context.Context) error {
	if !s.Custom {
		return nil
	}
	return s.Place.Cleanups.WaitForOwn(ctx, s.Token, s.Keys.Names, s.Waiter != nil && fault.HasDeadline(ctx))
}

// Try asks once for all keys. It reports whether another try makes sense, which it does after a refusal.
func (s *Single) Try(ctx context.Context) (again bool, err error) {
	if fault.Ended(ctx) != nil {
		return false, fault.ErrCut
	}
	if s.Waiter != nil {
		done, h := s.Waiter.Admit(ctx, s.Place.set.Closed, len(s.Keys.Names))
		switch {
		case h != nil:
			return s.grant(ctx, s.Waiter.Since(h), h.Fence, s.Keys.Names)
		case done != nil:
			defer done()
		case fault.Ended(ctx) != nil:
			return false, fault.ErrCut
		default:
			return false, fault.ErrClosed
		}
	}
	c := new(transport.Call)
	s.fillObtain(c)
	s.Tries++
	began := time.Now()
	c.GiveUp = began.Add(s.TTL)
	var cancel context.CancelFunc
	s.collect()
	c.Ctx, cancel = s.Waiter.Patience(ctx, len(s.abandoned))
	defer cancel()
	if s.Place.Redis.Do(c.Ctx, c) || hear(c) {
		return s.conclude(ctx, c)
	}
	s.abandoned = append(s.abandoned, c)
	again, err = s.conclude(ctx, &transport.Call{Ctx: c.Ctx, Err: cmp.Or(c.Failure(), s.Unanswered(began, s.TTL))})
	if again {
		s.Waiter.TryAgain() // the abandoned try took longer than a wait would
	}
	return again, err
}

// conclude applies the result of a try that has ended.
func (s *Single) conclude(ctx context.Context, c *transport.Call) (again bool, err error) {
	s.Doubtful = s.Doubtful || c.Doubtful
	s.Resends += int(c.Resends)
	if c.Err != nil {
		s.fail(c)
		if fault.Ended(ctx) != nil {
			return false, fault.ErrCut
		}
		return s.Waiter.Bear(ctx, c.Err), s.Failure
	}
	s.Failure = nil
	g, err := s.read(ctx, c)
	switch {
	case err == fault.ErrNotObtained:
		if s.Belated > 0 && !lease.Passed(lease.ValidUntil(c.Sent, s.TTL)) {
			s.Belated = 0
		}
		return true, err
	case err != nil:
		return false, err
	}
	return s.grant(ctx, c.Sent, g.Fence, g.Taken)
}

// grant makes a lock that was granted after the given time, unless it has already lapsed. Like try, it reports whether
// another try makes sense.
func (s *Single) grant(ctx context.Context, since time.Time, fence int64, taken []string) (again bool, err error) {
	valid := lease.Granted(since, s.TTL)
	if lease.Passed(valid.Until()) {
		return s.decline(ctx, since, taken)
	}
	s.won, s.since, s.valid, s.fence = true, since, valid, fence
	return false, nil
}

// Fill makes h the hold that was won.
func (s *Single) Fill(h *Hold) {
	h.Place, h.Keys, h.Token, h.FenceKey = s.Place, s.Keys, s.Token, s.FenceKey
	h.Lease, h.Obtained, h.unanswered = s.valid, s.TTL, s.unansweredTries(s.abandoned)
	h.Fence, h.Since, h.Random = s.fence, s.since, !s.Custom
	h.SetMetadata(s.Metadata)
}

// GiveUp gives back, in the background, what was won: the caller never gets it. Keys with a custom token may belong to an
// earlier hold, so they expire with their ttl instead.
func (s *Single) GiveUp(ctx context.Context) {
	s.Doubtful = true
	s.Withdraw(ctx, s.abandoned, s.taken)
}

// End ends the obtain. Unless a try has won, it gives everything back in the background.
func (s *Single) End(ctx context.Context, panicked bool) {
	if panicked {
		s.Doubtful = true
	}
	if panicked || !s.won {
		s.Withdraw(ctx, s.abandoned, s.taken)
	}
	s.Waiter.QuitInbox()
}

// LastWord is how long an obtain waits for a call whose ctx has ended. Unless go-redis is reading the reply, it returns
// such a call at once, and a healthy server answers within this time. A round at several places also waits for so long
// before it counts a place as absent.
const LastWord = 2 * time.Millisecond

// hear reports whether an abandoned call ends within lastWord after all.
func hear(c *transport.Call) bool {
	timer := time.NewTimer(LastWord)
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
func (s *Single) fail(c *transport.Call) {
	if c.Ctx != nil && c.Ctx.Err() != nil && errors.Is(c.Err, c.Ctx.Err()) {
		c.Err = fault.ErrUnanswered
		if s.Failure != nil {
			return
		}
	}
	s.Failure = s.failed(c.Err)
}

// collect notes the results of abandoned tries that have ended by now. A waiter may abandon some every hour.
func (s *Single) collect() {
	s.abandoned = slices.DeleteFunc(s.abandoned, func(c *transport.Call) bool {
		if !fault.IsClosed(c.Done()) {
			return false
		}
		s.taken = append(s.taken, s.note(c)...)
		return true
	})
}
