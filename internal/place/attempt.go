package place

import (
	"context"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Attempt is what an obtain asks for, and what it may have: keys under its token, and a position in their lines. An obtain
// that ends without a lock must give them back. An Attempt belongs to one goroutine at a time. Tries makes all tries of an
// obtain with one Attempt.
type Attempt struct {
	script.Obtain

	Place  *Place
	Waiter *line.Waiter // nil if the obtain does not wait in line

	Rest claim.Rest // TryOnce abandons only calls that were lost; see send
	Late bool       // a call with the token was granted too late to be relied on

	opens time.Time // when a guard opens, by the last answer; zero while it is open

	earlier []*transport.Call // the strays of earlier rounds, which may put the waiter into a line
}

// fillObtain makes c a call of obtain, for a try with that ctx.
func (a *Attempt) fillObtain(ctx context.Context, c *transport.Call) {
	a.Place.set.Scripts.Obtain(c, &a.Obtain)
	if a.Waiter != nil {
		a.Waiter.Begin(ctx, &a.Obtain, c)
	}
}

// send sends a call of obtain until ctx ends. It returns the last call, and whether that has finished. If the connection of
// a call has died, send abandons that call, and goes on with another one at once. It does not do so with a custom token:
// what the abandoned call acquires late may belong to somebody else by then.
func (a *Attempt) send(ctx context.Context, c *transport.Call) (*transport.Call, bool) {
	if a.Custom || a.Mends {
		return c, a.Place.Redis.Do(ctx, c)
	}
	return a.Place.Redis.DoAnew(ctx, c, func(left, _ *transport.Call) {
		a.Rest.Strays = append(a.Rest.Strays, left)
	})
}

// read returns the grant of a call that was answered. It returns ErrNotObtained if the call was refused.
func (a *Attempt) read(ctx context.Context, c *transport.Call) (script.Grant, error) {
	g, err := script.ReadGrant(a.Keys.Names, c.Reply)
	if a.opens = (time.Time{}); !g.Closure.IsOver() {
		a.opens = time.Now().Add(g.Closure.For)
		a.Place.noteClosure(c.Ctx, g.Closure)
	}
	switch {
	case err != nil:
		a.Rest.Doubtful = true
		return g, fault.Failed("obtain", a.Keys.Names, err)
	case !g.Granted:
		if a.Waiter != nil {
			a.Waiter.Refuse(c.Sent, &g)
		}
		return g, fault.ErrNotObtained
	}
	if a.Waiter != nil && c.Spare == nil {
		a.leave(ctx) // the script could not reach the lines, so it has not taken the waiter out of them
	}
	return g, nil
}

// failed returns the error of a call that was not answered, or was answered with an error.
func (a *Attempt) failed(err error) error {
	return fault.Failed("obtain", a.Keys.Names, fault.WithHint(script.WithFence(a.Keys.Names, a.FenceKey), err))
}

// Granted is what TryOnce was granted.
type Granted struct {
	Since time.Time // when the request was sent
	Fence int64     // 0 for none
}

// TryOnce asks once for all keys. It returns when the call has ended, however long that takes, so it needs a goroutine of
// its own. ctx must not end. TryOnce returns ErrNotObtained if the call was refused, and an error that matches
// ErrNotObtained if the grant came too late.
//
// TryOnce does not release a grant that came too late. It sets Late, and leaves the release to its caller, who may use the
// token again: a release that is sent twice could free what the next call with the token acquires. It also returns the call
// that was answered, mostly c.
func (a *Attempt) TryOnce(ctx context.Context, c *transport.Call) (*transport.Call, Granted, error) {
	if a.Waiter != nil {
		done, _ := a.Waiter.Admit(ctx, a.Place.set.Closed, len(a.Keys.Names)) // nothing is handed to a waiter with a Proposal
		if done == nil {
			return c, Granted{}, fault.ErrClosed
		}
		defer done()
	}
	a.fillObtain(ctx, c)
	c.GiveUp, c.Ctx = time.Now().Add(a.TTL), ctx
	c, _ = a.send(ctx, c)
	a.Rest.Doubtful = a.Rest.Doubtful || c.Doubtful
	if c.Err != nil {
		return c, Granted{}, a.failed(c.Err)
	}
	g, err := a.read(ctx, c)
	if err != nil {
		return c, Granted{}, err
	}
	if lease.Passed(lease.ValidUntil(c.Sent, a.TTL)) {
		a.Waiter.TryAgain()
		a.Late = true
		err = fault.TooLate(c.Sent, a.TTL)
	}
	return c, Granted{c.Sent, g.Fence}, err
}

// IsClosed reports whether a guard has refused the last try.
func (a *Attempt) IsClosed() bool { return !a.opens.IsZero() }

// ClosedFor returns for how long a guard that has refused the last try still refuses every obtain; 0 if it does not.
func (a *Attempt) ClosedFor() time.Duration {
	if !a.IsClosed() {
		return 0
	}
	return max(0, time.Until(a.opens).Round(time.Millisecond))
}

// Blocker returns what blocks the attempt. Unless the last answer says that a guard does, it asks; see Place.Blocker.
func (a *Attempt) Blocker(ctx context.Context) script.Blocker {
	if closed := a.ClosedFor(); closed > 0 {
		return script.Blocker{Closed: closed}
	}
	return a.Place.Blocker(ctx, a.Keys, a.Token, a.Waiter.LastTicket())
}

// MaxBelated is how many grants in a row may come too late.
const MaxBelated = 2

// Progress is what is known of the tries of an obtain so far.
type Progress struct {
	Limited bool  // ctx ends after one ttl, because the caller set no deadline
	Tried   int   // how many there were
	Resends int   // how many resends they needed
	Belated int8  // how many grants in a row came too late; see Tries.decline
	Failure error // how the last try failed, wrapped; nil if it was granted or refused
}

// Unanswered returns the error of a try that began at that time and was not answered by the end of its ctx.
func (p *Progress) Unanswered(began time.Time, ttl time.Duration) error {
	if p.Limited && lease.Passed(lease.ValidUntil(began, ttl)) {
		return fmt.Errorf("%w within the ttl of %v: %w", fault.ErrUnanswered, ttl, fault.ErrLapsed)
	}
	return fault.ErrUnanswered
}
