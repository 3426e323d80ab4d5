package place

import (
	"cmp"
	"context"
	"time"

	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Remains is what an obtain may have at one place: keys under its token, and a place in their lines. An obtain that ends
// without a lock must give them back.
type Remains struct {
	Place  *Place
	Keys   script.Keys
	Token  string
	TTL    time.Duration // the longest time for which the keys can last
	Waiter *line.Waiter  // nil if the obtain does not wait in line

	custom bool // the caller chose the token

	Doubtful bool // a sending with the token may have been executed without a reply
	Late     bool // a call with the token was granted too late to be relied on

	// Of tries that were abandoned without an answer; empty at several places.
	abandoned []*transport.Call // the tries that may still run
	taken     []string          // the keys that late grants of such tries newly acquired, and that must be given back
}

// Withdraw cleans up in the background after an obtain that has ended without a lock. It releases what the obtain may
// still have acquired or been handed, and gives up its place in line.
//
// A waiter's place is given up at once. Every obtain cleans up once more when its abandoned tries have ended, because a
// cleanup that overtook one of them would undo nothing. With a custom token, Withdraw releases only those keys that late
// replies report as newly acquired. If there is no room for another cleanup, the keys expire with their ttl, and the line
// passes over the waiter because it is silent.
func (r *Remains) Withdraw(ctx context.Context) {
	if r.Waiter.HasPlace() { // at once, because a release may hand the keys to the waiter meanwhile
		r.sendLeave(r.newLeave(ctx))
	}
	nothing := len(r.abandoned)+len(r.taken) == 0
	if nothing && (!r.Doubtful && !r.Late || r.custom) {
		return
	}
	rest := *r // belongs to the goroutine of the cleanup
	x := undo.New(r.ReleaseCall(ctx), undo.Abandoned, r.Keys.Names, r.TTL)
	rest.Place.Cleanups.Run(x, func() error {
		for _, c := range rest.abandoned {
			<-c.Done()
			rest.note(c)
		}
		var err error
		switch {
		case rest.custom:
			if script.Limit(x.Release, rest.taken); len(rest.taken) > 0 { // the other keys may belong to an earlier hold
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

// note notes the result of an abandoned try that has ended.
func (r *Remains) note(c *transport.Call) {
	r.Doubtful = r.Doubtful || c.Doubtful
	if c.Err != nil {
		return
	}
	g, err := script.ReadGrant(r.Keys.Names, c.Reply)
	r.Doubtful = r.Doubtful || err != nil
	r.Late = r.Late || g.Granted
	r.taken = append(r.taken, g.Taken...)
}

// PassDoubt passes to the claim of the lock that was made what is known of sendings that were never answered.
func (r *Remains) PassDoubt(to *Claim) {
	if u := r.unanswered(); u != nil {
		to.mu.Lock()
		defer to.mu.Unlock()
		to.unanswered = u
	}
}

// unanswered returns what may still arrive after the lock that was made is released; nil if each sending was answered.
func (r *Remains) unanswered() *Remains {
	if !r.Doubtful && len(r.abandoned) == 0 {
		return nil
	}
	rest := *r
	rest.taken = nil // these keys belong to the lock
	return &rest
}

// leaveLines gives up the waiter's place in line in the background, and keeps the keys.
func (r *Remains) leaveLines(ctx context.Context) {
	r.sendLeave(r.leaving(ctx, r.Keys.OnlyLines()))
}

// QuitLine ends the waiting in line, and keeps the keys.
func (r *Remains) QuitLine(ctx context.Context) {
	if r.Waiter.HasPlace() {
		r.leaveLines(ctx)
	}
	r.Waiter.QuitInbox()
}

// sendLeave sends a call that leaves the lines, in the background. It gives up when the line would pass over the waiter
// anyway. But a release may have handed the keys to the waiter before that, and they last for the ttl. So if c also releases
// keys, another cleanup goes on.
func (r *Remains) sendLeave(c *transport.Call) {
	place, keys, ttl := r.Place, r.Keys.Names, r.TTL
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
func (r *Remains) newLeave(ctx context.Context) *transport.Call {
	if r.custom {
		return r.leaving(ctx, r.Keys.OnlyLines())
	}
	return r.leaving(ctx, r.Keys)
}

// leaving returns an unsent call that takes the waiter out of the lines and releases the keys.
func (r *Remains) leaving(ctx context.Context, keys script.Keys) *transport.Call {
	c := r.Place.ReleaseCall(ctx, r.Token, keys)
	r.Waiter.Leave(c)
	c.GiveUp = time.Now().Add(r.Waiter.Life())
	c.Persist()
	return c
}

// ReleaseCall returns an unsent call that releases all keys.
func (r *Remains) ReleaseCall(ctx context.Context) *transport.Call {
	return r.Place.ReleaseCall(ctx, r.Token, r.Keys)
}
