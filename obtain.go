package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
)

// Obtain acquires the lock on one key; see [Client.ObtainMulti].
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.obtain(ctx, []string{key}, ttl, opt)
}

// ObtainMulti acquires the lock on all keys or on none of them, for ttl. A key that is named twice is locked once. A
// key must not be empty, and must not end in ":redislock:line" or ":redislock:house". A key can be acquired if it is
// free or already holds the same [Options.Token], and beside other holders as [Options.Shared] says. For keys with that
// token, the call replaces the metadata and never shortens the remaining ttl. If such a key has no expiry, it gets the
// ttl.
//
// One script acquires all keys; across slots, one script in each slot. This takes the server 2 to 8 µs per key, and the
// server does nothing else meanwhile. A Refresh, a renewal or a Release takes about half as long. A script can hold
// 1,000,000 keys. docs/redis.md has figures, and says what else limits the number.
//
// ttl is at least 2 ms and is truncated to whole milliseconds. It starts before the request is sent, so that
// [Lock.Until] can be relied on. If a grant arrives after its validity has ended, the library gives the keys back, and the
// call tries again as after a refusal. The second such grant in a row ends the call, because answers take longer than the
// ttl.
//
// ObtainMulti blocks until the lock is granted, the strategy stops or ctx ends. With a strategy and no deadline on ctx,
// it gives up after one ttl. With [Options.Queue], it waits in line until ctx ends. It returns within milliseconds of
// the end of ctx, whatever Redis does. In the background, the library then gives up the position in line and releases what
// an unanswered request may have acquired. With a custom token, it releases only those keys that a late reply reports
// as newly acquired.
//
// It returns:
//   - [ErrNotObtained] if another holder has one of the keys, callers wait in line for one, or the guard of [WithGuard] is
//     closed, and the strategy allows no further try; with [Options.Explain], and if the guard of [WithGuard] is closed, a
//     [*RefusedError], which matches it;
//   - with [Options.Queue], a [*DeadlockError], which matches ErrNotObtained as well, if the call has waited in a circle;
//   - an error that matches both [ErrNotObtained] and ctx.Err() (and [context.Cause], where that differs) if ctx ended
//     first, or the ttl that limits a ctx without a deadline. If the last try was not refused, the error also wraps how
//     that try failed: with an error of Redis or the network, or without an answer. So an outage does not look like a
//     lock that another holds;
//   - an error that matches [ErrNotObtained] and [ErrLapsed], and says how long the answer took, if the lock was granted
//     but had lapsed when the grant arrived. If the ttl limits the call, and there was no answer within it, the error of
//     the second kind matches ErrLapsed as well;
//   - an error that wraps [ErrInvalid], and says why, if the arguments cannot be used, or if the ttl is above the maxTTL of
//     WithGuard; nothing was sent then;
//   - [ErrClosed] if the Client is closed;
//   - any other error from Redis or the network, wrapped. Such an error ends the call. But the library first resends for a
//     short time after a failure that may pass. With [Options.Queue], the call waits for the end of such failures: from
//     the first try on if ctx has a deadline, and after a refusal if it has none. One of these errors is WRONGTYPE, for a
//     key that does not hold a string.
func (c *Client) ObtainMulti(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return c.obtain(ctx, script.Unique(keys), ttl, opt)
}

// Obtain is short for New(client).Obtain(…).
func Obtain(ctx context.Context, client RedisClient, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return newShort(client).Obtain(ctx, key, ttl, opt)
}

// ObtainMulti is short for New(client).ObtainMulti(…).
func ObtainMulti(ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	return newShort(client).ObtainMulti(ctx, keys, ttl, opt)
}

// obtaining is an Obtain of a caller, with all its tries. It belongs to the goroutine of the caller, and stays on its stack.
//
// One of two fields makes the tries: one at one place, or several at several. An interface for both would move one to
// the heap. So wherever the two differ, a method of obtaining looks at several.
type obtaining struct {
	client   *Client
	keys     []string
	ttl      time.Duration
	opt      Options        // a copy
	strategy retry.Strategy // of this call; nil for one try only
	one      place.Tries    // zero for several places
	several  *several.Tries // nil for one place
	limits   []int          // how many holders each key may have, 0 for no limit; nil if all are exclusive

	holds  []script.Holding // the locks that the caller holds, if it may wait in line
	circle *circleWatch     // nil if it holds none

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
	var err error
	if o.limits, err = c.limits(keys, opt); err != nil {
		return nil, err
	}
	at, err := c.placesFor(keys, o.limits, o.opt.FenceKey, o.opt.AcrossSlots)
	if err != nil {
		return nil, err
	}
	names := ""
	if o.opt.Queue {
		o.holds = holdings(ctx)
		names = script.WriteNames(keys, o.holds)
	}
	if at == nil {
		o.prepareOne(names)
	} else {
		o.prepareSeveral(at, names)
	}
	return o.watched(ctx)
}

