package redislock

import (
	"context"
	"slices"
)

// doing is a running Do. It is also the context of its fn, where an inner Do finds it. Its fields do not change once fn
// is called.
type doing struct {
	context.Context // kept; contexts derived from it need no goroutine

	client *Client
	around context.Context         // the ctx that Do was called with
	parent context.Context         // ends with around, and with outer
	lock   *Lock                   // on the keys that no outer Do holds; nil if there are none
	kept   context.Context         // of lock; parent without one
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
	d.lock = lock
	stopParent := d.stop
	kept, stop := lock.KeepAlive(d.parent)
	d.kept, d.stop = kept, func() {
		stop()
		stopParent()
	}
}

// missing returns the keys that no outer Do holds. It notes which outer ones hold the others.
func (d *doing) missing(keys []string) []string {
	if d.outer == nil {
		return keys
	}
	holders := make(map[string]*doing)
	for o := d.outer; o != nil; o = o.outer {
		if o.lock != nil {
			keys, _ := o.lock.bearer().Names()
			for _, key := range keys {
				holders[key] = o
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		h := holders[key]
		if h != nil && !slices.Contains(d.relied, h) {
			d.relied = append(d.relied, h)
		}
		return h != nil
	})
}

// outerLoss returns the loss of an outer lock that this Do relies on, or nil if none is lost.
func (d *doing) outerLoss() error {
	for _, o := range d.relied {
		if err := lost(o.parent, o.kept); err != nil {
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
