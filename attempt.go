package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// attempt is what a lock is asked for at one place. It belongs to one goroutine at a time. An obtain at one place makes its
// tries with one attempt; an obtain at several places has one for each of them, and so has each repair of one of them.
type attempt struct {
	remains

	metadata string
	fenceKey string // "" for no fencing token
	proposal int64  // of a fencing token and of a ticket, for several places to agree on, in µs since 1970; 0 for none
}

// fillObtain makes c a call of obtain.
func (a *attempt) fillObtain(c *transport.Call) {
	o := script.Obtain{
		Keys: a.keys, Token: a.token, Custom: a.custom, Metadata: a.metadata, TTL: a.ttl, FenceKey: a.fenceKey,
		Proposal: a.proposal,
	}
	a.place.scripts.Obtain(c, &o)
	if a.waiter != nil {
		a.waiter.Begin(&o, c)
	}
}

// read returns the grant of a call that was answered. It returns ErrNotObtained if the call was refused.
func (a *attempt) read(ctx context.Context, c *transport.Call) (script.Grant, error) {
	g, err := script.ReadGrant(a.keys.Names, c.Reply)
	switch {
	case err != nil:
		a.doubtful = true
		return g, fault.Failed("obtain", a.keys.Names, err)
	case !g.Granted:
		if a.waiter != nil {
			a.waiter.Refuse(c.Sent, &g)
		}
		return g, ErrNotObtained
	}
	a.waiter.Granted()
	if a.waiter != nil && c.Spare == nil {
		a.leaveLines(ctx) // the script could not reach the lines, so it has not taken the waiter out of them
	}
	return g, nil
}

// fill makes h the hold of a grant.
func (a *attempt) fill(h *hold, since time.Time, valid lease.Lease, fence int64) {
	h.place, h.keys, h.token, h.fenceKey = a.place, a.keys, a.token, a.fenceKey
	h.lease, h.obtained = valid, a.ttl
	h.Fence, h.Since, h.Random = fence, since, !a.custom
	h.SetMetadata(a.metadata)
}

// failed returns the error of a call that was not answered, or was answered with an error.
func (a *attempt) failed(err error) error {
	return fault.Failed("obtain", a.keys.Names, fault.WithHint(script.WithFence(a.keys.Names, a.fenceKey), err))
}

// granted is what one of several places has granted.
type granted struct {
	since time.Time // when the request was sent
	fence int64     // 0 for none
}

// tryHere asks once at one of several places. It returns when the call has ended, however long that takes: nobody waits for
// it. ctx must not end. It returns ErrNotObtained if the place has refused, and an error that matches it if the grant came
// too late.
//
// tryHere does not release a grant that came too late. It sets late, and leaves the release to the round, or to the lock if
// that is made already. Either of them may use the token at this place again, and a release that is sent twice could free
// what the next call with the token acquires.
func (a *attempt) tryHere(ctx context.Context, c *transport.Call) (granted, error) {
	if a.waiter != nil {
		done, _ := a.waiter.Admit(ctx, a.place.closed, len(a.keys.Names)) // nothing is handed over at several places
		if done == nil {
			return granted{}, ErrClosed
		}
		defer done()
	}
	a.fillObtain(c)
	c.GiveUp, c.Ctx = time.Now().Add(a.ttl), ctx
	a.place.redis.Do(ctx, c)
	a.doubtful = a.doubtful || c.Doubtful
	if c.Err != nil {
		return granted{}, a.failed(c.Err)
	}
	g, err := a.read(ctx, c)
	if err != nil {
		return granted{}, err
	}
	if lease.Passed(lease.ValidUntil(c.Sent, a.ttl)) {
		a.waiter.TryAgain()
		a.late = true
		err = fault.TooLate(c.Sent, a.ttl)
	}
	return granted{c.Sent, g.Fence}, err
}
