package place

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Withdraw cleans up in the background after an obtain that has ended without a lock. It releases what the obtain may
// still have acquired or been handed, and gives up its position in line.
//
// A waiter's position is given up at once. Every obtain cleans up once more when its abandoned tries have ended, because a
// cleanup that overtook one of them would undo nothing. With a custom token, Withdraw releases only those keys that late
// replies report as newly acquired. If there is no room for another cleanup, the keys expire with their ttl, and the line
// passes over the waiter because it is silent.
func (a *Attempt) Withdraw(ctx context.Context) {
	if a.Waiter.HasPosition() { // at once, because a release may hand the keys to the waiter meanwhile
		a.sendLeave(a.newLeave(ctx))
	}
	nothing := len(a.abandoned)+len(a.taken) == 0
	if nothing && (!a.Doubtful && !a.Late || a.Custom) {
		return
	}
	rest := *a // belongs to the goroutine of the cleanup
	x := undo.New(a.ReleaseCall(ctx), undo.Abandoned, a.Keys.Names, a.TTL)
	rest.Place.Cleanups.Run(x, func() error {
		for _, c := range rest.abandoned {
			<-c.Done()
			rest.note(c)
		}
		var err error
		switch {
		case rest.Custom:
			if script.Limit(x.Release, rest.taken); len(rest.taken) > 0 { // the other keys may belong to an earlier hold
				_, err = rest.Place.Cleanups.SendRelease(x)
			}
		case rest.Late || rest.Doubtful:
			if rest.Waiter.HasPosition() {
				rest.Waiter.Leave(x.Release)
			}
			x.Again = rest.Doubtful
			return rest.Place.Cleanups.SweepNow(x)
		}
		if rest.Waiter.HasPosition() {
			c := rest.newLeave(ctx)
			rest.Place.Redis.Send(c)
			err = cmp.Or(err, c.Err)
		}
		return err
	})
}

// note notes the result of an abandoned try that has ended.
func (a *Attempt) note(c *transport.Call) {
	a.Doubtful = a.Doubtful || c.Doubtful
	if c.Err != nil {
		return
	}
	g, err := script.ReadGrant(a.Keys.Names, c.Reply)
	a.Doubtful = a.Doubtful || err != nil
	a.Late = a.Late || g.Granted
	a.taken = append(a.taken, g.Taken...)
}

// unanswered returns what may still arrive after the lock that was made is released; nil if each sending was answered.
func (a *Attempt) unanswered() *Attempt {
	if !a.Doubtful && len(a.abandoned) == 0 {
		return nil
	}
	rest := *a
	rest.taken = nil // these keys belong to the lock
	return &rest
}

// leaveLines gives up the waiter's position in line in the background, and keeps the keys.
func (a *Attempt) leaveLines(ctx context.Context) {
	a.sendLeave(a.leaving(ctx, a.Keys.OnlyLines()))
}

// leaveLater gives up the position in line once more, when the tries have ended that were lost and may take it again.
func (a *Attempt) leaveLater(ctx context.Context) {
	strays := slices.Concat(a.earlier, a.abandoned)
	if !a.Waiter.HasPosition() || len(strays) == 0 {
		return
	}
	rest := *a // belongs to the goroutine of the cleanup
	x := undo.New(rest.leaving(ctx, rest.Keys.OnlyLines()), undo.Line, nil, 0)
	x.About = rest.Keys.Names
	rest.Place.Cleanups.Run(x, func() error {
		for _, c := range strays {
			<-c.Done()
		}
		x.Release.GiveUp = time.Now().Add(rest.Waiter.Life())
		rest.Place.Redis.Send(x.Release)
		return x.Release.Err
	})
}

// QuitLine ends the waiting in line, and keeps the keys.
func (a *Attempt) QuitLine(ctx context.Context) {
	if a.Waiter.HasPosition() {
		a.leaveLines(ctx)
	}
	a.leaveLater(ctx)
	a.Waiter.QuitInbox()
}

// sendLeave sends a call that leaves the lines, in the background. It gives up when the line would pass over the waiter
// anyway. But a release may have handed the keys to the waiter before that, and they last for the ttl. So if c also releases
// keys, another cleanup goes on.
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

// newLeave returns an unsent call that takes the waiter out of the lines and releases what a release has handed to it. To a
// waiter with a custom token nothing is handed, and its keys may belong to an earlier hold.
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
