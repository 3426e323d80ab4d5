package place

import (
	"context"
	"slices"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Withdraw frees, in the background, what an obtain that has ended without a lock may still have acquired or been
// handed, and gives up its position in line. With a custom token, it frees only those keys that late replies report as
// newly acquired.
func (a *Attempt) Withdraw(ctx context.Context) {
	rest, why := a.Rest, claim.Abandoned
	if a.Late {
		rest.Taken = a.Keys.Names
	}
	switch empty := rest.IsEmpty(); {
	case a.Custom:
		a.leave(ctx, a.Rest.Strays...) // nothing was handed to the waiter
		if empty {
			return
		}
		rest.Taken = a.Rest.Taken
	case a.Waiter.HasPosition():
		rest.Line = a.position()
		rest.Strays = slices.Concat(a.earlier, rest.Strays)
		if empty {
			why = claim.Line
		}
	case empty:
		return
	}
	a.claim(a.Keys, rest).Drop(ctx, claim.Terms{Why: why}, a.Keys.Names)
}

// origin returns where the token of the obtain is from.
func (a *Attempt) origin() claim.Origin {
	if a.Custom {
		return claim.Custom
	}
	return claim.Random
}

// position returns the position of the waiter in line.
func (a *Attempt) position() claim.Position {
	return claim.Position{Entry: a.Waiter.Entry(), Stays: a.Waiter.Stays()}
}

// claim returns a claim of the token on keys, which is for what the obtain has left behind.
func (a *Attempt) claim(keys script.Keys, rest claim.Rest) *claim.Claim {
	c := &claim.Claim{Ledger: &a.Place.Ledger, Keys: keys, Token: a.Token, Origin: a.origin(), Lasts: a.TTL}
	if rest.Line.Entry != "" {
		c.Lasts = max(c.Lasts, a.Waiter.LeaveLasts())
	}
	c.Take(rest)
	return c
}

// leave gives up the position in line in the background, and keeps the keys. It does so once more when the strays have
// ended.
func (a *Attempt) leave(ctx context.Context, strays ...*transport.Call) {
	if !a.Waiter.HasPosition() {
		return
	}
	c := a.claim(a.Keys.OnlyLines(), claim.Rest{Strays: slices.Concat(a.earlier, strays), Line: a.position()})
	c.Origin, c.Lasts = claim.Random, a.Waiter.LeaveLasts() // it has no keys that could be of another hold
	c.Drop(ctx, claim.Terms{Why: claim.Line}, a.Keys.Names)
}

// passRest makes a hold responsible for what the obtain has left behind. The keys that it has taken are those of the hold.
func (a *Attempt) passRest(ctx context.Context, to *Hold) {
	rest := a.Rest
	if rest.Taken = nil; rest.IsEmpty() {
		return
	}
	if a.Custom {
		a.leave(ctx, rest.Strays...)
	} else if a.Waiter.HasPosition() {
		rest.Line = a.position()
	}
	to.Take(rest)
}

// The methods below are for an obtain that makes its tries in rounds, each with a random token of its own, and may give back
// what a round was granted.

// QueueWith makes a refused try wait in line; see line.Lines.NewWith. Call it before the first try.
func (a *Attempt) QueueWith(woken chan struct{}, number int64) {
	a.Waiter = a.Place.Lines.NewWith(woken, number)
}

// Begin prepares the next round, with that token. It frees, in the background, what the round before may have acquired
// unnoticed.
func (a *Attempt) Begin(ctx context.Context, token string, proposal int64) {
	if !a.Rest.IsEmpty() {
		a.claim(a.Keys, a.Rest).Drop(ctx, claim.Terms{Why: claim.Abandoned}, a.Keys.Names)
	}
	a.forget()
	a.Token, a.Proposal = token, proposal
}

// forget hands the strays of a round on to the end of the waiting in line.
func (a *Attempt) forget() {
	if a.Waiter != nil { // a wait of hours may lose many tries
		hasEnded := func(c *transport.Call) bool { return fault.IsClosed(c.Done()) }
		a.earlier = slices.DeleteFunc(append(a.earlier, a.Rest.Strays...), hasEnded)
	}
	a.Rest = claim.Rest{}
}

// StepBack ends a round without a lock. In the background, it releases the keys if they were granted, and puts the waiter
// back into its lines if there is a common ticket; 0 is none. It calls done when that was answered, or will not be.
// StepBack reports false if there is nothing to do, and then it does not call done.
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
	first := a.Place.Ledger.Release(ctx, a.Token, keys)
	if stays {
		a.Waiter.StepBack(first)
	}
	c := a.claim(a.Keys, a.Rest)
	a.Late = false
	a.forget()
	c.StepBack(first, done)
	return true
}

// Drop gives up, in the background, all that the attempt may have; granted says that it has the keys. The obtain has ended.
func (a *Attempt) Drop(ctx context.Context, granted bool) {
	a.Late = a.Late || granted
	a.Withdraw(ctx)
	a.Waiter.QuitInbox()
	a.Waiter, a.Rest, a.Late, a.earlier = nil, claim.Rest{}, false, nil
}

// PassRest ends an attempt of the round that has made a lock. granted says that the place has granted it.
func (a *Attempt) PassRest(ctx context.Context, to *Hold, granted bool) {
	a.passRest(ctx, to)
	if !granted || len(a.earlier)+len(a.Rest.Strays) > 0 {
		a.leave(ctx, a.Rest.Strays...)
	}
	a.Waiter.QuitInbox()
}
