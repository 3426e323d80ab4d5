package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// obtaining is one Obtain with all its tries, or what it does at one of several places. It belongs to one goroutine.
type obtaining struct {
	client   *Client // of a whole obtain; nil at one of several places
	place    *place  // nil for a whole obtain at several places
	keys     []string
	boxed    []any // the keys and their lines; see box
	fenceKey string
	ttl      time.Duration
	metadata string
	custom   bool // the caller chose the token
	explain  bool // a refusal is to say what is in the way
	part     bool // it is at one of several places
	limited  bool // ctx ends after one ttl, because the caller set no deadline
	belated  int8 // how many grants in a row came too late; see decline

	token    string
	waiter   *waiter       // nil if it does not wait in line
	doubtful bool          // a sending with the present token may have been executed without a reply
	failure  error         // how the last try failed, wrapped; nil if it was granted or refused
	cut      error         // how ctx has ended the call; nil if it has not
	why      *RefusedError // what is in the way; nil if that was not asked
	lock     *Lock         // of a whole obtain
	hold     *hold         // at one place; part of lock if that is all of it
	seen     seen

	spread *spreading // for several places; nil for one

	// Of an obtain at one of several places.
	proposal int64    // of a fencing token and of a ticket, in µs since 1970
	joins    *several // of the lock that it obtains a further hold for; nil for none

	// Tries that were abandoned without an answer.
	abandoned []*transport.Call // those that may still run
	late      bool              // one of them was granted after all
	taken     []string          // keys to be given back, because such late grants newly acquired them
}

// obtain is ObtainMulti for a slice of keys that belongs to the library.
func (c *Client) obtain(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	o := obtaining{client: c, keys: keys, ttl: ttl} // on the stack: at one place, nothing that outlasts the call points to it
	if err := o.prepare(ctx, opt); err != nil {
		return nil, err
	}
	at, err := c.placesFor(keys, o.fenceKey, opt != nil && opt.AcrossSlots)
	if err != nil {
		return nil, err
	}
	if at != nil {
		whole := o
		whole.spread, whole.waiter = newSpreading(&whole, at, opt != nil && opt.Queue), nil
		return whole.watched(ctx, opt.strategy())
	}
	return o.watched(ctx, opt.strategy())
}

// run tries until the lock is granted, the strategy stops or ctx ends.
func (o *obtaining) run(ctx context.Context, strategy RetryStrategy) (*Lock, error) {
	c := o.client
	if o.spread != nil {
		return o.spread.run(ctx, strategy)
	}
	if o.waiter != nil {
		o.waiter.pace = strategy
		defer o.waiter.quitInbox()
	} else if strategy != nil {
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.ttl)
			defer cancel()
			o.limited = true
		}
	}
	if o.custom {
		if err := o.place.waitForOwn(ctx, o.token, o.keys, o.waiter != nil && hasDeadline(ctx)); err != nil {
			return nil, err
		}
	}
	returned := false
	defer func() {
		if !returned { // a hook or a custom strategy has panicked
			o.doubtful = true
			o.withdraw(ctx)
		}
	}()
	var cut bool
	var err error
	if o.waiter != nil {
		cut, err = o.inLine(ctx)
	} else {
		cut, err = retry(ctx, c.closed, strategy, time.Time{}, func() (bool, error) { return o.attempt(ctx) })
	}
	returned = true
	if err == nil {
		return o.lock, nil
	}
	o.withdraw(ctx)
	if cut {
		return nil, o.cutShort(ctx)
	}
	return nil, err
}

// cutShort returns the error of an obtain that ctx has ended. It wraps how the last try failed, unless that was
// refused: an outage must not look as if another holder had the lock.
func (o *obtaining) cutShort(ctx context.Context) error {
	o.cut = ended(ctx)
	if o.failure == nil {
		return notObtained(o.cut)
	}
	return notObtained(fmt.Errorf("%w; the last try: %w", o.cut, o.failure))
}

// check returns an error if an obtain with these arguments cannot work. It does no I/O.
func (c *Client) check(ctx context.Context, keys []string, ttl time.Duration, opt *Options) error {
	if err := c.usable(ctx, keys); err != nil {
		return err
	}
	if err := checkTTL(ttl); err != nil {
		return err
	}
	if opt != nil {
		if err := checkToken(opt.Token); err != nil {
			return err
		}
		if err := checkFenceKey(opt.FenceKey, keys); err != nil {
			return err
		}
		if opt.Queue {
			if err := checkLines(keys); err != nil {
				return err
			}
		}
	}
	return c.checkPlaces(keys, opt)
}

// prepare checks the arguments and copies what it needs from opt. It does no I/O.
func (o *obtaining) prepare(ctx context.Context, opt *Options) error {
	if err := o.client.check(ctx, o.keys, o.ttl, opt); err != nil {
		return err
	}
	o.place, o.boxed = o.client.one, box(o.keys)
	if opt != nil {
		o.metadata, o.token, o.custom, o.fenceKey = opt.Metadata, opt.Token, opt.Token != "", opt.FenceKey
		o.explain = opt.Explain
		if opt.Queue && o.client.quorum == nil {
			o.waiter = newWaiter(&o.place.lines)
		}
	}
	if o.token == "" {
		o.token = randomToken()
	}
	return nil
}

