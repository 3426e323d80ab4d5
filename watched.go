package redislock

import (
	"context"
	"errors"
	"time"
)

// seen counts what a Tracer is told at the end of an obtain.
type seen struct {
	tries     int
	resends   int
	explained int // the try whose refusal was explained; 0 for none
}

// errPanicked is the error in the events of a call that a panic has ended. The caller gets the panic.
var errPanicked = errors.New("redislock: a hook, a strategy or a tracer panicked")

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
			end.Until, end.Fence = lock.Until(), lock.fence
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
	go func() { _ = lock.holds.release(context.WithoutCancel(ctx)) }() // ends with the calls
}

// attempt calls try, and reports a refusal to the Tracer.
func (o *obtaining) attempt(ctx context.Context) (again bool, err error) {
	again, err = o.try(ctx)
	if err == ErrNotObtained && (o.explain || o.client.tracer.Refused != nil) {
		o.refused(ctx)
	}
	return again, err
}

// endHold notes that a Tracer is told of the end of the present hold. It returns how long the hold lasted, or 0 if the
// Tracer was told before. The caller holds l.mu.
func (l *Lock) endHold(end time.Time) time.Duration {
	if l.told {
		return 0
	}
	l.told = true
	return max(end.Sub(l.since), 1) // 0 means that the Tracer was told before
}

// endLost is endHold for a lock that was lost. It returns the event to report after l.mu is unlocked, or nil for none.
// The caller holds l.mu.
func (l *Lock) endLost(cause LossCause, lost []string, err error) *Lost {
	end := time.Now()
	if !l.released.IsZero() {
		end = l.released
	}
	held := l.endHold(end)
	if held == 0 || l.client.tracer.Lost == nil {
		return nil
	}
	return &Lost{Keys: l.keys, LostKeys: lost, Cause: cause, Held: held, Err: err}
}

// tellLost reports that a release has found keys lost, unless the end of the hold was reported before.
func (l *Lock) tellLost(ctx context.Context, lost []string, cause LossCause, err error) {
	l.mu.Lock()
	event := l.endLost(cause, lost, err)
	l.mu.Unlock()
	if event != nil {
		tell(ctx, l.client.tracer.Lost, *event)
	}
}

// tellReleased reports the end of a Release that was called at the given time.
func (l *Lock) tellReleased(ctx context.Context, called time.Time, err error) {
	t := l.client.tracer
	if t.Released == nil && t.Lost == nil {
		return
	}
	l.mu.Lock()
	held := l.endHold(l.released) // also without Released: a later Release must not report a loss
	l.mu.Unlock()
	tell(ctx, t.Released, Released{Keys: l.keys, Held: held, Wait: time.Since(called), Err: err})
}
