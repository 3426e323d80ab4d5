package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
)

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