// try asks once for all keys. It reports whether another try makes sense, which it does after a refusal.
func (o *obtaining) try(ctx context.Context) (again bool, err error) {
	if ended(ctx) != nil {
		return false, o.cutShort(ctx)
	}
	if o.waiter != nil {
		done, h := o.waiter.admit(ctx, o.place.closed, len(o.keys))
		switch {
		case h != nil:
			return o.grant(ctx, o.waiter.since(h), h.fence, o.keys)
		case done != nil:
			defer done()
		case ended(ctx) != nil:
			return false, o.cutShort(ctx)
		default:
			return false, ErrClosed
		}
	}
	c := new(transport.Call)
	o.fillObtain(c)
	o.seen.tries++
	began := time.Now()
	c.GiveUp = began.Add(o.ttl)
	var cancel context.CancelFunc
	o.collect()
	c.Ctx, cancel = o.waiter.patience(ctx, len(o.abandoned))
	defer cancel()
	if o.place.redis.Do(c.Ctx, c) || hear(c) {
		return o.conclude(ctx, c)
	}
	o.abandoned = append(o.abandoned, c)
	again, err = o.conclude(ctx, &transport.Call{Ctx: c.Ctx, Err: cmp.Or(c.Failure(), o.unanswered(began))})
	if again {
		o.waiter.next = time.Now().Add(time.Millisecond) // it has waited long enough
	}
	return again, err
}

// conclude applies the result of a try that has ended.
func (o *obtaining) conclude(ctx context.Context, c *transport.Call) (again bool, err error) {
	o.doubtful = o.doubtful || c.Doubtful
	o.seen.resends += int(c.Resends)
	if c.Err != nil {
		o.fail(c)
		if ended(ctx) != nil {
			return false, o.cutShort(ctx)
		}
		return o.waiter.bear(ctx, c.Err), o.failure
	}
	o.failure = nil
	g, err := readGrant(o.keys, c.Reply)
	switch {
	case err != nil:
		o.doubtful = true
		return false, failed("obtain", o.keys, err)
	case !g.granted:
		if o.belated > 0 && !lease.Passed(lease.ValidUntil(c.Sent, o.ttl)) {
			o.belated = 0
		}
		if o.waiter != nil {
			o.waiter.refuse(c.Sent, g)
		}
		return true, ErrNotObtained
	}
	o.waiter.granted()
	if o.waiter != nil && c.Spare == nil {
		o.leaveLines(ctx) // the script could not reach the lines, so it has not taken the waiter out of them
	}
	return o.grant(ctx, c.Sent, g.fence, g.taken)
}

// grant makes a lock that was granted after the given time, unless it has already lapsed. Like try, it reports whether
// another try makes sense.
func (o *obtaining) grant(ctx context.Context, since time.Time, fence int64, taken []string) (again bool, err error) {
	valid := lease.Granted(since, o.ttl)
	if lease.Passed(valid.Until()) {
		return o.decline(ctx, since, taken)
	}
	h := o.newHold()
	h.place, h.keys, h.boxed, h.token, h.fence, h.fenceKey = o.place, o.keys, o.boxed, o.token, fence, o.fenceKey
	h.metadata, h.since, h.lease, h.obtained, h.random = o.metadata, since, valid, o.ttl, !o.custom
	h.unanswered = o.unansweredTries()
	return false, nil
}

// newHold returns what to make the hold of. At one place, it is part of the lock of the caller, and costs no allocation of
// its own.
func (o *obtaining) newHold() *hold {
	if o.part {
		o.hold = new(hold)
	} else {
		o.lock = new(Lock)
		o.hold = &o.lock.one
	}
	return o.hold
}

// unansweredTries returns what is known of sendings that were not answered; nil if each was.
func (o *obtaining) unansweredTries() *unanswered {
	if !o.doubtful && len(o.abandoned) == 0 {
		return nil
	}
	return &unanswered{waiter: o.waiter, tries: o.abandoned, custom: o.custom}
}

// lastWord is how long an obtain waits for a call whose ctx has ended. Unless go-redis is reading the reply, it returns
// such a call at once, and a healthy server answers within this time. A round at several places also waits for so long
// before it counts a place as absent.
const lastWord = 2 * time.Millisecond

// hear reports whether an abandoned call ends within lastWord after all.
func hear(c *transport.Call) bool {
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-c.Done():
		return true
	case <-timer.C:
		return false
	}
}

// fail notes how a try has failed. If its error is only the end of its ctx, it was still waiting for something, for
// example a connection, after an earlier attempt had failed. Then the earlier failure says more.
func (o *obtaining) fail(c *transport.Call) {
	if c.Ctx != nil && c.Ctx.Err() != nil && errors.Is(c.Err, c.Ctx.Err()) {
		c.Err = errUnanswered
		if o.failure != nil {
			return
		}
	}
	o.failure = failed("obtain", o.keys, withHint(withFence(o.keys, o.fenceKey), c.Err))
}

// collect notes the results of abandoned tries that have ended by now. A waiter may abandon some every hour.
func (o *obtaining) collect() {
	o.abandoned = slices.DeleteFunc(o.abandoned, func(c *transport.Call) bool {
		if !isClosed(c.Done()) {
			return false
		}
		o.note(c)
		return true
	})
}

// note notes the result of an abandoned try that has ended.
func (o *obtaining) note(c *transport.Call) {
	o.doubtful = o.doubtful || c.Doubtful
	if c.Err != nil {
		return
	}
	g, err := readGrant(o.keys, c.Reply)
	o.doubtful = o.doubtful || err != nil
	if g.granted {
		o.late, o.taken = true, append(o.taken, g.taken...)
	}
}
