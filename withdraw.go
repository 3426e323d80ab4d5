package redislock

import (
	"cmp"
	"context"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// withdraw cleans up in the background after an obtain that has ended without a lock. It releases what the obtain may
// still have acquired or been handed, and gives up its place in line. It does so at once for a waiter. For every
// obtain, it does so once more when the abandoned tries have ended, because a cleanup that overtook one of them would
// undo nothing. With a custom token, it releases only what a late reply reports as newly acquired. If there is no room for
// another cleanup, the keys expire with their ttl, and the waiter is passed over for its silence.
func (o *obtaining) withdraw(ctx context.Context) {
	if o.waiter.hasPlace() { // at once, because a release may hand it the keys meanwhile
		o.sendLeave(o.newLeave(ctx))
	}
	nothing := len(o.abandoned)+len(o.taken) == 0
	if nothing && (!o.doubtful && !o.late || o.custom) {
		return
	}
	rest := *o // for the goroutine of the cleanup
	x := newCleanup(o.newRelease(ctx), WhyAbandoned, o.keys, o.ttl)
	rest.place.inBackground(x, func() error {
		for _, c := range rest.abandoned {
			<-c.Done()
			rest.note(c)
		}
		var err error
		switch {
		case rest.custom:
			if x.limit(rest.taken); len(rest.taken) > 0 { // the rest may belong to an earlier hold
				_, err = rest.place.sendCleanup(x)
			}
		case rest.late || rest.doubtful:
			if rest.waiter.hasPlace() {
				andLeave(x.release, rest.waiter.entry)
			}
			x.again = rest.doubtful
			return rest.place.sweepNow(x)
		}
		if rest.waiter.hasPlace() {
			c := rest.newLeave(ctx)
			rest.place.redis.Send(c)
			err = cmp.Or(err, c.Err)
		}
		return err
	})
}

// leaveLines gives up the waiter's place in line in the background, and keeps the keys.
func (o *obtaining) leaveLines(ctx context.Context) {
	o.sendLeave(o.leaving(ctx, nil))
}

// quitLine ends the wait in line, and keeps the keys.
func (o *obtaining) quitLine(ctx context.Context) {
	if o.waiter.hasPlace() {
		o.leaveLines(ctx)
	}
	o.waiter.quitInbox()
}

// sendLeave sends, in the background, a call that leaves the lines. It gives up when the waiter would be passed over
// anyway. But a release may have handed it the keys before that, and they last for the ttl: so if the call was to free them,
// another cleanup goes on.
func (o *obtaining) sendLeave(c *transport.Call) {
	place, keys, ttl := o.place, o.keys, o.ttl
	x := newCleanup(c, WhyLine, nil, 0)
	x.about = keys
	place.inBackground(x, func() error {
		place.redis.Send(c)
		if len(c.Keys) > 0 && c.Err != nil && !transport.IsFinal(c.Err) {
			rest := newCleanup(newRelease(c.Ctx, c.Token, c.Keys, c.Spare), WhyAbandoned, keys, ttl)
			place.sweep(rest, 0)
		}
		return c.Err
	})
}

// newLeave returns an unsent call that takes the waiter out of the lines and releases what it was handed. A waiter with
// a custom token was handed nothing, and its keys may belong to an earlier hold.
func (o *obtaining) newLeave(ctx context.Context) *transport.Call {
	if o.custom {
		return o.leaving(ctx, nil)
	}
	return o.leaving(ctx, o.boxed[:len(o.keys)])
}

// leaving returns an unsent call that takes the waiter out of the lines and releases the keys.
func (o *obtaining) leaving(ctx context.Context, keys []any) *transport.Call {
	c := newRelease(ctx, o.token, keys, o.boxed[len(o.keys):])
	andLeave(c, o.waiter.entry)
	c.GiveUp = time.Now().Add(o.waiter.life)
	c.Persist()
	return c
}

// newRelease returns an unsent call that releases all keys.
func (o *obtaining) newRelease(ctx context.Context) *transport.Call {
	return newRelease(ctx, o.token, o.boxed[:len(o.keys)], o.boxed[len(o.keys):])
}
