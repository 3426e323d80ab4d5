package redislock

import (
	"cmp"
	"context"
	"time"

	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// remains is what an obtain may have at one place: keys under its token, and a place in their lines. If the obtain ends
// without a lock, it must give them back.
type remains struct {
	place  *place
	keys   script.Keys
	token  string
	custom bool          // the caller chose the token
	ttl    time.Duration // for how long the keys can last
	waiter *line.Waiter  // nil if the obtain does not wait in line

	doubtful bool // a sending with the token may have been executed without a reply
	late     bool // a call with the token was granted, but nobody could rely on that any more
}

// withdraw cleans up in the background after an obtain that has ended without a lock. It releases what the obtain may
// still have acquired or been handed, and gives up its place in line. It does so at once for a waiter. For every
// obtain, it does so once more when the abandoned tries have ended, because a cleanup that overtook one of them would
// undo nothing. With a custom token, it releases only the keys in taken and those that a late reply reports as newly
// acquired. If there is no room for another cleanup, the keys expire with their ttl, and the waiter is passed over for its
// silence.
func (r *remains) withdraw(ctx context.Context, abandoned []*transport.Call, taken []string) {
	if r.waiter.HasPlace() { // at once, because a release may hand it the keys meanwhile
		r.sendLeave(r.newLeave(ctx))
	}
	nothing := len(abandoned)+len(taken) == 0
	if nothing && (!r.doubtful && !r.late || r.custom) {
		return
	}
	rest, gone := *r, taken // for the goroutine of the cleanup
	x := undo.New(r.newRelease(ctx), WhyAbandoned, r.keys.Names, r.ttl)
	rest.place.cleanups.Run(x, func() error {
		for _, c := range abandoned {
			<-c.Done()
			gone = append(gone, rest.note(c)...)
		}
		var err error
		switch {
		case rest.custom:
			if script.Limit(x.Release, gone); len(gone) > 0 { // the rest may belong to an earlier hold
				_, err = rest.place.cleanups.SendRelease(x)
			}
		case rest.late || rest.doubtful:
			if rest.waiter.HasPlace() {
				rest.waiter.Leave(x.Release)
			}
			x.Again = rest.doubtful
			return rest.place.cleanups.SweepNow(x)
		}
		if rest.waiter.HasPlace() {
			c := rest.newLeave(ctx)
			rest.place.redis.Send(c)
			err = cmp.Or(err, c.Err)
		}
		return err
	})
}

// note notes the result of an abandoned try that has ended. It returns the keys that the try newly acquired.
func (r *remains) note(c *transport.Call) (taken []string) {
	r.doubtful = r.doubtful || c.Doubtful
	if c.Err != nil {
		return nil
	}
	g, err := script.ReadGrant(r.keys.Names, c.Reply)
	r.doubtful = r.doubtful || err != nil
	r.late = r.late || g.Granted
	return g.Taken
}

// unansweredTries returns what is known of sendings that were not answered, also those of abandoned tries; nil if each was.
func (r *remains) unansweredTries(abandoned []*transport.Call) *unanswered {
	if !r.doubtful && len(abandoned) == 0 {
		return nil
	}
	return &unanswered{waiter: r.waiter, tries: abandoned, custom: r.custom}
}

// leaveLines gives up the waiter's place in line in the background, and keeps the keys.
func (r *remains) leaveLines(ctx context.Context) {
	r.sendLeave(r.leaving(ctx, r.keys.OnlyLines()))
}

// quitLine ends the wait in line, and keeps the keys.
func (r *remains) quitLine(ctx context.Context) {
	if r.waiter.HasPlace() {
		r.leaveLines(ctx)
	}
	r.waiter.QuitInbox()
}

// sendLeave sends, in the background, a call that leaves the lines. It gives up when the waiter would be passed over
// anyway. But a release may have handed it the keys before that, and they last for the ttl: so if the call was to free them,
// another cleanup goes on.
func (r *remains) sendLeave(c *transport.Call) {
	place, keys, ttl := r.place, r.keys.Names, r.ttl
	x := undo.New(c, WhyLine, nil, 0)
	x.About = keys
	place.cleanups.Run(x, func() error {
		place.redis.Send(c)
		if len(c.Keys) > 0 && c.Err != nil && !transport.IsFinal(c.Err) {
			rest := undo.New(place.scripts.ReleaseAgain(c), WhyAbandoned, keys, ttl)
			rest.Release.Ctx = c.Ctx
			place.cleanups.Sweep(rest, 0)
		}
		return c.Err
	})
}

// newLeave returns an unsent call that takes the waiter out of the lines and releases what it was handed. A waiter with
// a custom token was handed nothing, and its keys may belong to an earlier hold.
func (r *remains) newLeave(ctx context.Context) *transport.Call {
	if r.custom {
		return r.leaving(ctx, r.keys.OnlyLines())
	}
	return r.leaving(ctx, r.keys)
}

// leaving returns an unsent call that takes the waiter out of the lines and releases the keys.
func (r *remains) leaving(ctx context.Context, keys script.Keys) *transport.Call {
	c := r.place.newRelease(ctx, r.token, keys)
	r.waiter.Leave(c)
	c.GiveUp = time.Now().Add(r.waiter.Life())
	c.Persist()
	return c
}

// newRelease returns an unsent call that releases all keys.
func (r *remains) newRelease(ctx context.Context) *transport.Call {
	return r.place.newRelease(ctx, r.token, r.keys)
}
