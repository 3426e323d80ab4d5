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
	"github.com/redislock/redislock/internal/undo"
)

// Single makes the tries of an obtain at one place. It belongs to the goroutine of the caller. A try that is not answered
// when ctx ends is abandoned.
type Single struct {
	Attempt
	Progress

	won   bool      // a try was granted; the fields below are those of the lock
	since time.Time // before the keys were acquired
	valid lease.Lease
	fence int64
}

// Prepare sets what the tries ask for. Call it before the first one.
func (s *Single) Prepare(p *Place, o *script.Obtain) {
	s.Place, s.Obtain = p, *o
}

// Queue makes a refused try take a place in line. Call it before the first one. pace may be nil; see line.Waiter.
func (s *Single) Queue(pace retry.Strategy) { s.Waiter = s.Place.Lines.New(pace) }

// Await waits in line until the next try is due. It returns false if ctx ends first or the Client is closed first.
func (s *Single) Await(ctx context.Context) bool { return s.Waiter.Await(ctx, s.Place.set.Closed) }

// WaitForOwn waits for earlier work under the token, if that is a custom one: see undo.Cleanups.WaitForOwn.
func (s *Single) WaitForOwn(ctx context.Context) error {
	if !s.Custom {
		return nil
	}
	return s.Place.Cleanups.WaitForOwn(ctx, s.Token, s.Keys.Names, s.Waiter != nil && fault.HasDeadline(ctx))
}

// Try asks once for all keys. again says whether another try makes sense. It does after a refusal.
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

// grant notes a grant that was made after the time since, unless its validity is over already. Like Try, it says whether
// another try makes sense.
func (s *Single) grant(ctx context.Context, since time.Time, fence int64, taken []string) (again bool, err error) {
	valid := lease.Granted(since, s.TTL)
	if lease.Passed(valid.Until()) {
		return s.decline(ctx, since, taken)
	}
	s.won, s.since, s.valid, s.fence = true, since, valid, fence
	return false, nil
}

// decline gives back a grant whose reply came too late: its request was sent at the time since. decline returns an error
// that says so.
//
// One late grant may be chance: a pause of the process or of the server. The second one in a row ends the obtain, because
// answers take longer than the ttl lasts. Each late grant keeps the keys from others for a moment and, in line, takes the
// turn of the next waiter. A refusal that comes in time shows that answers can be fast enough, so the count begins again.
//
// With a random token, the next try uses a new token. So the old token can be released in the background, and no release can
// hit a later grant. decline releases all keys, because the grant may answer a resend whose first sending acquired them.
//
// A custom token stays the same, so the release must be answered before the next try. If it is not, there is no next try.
func (s *Single) decline(ctx context.Context, since time.Time, taken []string) (again bool, err error) {
	s.Waiter.TryAgain()
	s.Failure = fault.TooLate(since, s.TTL)
	s.Belated++
	again = s.Belated < MaxBelated
	if !s.Custom {
		back := s.ReleaseCall(ctx)
		if s.Waiter != nil { // an abandoned try may still enter the lines with the old token
			s.Waiter.Leave(back)
			s.Waiter.Renew()
		}
		s.Place.Cleanups.Sweep(undo.New(back, undo.Late, s.Keys.Names, s.TTL), 0, s.abandoned...)
		s.Token, s.Doubtful = NewToken(), false
		s.abandoned, s.Late, s.taken = nil, false, nil // all with the old token
		return again, s.Failure
	}
	if len(taken) == 0 { // all keys may belong to an earlier hold
		return again, s.Failure
	}
	back := s.Place.ReleaseCall(ctx, s.Token, script.Box(taken))
	back.GiveUp = time.Now().Add(s.TTL)
	before := s.taken
	s.taken = append(s.taken, taken...) // for Withdraw, if this fails or a hook panics
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

// Fill makes h the hold of the lock that was granted.
func (s *Single) Fill(h *Hold) {
	h.Place, h.Keys, h.Token, h.FenceKey = s.Place, s.Keys, s.Token, s.FenceKey
	h.Lease, h.Obtained = s.valid, s.TTL
	h.doubt(s.unanswered())
	h.Fence, h.Since, h.random = s.fence, s.since, !s.Custom
	h.SetMetadata(s.Metadata)
}

// GiveUp gives back, in the background, a lock that the caller never gets. Keys with a custom token may belong to an earlier
// hold, so they expire with their ttl instead.
func (s *Single) GiveUp(ctx context.Context) {
	s.Doubtful = true
	s.Withdraw(ctx)
}

// End ends the obtain. Unless a try was granted, it withdraws the obtain in the background.
func (s *Single) End(ctx context.Context, panicked bool) {
	if panicked {
		s.Doubtful = true
	}
	if panicked || !s.won {
		s.Withdraw(ctx)
	}
	s.Waiter.QuitInbox()
}

// LastWord is how long an obtain waits for a call whose ctx has ended. go-redis returns such a call at once, unless it is
// reading the reply, and a healthy server answers within this time. A round at several places also waits for LastWord before
// it counts a place as absent.
const LastWord = 2 * time.Millisecond

// hear reports whether a call whose ctx has ended is answered within LastWord after all.
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

// fail notes how a try has failed. If its error is only the end of its ctx, the try was still waiting for something, for
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

// collect notes the results of abandoned tries that have ended by now, because a wait of hours may abandon many.
func (s *Single) collect() {
	s.abandoned = slices.DeleteFunc(s.abandoned, func(c *transport.Call) bool {
		ended := fault.IsClosed(c.Done())
		if ended {
			s.note(c)
		}
		return ended
	})
}
