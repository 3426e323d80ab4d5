package redislock

import (
	"cmp"
	"context"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// withdraw sees to what is left of an obtain that has ended without a lock, in the background: what it has taken, or was
// handed, after all is released, and its place in line given up. That is done at once for a waiter, and once more for all
// when the tries that are adrift have ended, lest it overtake what it undoes. Where there is no room for one more cleanup,
// the ttl of the keys and the silence of the waiter see to it.
func (o *obtaining) withdraw(ctx context.Context) {
	if o.waiter.hasPlace() { // at once: it might be handed the keys until then
		o.leave(ctx)
	}
	if len(o.adrift) == 0 && len(o.taken) == 0 && (!o.doubtful && !o.late || o.custom) {
		return
	}
	x := &cleanup{release: o.newRelease(ctx), why: WhyAbandoned, keys: o.keys, about: o.keys}
	o.client.inBackground(x, func() error {
		for _, c := range o.adrift {
			<-c.Done()
			o.note(c)
		}
		var err error
		switch {
		case o.custom && len(o.taken) > 0: // the rest may be an earlier hold's
			boxed, n := box(o.taken), len(o.taken)
			x.release.Keys, x.release.Spare, x.release.Args = boxed[:n], boxed[n:], []any{n}
			x.release.Simple = false // it was made for all keys
			_, err = o.client.sendCleanup(x, o.ttl)
		case !o.custom && (o.late || o.doubtful):
			if o.waiter.hasPlace() {
				x.release.Args, x.release.Simple = append(x.release.Args, o.waiter.entry), false
			}
			return o.client.sweepNow(x, o.ttl)
		}
		if o.waiter.hasPlace() {
			c := o.newLeave(ctx)
			o.client.redis.Send(c)
			err = cmp.Or(err, c.Err)
		}
		return err
	})
}

// leave gives up the waiter's place in line, and the keys if a hand-off has come first, in the background.
func (o *obtaining) leave(ctx context.Context) {
	o.sendLeave(o.newLeave(ctx))
}

// leaveLines gives up the waiter's place in line and keeps the keys.
func (o *obtaining) leaveLines(ctx context.Context) {
	o.sendLeave(o.leaving(ctx, nil))
}

// sendLeave sends such a call in the background.
func (o *obtaining) sendLeave(c *transport.Call) {
	x := &cleanup{release: c, why: WhyLine, about: o.keys}
	o.client.inBackground(x, func() error {
		o.client.redis.Send(c)
		return c.Err
	})
}

// newLeave returns a call, yet to be sent, that takes the waiter out of the lines and releases what it was handed. With a
// token of the caller's own it was handed nothing, and the keys may be an earlier hold's.
func (o *obtaining) newLeave(ctx context.Context) *transport.Call {
	if o.custom {
		return o.leaving(ctx, nil)
	}
	return o.leaving(ctx, o.boxed[:len(o.keys)])
}

func (o *obtaining) leaving(ctx context.Context, keys []any) *transport.Call {
	c := newRelease(ctx, o.token, keys, o.boxed[len(o.keys):])
	c.Args, c.Simple = append(c.Args, o.waiter.entry), false
	c.GiveUp = time.Now().Add(o.waiter.life)
	c.Persist()
	return c
}

// newRelease returns a call, yet to be sent, that releases all keys.
func (o *obtaining) newRelease(ctx context.Context) *transport.Call {
	return newRelease(ctx, o.token, o.boxed[:len(o.keys)], o.boxed[len(o.keys):])
}
