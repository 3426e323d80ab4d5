package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

// Do runs fn under the lock on keys: it acquires the lock as [Client.ObtainMulti] does, keeps it alive while fn runs,
// and releases it. The ctx of fn is that of [Lock.KeepAlive]: it ends with ctx, and when the lock is found lost, at
// [Lock.Until] at the latest. So a deadline on ctx limits the wait and the work together. Nothing is renewed after ctx
// has ended, so an fn that then runs for longer than the ttl loses the lock.
//
// Do blocks until fn has returned and the lock is released. When the ctx of fn ends, Do still waits for fn. It returns:
//   - the error of ObtainMulti, if the lock could not be acquired, and an error that wraps [ErrInvalid] if fn is nil; fn
//     was not called then;
//   - the error of fn, unchanged;
//   - if the lock was lost while fn ran, whatever fn returned: the cause of the loss, as KeepAlive reports it. If fn
//     returned an error, it follows in the same line, and [errors.Is] finds both;
//   - the error of Release, if fn returned nil and the lock was not lost.
//
// Under [WithGuard], the lock also lives on while Redis has forgotten its keys: see KeepAlive.
//
// If fn panics or calls runtime.Goexit, Do releases the lock and lets the panic or exit go on. After Close, Do returns
// [ErrClosed], and a running fn's ctx ends with ErrClosed as its cause.
//
// # Do inside Do
//
// Do may be called inside the fn of another Do of the same Client, with the ctx of that fn or one derived from it. The
// inner Do does not acquire keys that an outer Do holds. It acquires the missing keys as a lock of their own, and releases
// only these. Its ttl and opt apply to these alone. The ctx of the inner fn ends with that of the outer fn. If an outer
// lock is lost, and the inner Do relies on keys of it, the inner Do returns that loss as well. If the outer Do ends while
// the inner one waits for missing keys, the inner Do returns an error that matches ErrNotObtained, and does not call fn.
//
// Know the limits:
//   - Goroutines that share the ctx of an outer fn do not exclude each other on the keys of the outer lock.
//   - Once the ctx of the outer fn has ended, an inner Do with a ctx that goes on ([context.WithoutCancel]) acquires
//     all of its keys again. If the outer fn is still running, the inner Do waits until the outer lock is released or
//     expires.
//   - An inner Do cannot have a key for fewer holders than the outer Do that has it: [Options.Shared] in the outer call,
//     and the key exclusive in the inner one, is an error that wraps ErrInvalid. The other way round works.
//   - An inner Do of another Client does not know the outer one, and waits for it. So does the package-level Do, which
//     makes a Client for each call. With [Options.Queue], it ends with a [*DeadlockError] soon.
//   - If two processes each hold, in an outer call, keys that the inner call of the other needs, they wait for each
//     other. With Queue, the inner call that came last ends with a DeadlockError: let the outer fn return, and begin again.
//     Otherwise they wait until ctx or a ttl ends. If you can, name all keys in the outer call.
func (c *Client) Do(
	ctx context.Context, keys []string, ttl time.Duration, opt *Options, fn func(context.Context) error,
) error {
	if fn == nil {
		return fault.Invalid("fn is nil")
	}
	d, err := c.enter(ctx, keys, ttl, opt)
	if err != nil {
		return err
	}
	return d.run(fn)
}

// Do is short for New(client).Do(…).
func Do(
	ctx context.Context, client RedisClient, keys []string, ttl time.Duration, opt *Options, fn func(context.Context) error,
) error {
	return newShort(client).Do(ctx, keys, ttl, opt, fn)
}

// enter acquires what no outer Do holds, and makes the context of fn.
func (c *Client) enter(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*doing, error) {
	keys = script.Unique(keys)
	d := &doing{client: c, around: ctx, parent: ctx, stop: func() {}}
	entered := false
	defer func() {
		if !entered { // with an error or a panic
			d.stop()
		}
	}()
	if ctx != nil {
		d.relyOn(outerDo(ctx, c))
	}
	limits, err := c.limits(keys, opt)
	if err != nil {
		return nil, err
	}
	if limits != nil {
		d.limits = make(map[string]int, len(keys))
	}
	for i, limit := range limits {
		d.limits[keys[i]] = cmp.Or(limit, math.MaxInt)
	}
	missing, err := d.missing(keys)
	if err != nil {
		return nil, err
	}
	if len(missing) < len(keys) { // otherwise obtain checks them all
		if err := c.check(ctx, keys, ttl, opt); err != nil {
			return nil, err
		}
	}
	d.Context = d.parent
	if len(missing) > 0 || len(keys) == 0 {
		if len(missing) < len(keys) {
			opt = opt.only(missing)
		}
		lock, err := c.obtain(d.parent, missing, ttl, opt)
		if err != nil {
			return nil, err
		}
		d.keep(lock)
	}
	if err := d.over(); err != nil {
		if d.lock != nil {
			_ = d.lock.Release(ctx) // if this fails, the keys expire
		}
		return nil, err
	}
	entered = true
	return d, nil
}

// over returns an error if, after the keys were acquired, fn must not run: the Client was closed meanwhile, or the outer
// Do has ended, and may hold nothing any more.
func (d *doing) over() error {
	if d.lock != nil && context.Cause(d.Context) == ErrClosed {
		return ErrClosed
	}
	if d.outer == nil {
		return nil
	}
	d.check()
	if err := fault.Ended(d.parent); err != nil {
		return fault.NotObtained(err)
	}
	return nil
}

