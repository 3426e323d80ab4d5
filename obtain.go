package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
)

// obtaining is an Obtain of a caller, with all its tries. It belongs to the goroutine of the caller, and stays on its stack.
//
// One of two types makes the tries: single at one place, or spreading at several. An interface for both would move single
// to the heap. So wherever the two differ, a method of obtaining looks at spread.
type obtaining struct {
	client   *Client
	keys     []string
	ttl      time.Duration
	opt      Options       // a copy
	strategy RetryStrategy // of this call; nil for a single try
	single   single        // zero for several places
	spread   *spreading    // nil for one place

	cut       error         // how ctx has ended the call; nil if it has not
	why       *RefusedError // what is in the way; nil if that was not asked
	explained int           // the try whose refusal was explained; 0 for none
}

// progress is what is known of the tries of an obtain so far.
type progress struct {
	limited bool  // ctx ends after one ttl, because the caller set no deadline
	tries   int   // how many there were
	resends int   // how many resends they needed
	belated int8  // how many grants in a row came too late; see decline
	failure error // how the last try failed, wrapped; nil if it was granted or refused
	lock    *Lock // nil until a try is granted
}

// errCut is the error of a try that found that ctx has ended. The caller gets what cutShort returns instead.
var errCut = errors.New("ctx has ended")

// obtain is ObtainMulti for a slice of keys that belongs to the library.
func (c *Client) obtain(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	if err := c.check(ctx, keys, ttl, opt); err != nil {
		return nil, err
	}
	o := obtaining{client: c, keys: keys, ttl: ttl, strategy: opt.strategy()}
	if opt != nil {
		o.opt = *opt
	}
	at, err := c.placesFor(keys, o.opt.FenceKey, o.opt.AcrossSlots)
	if err != nil {
		return nil, err
	}
	if at == nil {
		o.prepareSingle()
	} else {
		o.spread = newSpreading(&o, at)
		if at.quorum && o.strategy != nil && !o.opt.Queue {
			o.strategy = spreadOut{o.strategy}
		}
	}
	return o.watched(ctx)
}

// prepareSingle fills in what the tries at one place need.
func (o *obtaining) prepareSingle() {
	place, token := o.client.one, o.opt.Token
	if token == "" {
		token = randomToken()
	}
	a := &o.single.attempt
	a.place, a.keys, a.token, a.custom, a.ttl = place, script.Box(o.keys), token, o.opt.Token != "", o.ttl
	a.metadata, a.fenceKey = o.opt.Metadata, o.opt.FenceKey
	if o.opt.Queue {
		a.waiter = place.lines.New(o.strategy)
	}
}

// run tries until the lock is granted, the strategy stops or ctx ends.
func (o *obtaining) run(ctx context.Context) (*Lock, error) {
	p := o.progress()
	if o.strategy != nil && !o.opt.Queue && !fault.HasDeadline(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.ttl)
		defer cancel()
		p.limited = true
	}
	returned := false // a hook or a custom strategy may panic
	if o.spread != nil {
		o.spread.since = time.Now()
		o.client.obtains.Add(1) // until end has begun the cleanups
		defer o.client.obtains.Add(-1)
		defer o.spread.end(ctx) // also after a panic
	} else {
		if err := o.single.waitForOwn(ctx); err != nil {
			return nil, err
		}
		defer func() { o.single.end(ctx, !returned) }()
	}
	err := o.tryOn(ctx)
	returned = true
	switch err {
	case nil:
		return p.lock, nil
	case errCut:
		return nil, o.cutShort(ctx)
	default:
		return nil, err
	}
}

// tryOn does the tries of run. It returns the error of the last one, or errCut.
func (o *obtaining) tryOn(ctx context.Context) error {
	var cut bool
	var err error
	if o.opt.Queue {
		cut, err = o.inLine(ctx)
	} else {
		cut, err = retry.Do(ctx, o.client.closed, o.strategy, time.Time{}, func() (bool, error) { return o.try(ctx) })
		if o.spread != nil && !cut {
			err = o.spread.decide(ctx, err)
		}
	}
	if cut {
		return errCut
	}
	return err
}

// inLine obtains by waiting in line. It tries and waits for its turn until a try is granted, a release hands the lock
// over, an error ends the wait, ctx ends, or the Client is closed. It returns the error of the last try, and whether
// ctx ended the wait.
func (o *obtaining) inLine(ctx context.Context) (cut bool, err error) {
	for {
		again, err := o.try(ctx)
		if !again {
			return false, err
		}
		if !o.await(ctx) {
			if ctx.Err() != nil {
				return true, err
			}
			return false, ErrClosed
		}
	}
}

// try asks once for all keys, and reports a refusal to the Tracer. It reports whether another try makes sense, which it does
// after a refusal.
func (o *obtaining) try(ctx context.Context) (again bool, err error) {
	if o.spread != nil {
		again, err = o.spread.try(ctx)
	} else {
		again, err = o.single.try(ctx)
	}
	if err == ErrNotObtained && (o.opt.Explain || o.client.tracer.Refused != nil) {
		o.refused(ctx)
	}
	return again, err
}

// await waits in line until the next try is due. It returns false if ctx ends or the Client is closed first.
func (o *obtaining) await(ctx context.Context) bool {
	if o.spread != nil {
		return o.spread.await(ctx)
	}
	return o.single.waiter.Await(ctx, o.client.closed)
}

// progress returns what is known of the tries so far.
func (o *obtaining) progress() *progress {
	if o.spread != nil {
		return &o.spread.progress
	}
	return &o.single.progress
}

// cutShort returns the error of an obtain that ctx has ended. It wraps how the last try failed, unless that was
// refused: an outage must not look as if another holder had the lock.
func (o *obtaining) cutShort(ctx context.Context) error {
	o.cut = fault.Ended(ctx)
	failure := o.progress().failure
	if failure == nil {
		return fault.NotObtained(o.cut)
	}
	return fault.NotObtained(fmt.Errorf("%w; the last try: %w", o.cut, failure))
}

// unanswered returns the error of a try that began at that time and was not answered by the end of ctx.
func (p *progress) unanswered(began time.Time, ttl time.Duration) error {
	if p.limited && lease.Passed(lease.ValidUntil(began, ttl)) {
		return fmt.Errorf("%w within the ttl of %v: %w", fault.ErrUnanswered, ttl, ErrLapsed)
	}
	return fault.ErrUnanswered
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
