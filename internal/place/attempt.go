package place

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Attempt is what an obtain asks for at one place, and what it may have there: keys under its token, and a place in their
// lines. If the obtain ends without a lock, the attempt must give them back. It belongs to one goroutine at a time. An obtain
// at one place makes its tries with one attempt; an obtain at several places has one for each of them, and so has each mend
// of one of them.
type Attempt struct {
	script.Obtain

	Place  *Place
	Waiter *line.Waiter // nil if the obtain does not wait in line

	Doubtful bool // a sending with the token may have been executed without a reply
	Late     bool // a call with the token was granted, but nobody could rely on that any more
}

// fillObtain makes c a call of obtain.
func (a *Attempt) fillObtain(c *transport.Call) {
	a.Place.set.Scripts.Obtain(c, &a.Obtain)
	if a.Waiter != nil {
		a.Waiter.Begin(&a.Obtain, c)
	}
}

// read returns the grant of a call that was answered. It returns ErrNotObtained if the call was refused.
func (a *Attempt) read(ctx context.Context, c *transport.Call) (script.Grant, error) {
	g, err := script.ReadGrant(a.Keys.Names, c.Reply)
	switch {
	case err != nil:
		a.Doubtful = true
		return g, fault.Failed("obtain", a.Keys.Names, err)
	case !g.Granted:
		if a.Waiter != nil {
			a.Waiter.Refuse(c.Sent, &g)
		}
		return g, fault.ErrNotObtained
	}
	a.Waiter.Granted()
	if a.Waiter != nil && c.Spare == nil {
		a.leaveLines(ctx) // the script could not reach the lines, so it has not taken the waiter out of them
	}
	return g, nil
}

// failed returns the error of a call that was not answered, or was answered with an error.
func (a *Attempt) failed(err error) error {
	return fault.Failed("obtain", a.Keys.Names, fault.WithHint(script.WithFence(a.Keys.Names, a.FenceKey), err))
}

// Granted is what one of several places has granted.
type Granted struct {
	Since time.Time // when the request was sent
	Fence int64     // 0 for none
}

// TryHere asks once at one of several places. It returns when the call has ended, however long that takes: nobody waits for
// it. ctx must not end. It returns ErrNotObtained if the place has refused, and an error that matches it if the grant came
// too late.
//
// TryHere does not release a grant that came too late. It sets Late, and leaves the release to the round, or to the lock if
// that is made already. Either of them may use the token at this place again, and a release that is sent twice could free
// what the next call with the token acquires.
func (a *Attempt) TryHere(ctx context.Context, c *transport.Call) (Granted, error) {
	if a.Waiter != nil {
		done, _ := a.Waiter.Admit(ctx, a.Place.set.Closed, len(a.Keys.Names)) // nothing is handed over at several places
		if done == nil {
			return Granted{}, fault.ErrClosed
		}
		defer done()
	}
	a.fillObtain(c)
	c.GiveUp, c.Ctx = time.Now().Add(a.TTL), ctx
	a.Place.Redis.Do(ctx, c)
	a.Doubtful = a.Doubtful || c.Doubtful
	if c.Err != nil {
		return Granted{}, a.failed(c.Err)
	}
	g, err := a.read(ctx, c)
	if err != nil {
		return Granted{}, err
	}
	if lease.Passed(lease.ValidUntil(c.Sent, a.TTL)) {
		a.Waiter.TryAgain()
		a.Late = true
		err = fault.TooLate(c.Sent, a.TTL)
	}
	return Granted{c.Sent, g.Fence}, err
}

// Blocker asks what blocks the attempt.
func (a *Attempt) Blocker(ctx context.Context) script.Blocker {
	return a.Place.Blocker(ctx, a.Keys.Names, a.Token, a.Waiter.LastTicket())
}
