package place

import (
	"cmp"
	"context"
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Withdraw cleans up in the background after an obtain that has ended without a lock. It releases what the obtain may
// still have acquired or been handed, and gives up its place in line. It does so at once for a waiter. For every
// obtain, it does so once more when the abandoned tries have ended, because a cleanup that overtook one of them would
// undo nothing. With a custom token, it releases only the keys in taken and those that a late reply reports as newly
// acquired. If there is no room for another cleanup, the keys expire with their ttl, and the waiter is passed over for its
// silence.
func (a *Attempt) Withdraw(ctx context.Context, abandoned []*transport.Call, taken []string) {
	if a.Waiter.HasPlace() { // at once, because a release may hand it the keys meanwhile
		a.sendLeave(a.newLeave(ctx))
	}
	nothing := len(abandoned)+len(taken) == 0
	if nothing && (!a.Doubtful && !a.Late || a.Custom) {
		return
	}
	rest, gone := *a, taken // for the goroutine of the cleanup
	x := undo.New(a.ReleaseCall(ctx), undo.Abandoned, a.Keys.Names, a.TTL)
	rest.Place.Cleanups.Run(x, func() error {
		for _, c := range abandoned {
			<-c.Done()
			gone = append(gone, rest.note(c)...)
		}
		var err error
		switch {
		case rest.Custom:
			if script.Limit(x.Release, gone); len(gone) > 0 { // the rest may belong to an earlier hold
				_, err = rest.Place.Cleanups.SendRelease(x)
			}
		case rest.Late || rest.Doubtful:
			if rest.Waiter.HasPlace() {
				rest.Waiter.Leave(x.Release)
			}
			x.Again = rest.Doubtful
			return rest.Place.Cleanups.SweepNow(x)
		}
		if rest.Waiter.HasPlace() {
			c := rest.newLeave(ctx)
			rest.Place.Redis.Send(c)
			err = cmp.Or(err, c.Err)
		}
		return err
	})
}

// note notes the result of an abandoned try that has ended. It returns the keys that the try newly acquired.
func (a *Attempt) note(c *transport.Call) (taken []string) {
	a.Doubtful = a.Doubtful || c.Doubtful
	if c.Err != nil {
		return nil
	}
	g, err := script.ReadGrant(a.Keys.Names, c.Reply)
	a.Doubtful = a.Doubtful || err != nil
	a.Late = a.Late || g.Granted
	return g.Taken
}

// unansweredTries returns what is known of sendings that were not answered, also those of abandoned tries; nil if each was.
func (a *Attempt) unansweredTries(abandoned []*transport.Call) *unanswered {
	if !a.Doubtful && len(abandoned) == 0 {
		return nil
	}
	return &unanswered{waiter: a.Waiter, tries: abandoned, custom: a.Custom}
}

// leaveLines gives up the waiter's place in line in the background, and keeps the keys.
func (a *Attempt) leaveLines(ctx context.Context) {
	a.sendLeave(a.leaving(ctx, a.Keys.OnlyLines()))
}

// QuitLine ends the wait in line, and keeps the keys.
func (a *Attempt) QuitLine(ctx context.Context) {
	if a.Waiter.HasPlace() {
		a.leaveLines(ctx)
	}
	a.Waiter.QuitInbox()
}

// sendLeave sends, in the background, a call that leaves the lines. It gives up when the waiter would be passed over
// anyway. But a release may have handed it the keys before that, and they last for the ttl: so if the call was to free them,
// another cleanup goes on.
func (a *Attempt) sendLeave(c *transport.Call) {
	place, keys, ttl := a.Place, a.Keys.Names, a.TTL
	x := undo.New(c, undo.Line, nil, 0)
	x.About = keys
	place.Cleanups.Run(x, func() error {
		place.Redis.Send(c)
		if len(c.Keys) > 0 && c.Err != nil && !transport.IsFinal(c.Err) {
			rest := undo.New(place.set.Scripts.ReleaseAgain(c), undo.Abandoned, keys, ttl)
			rest.Release.Ctx = c.Ctx
			place.Cleanups.Sweep(rest, 0)
		}
		return c.Err
	})
}

// newLeave returns an unsent call that takes the waiter out of the lines and releases what it was handed. A waiter with
// a custom token was handed nothing, and its keys may belong to an earlier hold.
func (a *Attempt) newLeave(ctx context.Context) *transport.Call {
	if a.Custom {
		return a.leaving(ctx, a.Keys.OnlyLines())
	}
	return a.leaving(ctx, a.Keys)
}

// leaving returns an unsent call that takes the waiter out of the lines and releases the keys.
func (a *Attempt) leaving(ctx context.Context, keys script.Keys) *transport.Call {
	c := a.Place.ReleaseCall(ctx, a.Token, keys)
	a.Waiter.Leave(c)
	c.GiveUp = time.Now().Add(a.Waiter.Life())
	c.Persist()
	return c
}

// ReleaseCall returns an unsent call that releases all keys.
func (a *Attempt) ReleaseCall(ctx context.Context) *transport.Call {
	return a.Place.ReleaseCall(ctx, a.Token, a.Keys)
}
