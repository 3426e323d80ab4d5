package place

import (
	"context"
	"slices"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// The methods in this file are for an obtain that makes its tries in rounds, each with a random token of its own, and may
// give back what a round was granted.

// QueueWith makes a refused try wait in line; see line.Lines.NewWith. Call it before the first try.
func (a *Attempt) QueueWith(woken chan struct{}, number int64) {
	a.Waiter = a.Place.Lines.NewWith(woken, number)
}

// Begin prepares the next round, with that token. It releases, in the background, what the round before may have acquired
// unnoticed.
func (a *Attempt) Begin(ctx context.Context, token string, proposal int64) {
	if a.Doubtful { // also if a try was lost
		a.Place.Cleanups.Sweep(undo.New(a.ReleaseCall(ctx), undo.Abandoned, a.Keys.Names, a.TTL), 0, a.abandoned...)
	}
	if a.Waiter != nil { // a wait of hours may lose many tries
		hasEnded := func(c *transport.Call) bool { return fault.IsClosed(c.Done()) }
		a.earlier = slices.DeleteFunc(append(a.earlier, a.abandoned...), hasEnded)
	}
	a.Token, a.Proposal, a.Doubtful, a.abandoned = token, proposal, false, nil
}

// StepBack ends a round without a lock. In the background, it releases the keys if they were granted, and puts the waiter
// back into its lines if there is a common ticket; 0 is none. It calls done when that has ended. StepBack reports false if
// there is nothing to do, or no room for it, and then it does not call done.
func (a *Attempt) StepBack(ctx context.Context, granted bool, ticket int64, done func()) bool {
	keys := a.Keys.OnlyLines()
	if granted || a.Late {
		keys = a.Keys // none is of an earlier hold, because the token is new
	}
	stays := a.Waiter.HasPosition() && ticket > 0
	moved := stays && a.Waiter.TakeTicket(ticket)
	if !granted && !moved && len(keys.Names) == 0 {
		return false
	}
	a.Late = false
	c := a.Place.ReleaseCall(ctx, a.Token, keys)
	if stays {
		a.Waiter.StepBack(c)
	}
	x := undo.New(c, undo.Step, keys.Names, a.TTL)
	return a.Place.Cleanups.Run(x, func() error {
		_, err := a.Place.Cleanups.SendRelease(x)
		done()
		return err
	})
}

// Drop gives up, in the background, all that the attempt may have; granted says that it has the keys. The obtain has ended.
func (a *Attempt) Drop(ctx context.Context, granted bool) {
	a.Late = a.Late || granted
	a.leaveLater(ctx)
	a.Withdraw(ctx)
	a.Waiter.QuitInbox()
	a.Waiter, a.Doubtful, a.Late, a.abandoned = nil, false, false, nil
}

// PassDoubt ends an attempt whose keys belong to a lock now: the claim takes over what is known of sendings that were not
// answered.
func (a *Attempt) PassDoubt(ctx context.Context, to *Claim) {
	to.doubt(a.unanswered())
	a.leaveLater(ctx)
	a.Waiter.QuitInbox()
}
