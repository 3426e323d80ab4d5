package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
)

// obtaining is an Obtain of a caller, with all its tries. It belongs to the goroutine of the caller, and stays on its stack.
//
// One of two types makes the tries: single at one place, or rounds at several. An interface for both would move single
// to the heap. So wherever the two differ, a method of obtaining looks at spread.
type obtaining struct {
	client   *Client
	keys     []string
	ttl      time.Duration
	opt      Options         // a copy
	strategy retry.Strategy  // of this call; nil for a single try
	single   place.Single    // zero for several places
	spread   *several.Rounds // nil for one place

	cut       error         // how ctx has ended the call; nil if it has not
	why       *RefusedError // what is in the way; nil if that was not asked
	explained int           // the try whose refusal was explained; 0 for none
}

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
		o.spread = several.NewRounds(at, keys, &script.Obtain{
			TTL: ttl, Metadata: o.opt.Metadata, FenceKey: o.opt.FenceKey,
		}, o.opt.Queue, o.strategy)
		if o.strategy != nil && !o.opt.Queue {
			o.strategy = o.spread.SpreadOut(o.strategy)
		}
	}
	return o.watched(ctx)
}

// prepareSingle fills in what the tries at one place need.
func (o *obtaining) prepareSingle() {
	at, token := o.client.one, o.opt.Token
	if token == "" {
		token = place.NewToken()
	}
	o.single.Prepare(at, &script.Obtain{
		Keys: script.Box(o.keys), Token: token, Custom: o.opt.Token != "", Metadata: o.opt.Metadata, TTL: o.ttl,
		FenceKey: o.opt.FenceKey,
	})
	if o.opt.Queue {
		o.single.Queue(o.strategy)
	}
}

// run tries until the lock is granted, the strategy stops or ctx ends.
func (o *obtaining) run(ctx context.Context) (*Lock, error) {
	if o.strategy != nil && !o.opt.Queue && !fault.HasDeadline(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.ttl)
		defer cancel()
		o.progress().Limited = true
	}
	returned := false // a hook or a custom strategy may panic
	if o.spread != nil {
		o.client.obtains.Add(1) // until end has begun the cleanups
		defer o.client.obtains.Add(-1)
		defer o.spread.End(ctx) // also after a panic
	} else {
		if err := o.single.WaitForOwn(ctx); err != nil {
			return nil, err
		}
		defer func() { o.single.End(ctx, !returned) }()
	}
	err := o.tryOn(ctx)
	returned = true
	switch err {
	case nil:
		if o.spread != nil {
			return &Lock{several: o.spread.Lock()}, nil
		}
		lock := new(Lock)
		o.single.Fill(&lock.one)
		return lock, nil
	case fault.ErrCut:
		return nil, o.cutShort(ctx)
	default:
		return nil, err
	}
}

// tryOn does the tries of run. It returns the error of the last one, or fault.ErrCut.
func (o *obtaining) tryOn(ctx context.Context) error {
	var cut bool
	var err error
	if o.opt.Queue {
		cut, err = o.inLine(ctx)
	} else {
		cut, err = retry.Do(ctx, o.client.closed, o.strategy, time.Time{}, func() (bool, error) { return o.try(ctx) })
		if o.spread != nil && !cut {
			err = o.spread.Decide(ctx, err)
		}
	}
	if cut {
		return fault.ErrCut
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
		again, err = o.spread.Try(ctx)
	} else {
		again, err = o.single.Try(ctx)
	}
	if err == ErrNotObtained && (o.opt.Explain || o.client.tracer.Refused != nil) {
		o.refused(ctx)
	}
	return again, err
}

// await waits in line until the next try is due. It returns false if ctx ends or the Client is closed first.
func (o *obtaining) await(ctx context.Context) bool {
	if o.spread != nil {
		return o.spread.Await(ctx)
	}
	return o.single.Await(ctx)
}

// progress returns what is known of the tries so far.
func (o *obtaining) progress() *place.Progress {
	if o.spread != nil {
		return &o.spread.Progress
	}
	return &o.single.Progress
}

// cutShort returns the error of an obtain that ctx has ended. It wraps how the last try failed, unless that was
// refused: an outage must not look as if another holder had the lock.
func (o *obtaining) cutShort(ctx context.Context) error {
	o.cut = fault.Ended(ctx)
	failure := o.progress().Failure
	if failure == nil {
		return fault.NotObtained(o.cut)
	}
	return fault.NotObtained(fmt.Errorf("%w; the last try: %w", o.cut, failure))
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

// watched calls run, and reports its beginning and its end to the Tracer.
func (o *obtaining) watched(ctx context.Context) (lock *Lock, err error) {
	t := o.client.tracer
	ctx = t.obtainStart(ctx, ObtainStart{Keys: o.keys, TTL: o.ttl, Queue: o.opt.Queue, Fenced: o.opt.FenceKey != ""})
	if t.ObtainEnd == nil {
		lock, err = o.run(ctx)
		return lock, o.explain(ctx, err)
	}
	start := time.Now()
	err = fault.ErrPanicked
	defer func() {
		p := o.progress()
		end := ObtainEnd{Keys: o.keys, Err: err, Wait: time.Since(start), Tries: p.Tries, Resends: p.Resends}
		if lock != nil {
			end.Until, end.Fence = lock.Until(), lock.FenceToken()
		}
		returned := false
		defer func() {
			if lock != nil && !returned { // ObtainEnd has panicked: the caller never gets the lock
				o.abandon(ctx, lock)
			}
		}()
		t.ObtainEnd(ctx, end)
		returned = true
	}()
	lock, why := o.run(ctx)
	err = o.explain(ctx, why)
	return lock, err
}

// abandon gives back, in the background, a lock that its caller never gets.
func (o *obtaining) abandon(ctx context.Context, lock *Lock) {
	if o.spread == nil {
		o.single.GiveUp(ctx)
		return
	}
	go func() { // ends with the calls
		defer func() { _ = recover() }() // a hook has panicked, and the release goes on without it
		_, _ = lock.several.Free(context.WithoutCancel(ctx), time.Time{}, time.Time{})
	}()
}