// run calls fn, and gives up what enter has obtained.
func (d *doing) run(fn func(context.Context) error) (err error) {
	returned := false
	defer func() {
		loss := d.outerLoss()
		d.stop()
		// Release before comparing any errors: the caller's own may panic.
		var released error
		if d.lock != nil {
			released = d.lock.Release(d.around)
			if own := lost(d.parent, d.Context); own != nil {
				loss = own
			}
		}
		if !returned {
			return // a panic or Goexit: the caller gets no error
		}
		if loss == nil && errors.Is(released, ErrLockNotHeld) {
			loss = released
		}
		switch {
		case loss != nil && err == nil:
			err = loss
		case loss != nil && !errors.Is(err, loss):
			err = fmt.Errorf("%w; fn returned: %w", loss, err)
		case err == nil:
			err = released
		}
	}()
	err = fn(d)
	returned = true
	return err
}

// lost returns why a kept context has ended, if its lock was lost or lapsed. The cause of its parent does not count,
// even if that is the loss of another lock, around this one.
func lost(parent, kept context.Context) error {
	cause := context.Cause(kept)
	// The library's own causes can all be compared, so a cause that cannot is the parent's.
	if !fault.CanCompare(cause) || cause == context.Cause(parent) ||
		!errors.Is(cause, ErrLockNotHeld) && !errors.Is(cause, ErrLapsed) {
		return nil
	}
	return cause
}

// doing is a running Do. It is also the context of its fn, where an inner Do finds it. Its fields do not change once fn
// is called.
type doing struct {
	context.Context // of the kept lock; parent without one. Contexts derived from it need no goroutine

	client *Client
	around context.Context         // the ctx that Do was called with
	parent context.Context         // ends with around, and with outer
	lock   *Lock                   // on the keys that no outer Do holds; nil if there are none
	limits map[string]int          // how many holders each key may have, math.MaxInt for no limit; nil if all are exclusive
	stop   func()                  // ends the context
	outer  *doing                  // the innermost Do around this one that was running when it began; nil for none
	relied []*doing                // the outer ones that hold some of its keys
	end    context.CancelCauseFunc // of parent; nil without outer
}

// doKey is the key under which the context of an fn holds its doing. Each Client has a key of its own, because its locks
// may be on another Redis.
type doKey struct{ client *Client }

// outerDo returns the innermost Do around ctx whose context has not ended, or nil if there is none. A Do whose context
// has ended may hold nothing any more.
func outerDo(ctx context.Context, c *Client) *doing {
	d, _ := ctx.Value(doKey{c}).(*doing)
	for d != nil && d.Err() != nil {
		d = d.outer
	}
	return d
}

// relyOn makes the Do end with an outer one, if that is not nil. The wait for missing keys ends as well.
func (d *doing) relyOn(outer *doing) {
	if outer == nil {
		return
	}
	d.outer = outer
	d.parent, d.end = context.WithCancelCause(d.around)
	// This matters where the ctx of the inner Do does not end with that of the outer one. The function runs in a goroutine
	// of its own, and only if the outer Do ends first.
	leave := context.AfterFunc(outer, func() { d.end(context.Cause(outer)) })
	d.stop = func() {
		leave()
		d.end(nil)
	}
}

// keep keeps the lock on the missing keys alive.
func (d *doing) keep(lock *Lock) {
	stopParent := d.stop
	kept, stop := lock.KeepAlive(d.parent)
	d.lock, d.Context, d.stop = lock, kept, func() {
		stop()
		stopParent()
	}
}

// limit returns how many holders the Do lets a key have; math.MaxInt for no limit.
func (d *doing) limit(key string) int { return cmp.Or(d.limits[key], 1) }

// missing returns the keys that no outer Do holds. It notes the outer ones that hold the others. If an outer one lets a key
// have more holders than this one, missing returns an error.
func (d *doing) missing(keys []string) ([]string, error) {
	if d.outer == nil {
		return keys, nil
	}
	holders := make(map[string]*doing)
	for o := d.outer; o != nil; o = o.outer {
		held, _ := o.lock.names()
		for _, key := range held {
			holders[key] = o
		}
	}
	var missing []string
	for _, key := range keys {
		h := holders[key]
		if h == nil {
			missing = append(missing, key)
			continue
		}
		if h.limit(key) > d.limit(key) {
			return nil, fault.Invalid("an outer Do lets %q have more holders than this one; ask for it there as it is "+
				"needed here", key)
		}
		if !slices.Contains(d.relied, h) {
			d.relied = append(d.relied, h)
		}
	}
	return missing, nil
}

// outerLoss returns the loss of an outer lock that this Do relies on, or nil if none is lost.
func (d *doing) outerLoss() error {
	for _, o := range d.relied {
		if err := lost(o.parent, o.Context); err != nil {
			return err
		}
	}
	return nil
}

func (d *doing) Err() error {
	d.check()
	return d.Context.Err()
}

func (d *doing) Done() <-chan struct{} {
	d.check()
	return d.Context.Done()
}

// Value returns this doing to an inner Do. Package context also calls it to find the cause.
func (d *doing) Value(key any) any {
	if key == any(doKey{d.client}) {
		return d
	}
	d.check()
	return d.Context.Value(key)
}

// check ends the context if that of the outer Do has ended: contexts derived from that may lag, and it need not be an
// ancestor of this one. The context of the lock looks for itself.
func (d *doing) check() {
	if d.outer != nil && d.parent.Err() == nil && d.outer.Err() != nil {
		d.end(context.Cause(d.outer))
	}
}
