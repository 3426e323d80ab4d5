package redislock

import (
	"context"
	"errors"
	"time"
)

// seen is what an obtain has come to so far, for a Tracer.
type seen struct {
	tries     int
	resends   int
	explained int // the try whose refusal was explained; 0 for none
}

// errPanicked is what a Tracer is told of an obtain that a panic has ended: the caller gets the panic.
var errPanicked = errors.New("redislock: a hook, a strategy or a tracer panicked")

// watched is run, with its beginning and its end told to the Tracer.
func (o *obtaining) watched(ctx context.Context, strategy RetryStrategy) (lock *Lock, err error) {
	t := o.client.tracer
	ctx = t.obtainStart(ctx, ObtainStart{Keys: o.keys, TTL: o.ttl, Queue: o.waiter != nil || o.spread != nil && o.spread.queue, Fenced: o.fenceKey != ""})
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
		t.ObtainEnd(ctx, end)
	}()
	lock, why := o.run(ctx, strategy)
	err = o.explained(ctx, why)
	return lock, err
}

// attempt is try, with a refusal taken down.
func (o *obtaining) attempt(ctx context.Context) (again bool, err error) {
	again, err = o.try(ctx)
	if err == ErrNotObtained && (o.explain || o.client.tracer.Refused != nil) {
		o.refused(ctx)
	}
	return again, err
}

// endHold ends the present hold for a Tracer, and returns how long it was; 0 if its end has been told before. l.mu is held.
func (l *Lock) endHold(end time.Time) time.Duration {
	if l.told {
		return 0
	}
	l.told = true
	return max(end.Sub(l.since), 1) // 0 says that it was told before
}

// endLost is endHold for a lock that was lost. It returns what to tell once l.mu is not held any more, nil for nothing.
// l.mu is held.
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

// tellLost tells that a release has found keys lost, unless the hold has ended before.
func (l *Lock) tellLost(ctx context.Context, lost []string, cause LossCause, err error) {
	l.mu.Lock()
	event := l.endLost(cause, lost, err)
	l.mu.Unlock()
	if event != nil {
		tell(ctx, l.client.tracer.Lost, *event)
	}
}

// tellReleased tells how a Release has ended that was called at that time.
func (l *Lock) tellReleased(ctx context.Context, called time.Time, err error) {
	t := l.client.tracer
	if t.Released == nil {
		return
	}
	l.mu.Lock()
	held := l.endHold(l.released)
	l.mu.Unlock()
	t.Released(ctx, Released{Keys: l.keys, Held: held, Wait: time.Since(called), Err: err})
}