// prepareOne fills in what the tries at one place need. names are those of script.Obtain.
func (o *obtaining) prepareOne(names string) {
	at, token := o.client.one, o.opt.Token
	if token == "" {
		token = place.NewToken()
	}
	o.one.Prepare(at, &script.Obtain{
		Keys: script.BoxShared(o.keys, o.limits), Token: token, Custom: o.opt.Token != "", Metadata: o.opt.Metadata, TTL: o.ttl,
		FenceKey: o.opt.FenceKey, Names: names,
	})
	if o.opt.Queue {
		o.one.Queue(o.strategy)
	}
}

// prepareSeveral fills in what the tries at several places need.
func (o *obtaining) prepareSeveral(at *several.Group, names string) {
	what := &script.Obtain{TTL: o.ttl, Metadata: o.opt.Metadata, FenceKey: o.opt.FenceKey, Names: names}
	o.several = several.NewTries(at, o.keys, what, o.opt.Queue, o.strategy)
	if o.strategy != nil && !o.opt.Queue {
		o.strategy = o.several.Lengthen(o.strategy)
	}
}

// watched calls run, and reports its beginning and its end to the Tracer.
func (o *obtaining) watched(ctx context.Context) (lock *Lock, err error) {
	t := o.client.tracer
	fenced := o.opt.FenceKey != ""
	ctx = started(ctx, t.ObtainStart, ObtainStart{
		Keys: o.keys, TTL: o.ttl, Queue: o.opt.Queue, Fenced: fenced, Shared: o.opt.Shared, Permits: o.opt.Permits,
	})
	if t.ObtainEnd == nil {
		lock, err = o.run(ctx)
		return lock, o.explain(ctx, err)
	}
	start := time.Now()
	err = fault.ErrPanicked
	defer func() {
		p := o.progress()
		end := ObtainEnd{Keys: o.keys, Err: err, Wait: time.Since(start), Tries: p.Tried, Resends: p.Resends}
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

// run tries until the lock is granted, the strategy stops or ctx ends.
func (o *obtaining) run(ctx context.Context) (*Lock, error) {
	if o.strategy != nil && !o.opt.Queue && !fault.HasDeadline(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.ttl)
		defer cancel()
		o.progress().Limited = true
	}
	ctx = o.watchForCircle(ctx)
	defer o.circle.stop()
	returned := false // a hook or a custom strategy may panic
	if o.several != nil {
		o.client.obtains.Add(1) // until End has begun the cleanups
		defer o.client.obtains.Add(-1)
		defer o.several.End(ctx) // also after a panic
	} else {
		if err := o.one.WaitForOwn(ctx); err != nil {
			return nil, err
		}
		defer func() { o.one.End(ctx, !returned) }()
	}
	cut, err := o.tryOn(ctx)
	returned = true
	if cut || err == fault.ErrCut {
		if found := o.circle.found(); found != nil {
			return nil, found
		}
		return nil, o.cutShort(ctx)
	}
	if err != nil {
		return nil, err
	}
	if o.several != nil {
		return &Lock{several: o.several.Lock()}, nil
	}
	lock := new(Lock)
	o.one.Fill(ctx, &lock.one)
	return lock, nil
}

// tryOn does the tries of run. It returns the error of the last one, and whether ctx ended a wait between two of them. A
// try that ctx has ended returns fault.ErrCut.
func (o *obtaining) tryOn(ctx context.Context) (cut bool, err error) {
	if o.opt.Queue {
		return o.inLine(ctx)
	}
	cut, err = retry.Do(ctx, o.client.closed, o.strategy, time.Time{}, func() (bool, error) { return o.try(ctx) })
	if o.several != nil && !cut {
		err = o.several.Decide(ctx, err)
	}
	return cut, err
}

// inLine obtains by waiting in line. It tries and waits for its turn until a try is granted, a release hands the lock
// over, an error ends the wait, ctx ends, or the Client is closed. It returns what tryOn returns.
func (o *obtaining) inLine(ctx context.Context) (cut bool, err error) {
	for {
		again, err := o.try(ctx)
		if !again {
			return false, err
		}
		o.circle.note(o)
		if !o.await(ctx) {
			if ctx.Err() != nil {
				return true, err
			}
			return false, ErrClosed
		}
	}
}

// try asks once for all keys, and reports a refusal to the Tracer. It reports whether another try makes sense, which it
// does after a refusal.
func (o *obtaining) try(ctx context.Context) (again bool, err error) {
	if o.several != nil {
		again, err = o.several.Try(ctx)
	} else {
		again, err = o.one.Try(ctx)
	}
	if err == ErrNotObtained && (o.opt.Explain || o.client.tracer.Refused != nil) {
		o.refused(ctx)
	}
	if again && o.opt.Token != "" && o.progress().Tried == 1 && (o.opt.Queue || o.strategy != nil) {
		why := o.why // of this try, with Explain
		if why == nil {
			why = o.blocker(ctx)
		}
		if why.Token == o.opt.Token { // it would wait for itself
			return false, fault.Invalid("the token %s shares %q, so it cannot lock that key alone; release it first",
				fault.Printable(fault.Short(why.Token)), why.Key)
		}
	}
	return again, err
}

// await waits in line until the next try is due. It returns false if ctx ends or the Client is closed first.
func (o *obtaining) await(ctx context.Context) bool {
	if o.several != nil {
		return o.several.Await(ctx)
	}
	return o.one.Await(ctx)
}

// progress returns what is known of the tries so far.
func (o *obtaining) progress() *place.Progress {
	if o.several != nil {
		return &o.several.Progress
	}
	return &o.one.Progress
}

// refused reports a refusal to the Tracer. With Explain, it first asks what blocks the first try.
func (o *obtaining) refused(ctx context.Context) {
	e := Refused{Keys: o.keys, Try: o.progress().Tried}
	if o.opt.Explain && o.why == nil {
		o.why, o.explained = o.blocker(ctx), e.Try
		e.Key, e.Holder, e.Metadata, e.TTL, e.Ahead = o.why.Key, o.why.Token, o.why.Metadata, o.why.TTL, o.why.Ahead
		e.Holders, e.Closed = o.why.Holders, o.why.Closed
	}
	if tell := o.client.tracer.Refused; tell != nil {
		tell(ctx, e)
	}
}

// blocker returns what blocks the obtain. Unless that is a guard, it asks Redis.
func (o *obtaining) blocker(ctx context.Context) *RefusedError {
	var why RefusedError
	if o.several != nil {
		why = RefusedError(o.several.Blocker(ctx))
	} else {
		why = RefusedError(o.one.Blocker(ctx))
	}
	return &why
}

// closedFor returns for how long a guard that has refused the last try still refuses every obtain; 0 if it does not.
func (o *obtaining) closedFor() time.Duration {
	if o.several != nil {
		return o.several.ClosedFor()
	}
	return o.one.ClosedFor()
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

// explain returns the error of an obtain that has ended. With Explain, and if the last try was refused, that is a
// RefusedError. After more than one try, it asks again. If nothing blocks the obtain any more, the error says what
// blocked the first try. Without Explain, it is a RefusedError if a guard has refused the last try: that is known anyway.
func (o *obtaining) explain(ctx context.Context, err error) error {
	if o.progress().Failure != nil || !errors.Is(err, ErrNotObtained) || errors.Is(err, ErrDeadlock) {
		return err
	}
	if o.why == nil {
		closed := o.closedFor()
		if closed == 0 {
			return err
		}
		o.why, o.explained = &RefusedError{Closed: closed}, o.progress().Tried
	}
	if o.progress().Tried > o.explained || o.cut != nil {
		if now := o.blocker(ctx); now.Key != "" || now.Closed > 0 {
			o.why = now
		}
	}
	if o.cut != nil {
		return fmt.Errorf("%w: %w", o.why, o.cut)
	}
	return o.why
}

// abandon gives back, in the background, a lock that its caller never gets.
func (o *obtaining) abandon(ctx context.Context, lock *Lock) {
	if o.several == nil {
		o.one.GiveUp(ctx)
		return
	}
	go func() { // ends with the calls
		defer func() { _ = recover() }() // a hook has panicked, and the release goes on without it
		_, _ = lock.several.Free(context.WithoutCancel(ctx), time.Time{})
	}()
}
