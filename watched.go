package redislock

import (
	"context"
	"time"
)

// seen counts what a Tracer is told at the end of an obtain.
type seen struct {
	tries     int
	resends   int
	explained int // the try whose refusal was explained; 0 for none
}

// watched calls run, and reports its beginning and its end to the Tracer.
func (o *obtaining) watched(ctx context.Context, strategy RetryStrategy) (lock *Lock, err error) {
	t := o.client.tracer
	queue := o.waiter != nil || o.spread != nil && o.spread.queue
	ctx = t.obtainStart(ctx, ObtainStart{Keys: o.keys, TTL: o.ttl, Queue: queue, Fenced: o.fenceKey != ""})
	if t.ObtainEnd == nil {
		lock, err = o.run(ctx, strategy)
		return lock, o.explained(ctx, err)
	}
	start := time.Now()
	err = errPanicked
	defer func() {
		end := ObtainEnd{Keys: o.keys, Err: err, Wait: time.Since(start), Tries: o.seen.tries, Resends: o.seen.resends}
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
	lock, why := o.run(ctx, strategy)
	err = o.explained(ctx, why)
	return lock, err
}

// abandon gives back, in the background, a lock that its caller never gets. Keys with a custom token may belong to an
// earlier hold, so they expire with their ttl instead.
func (o *obtaining) abandon(ctx context.Context, lock *Lock) {
	if o.spread == nil {
		o.doubtful = true
		o.withdraw(ctx)
		return
	}
	go func() { _ = lock.several.free(context.WithoutCancel(ctx), time.Time{}, time.Time{}) }() // ends with the calls
}

// attempt calls try, and reports a refusal to the Tracer.
func (o *obtaining) attempt(ctx context.Context) (again bool, err error) {
	again, err = o.try(ctx)
	if err == ErrNotObtained && (o.explain || o.client.tracer.Refused != nil) {
		o.refused(ctx)
	}
	return again, err
}
