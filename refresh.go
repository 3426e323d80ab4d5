package redislock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// Refresh gives all keys of the lock the new ttl, counted from now, or changes nothing if any key is lost. With
// [Options.Metadata], it also replaces the metadata. While the lock is still valid, it retries errors of Redis as
// RetryStrategy says. It does not retry after a loss. It ignores the other options.
//
// Refresh blocks until Redis answers, ctx ends or the lock is no longer valid, and then up to 250 ms more for a late
// answer. Calls on one lock take turns within that time. A call also waits for an abandoned Refresh that was for a
// shorter ttl and is still on its way. Refresh sends at least one request, even past [Lock.Until], because the keys may
// still exist; but not if some request of the Obtain was never answered, because that may have acquired the keys again,
// after another holder. It returns:
//   - [ErrNotObtained] if all keys are lost or it must not rely on them, after Release, and for a nil lock;
//   - ErrNotObtained if the answer came too late to be relied on; for a lock on several servers or slots, an error that
//     matches it;
//   - a [*LostError], which matches [ErrNotObtained] and [ErrLockNotHeld], if some keys are lost;
//   - an error that wraps [ErrInvalid] if ctx is nil or the ttl is under 2 ms;
//   - an error that wraps ctx.Err() if ctx ended first, an error that wraps [ErrLapsed] if there was no answer by 250
//     ms after Until, and any other error of Redis, wrapped. After these three, nobody knows whether the ttl has
//     changed or still will change. So Until assumes the worse: unless the answer arrives after all, this handle
//     promises no more than that ttl from then on, even after a Refresh with a longer one.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	switch {
	case !l.exists():
		return ErrNotObtained
	case ctx == nil:
		return errNilContext
	}
	if err := checkTTL(ttl); err != nil {
		return err
	}
	t := l.client.tracer
	if t.Refreshed == nil {
		return l.refresh(ctx, ttl, opt)
	}
	until, err := l.Until(), errPanicked // unless refresh returns
	defer func() {
		t.Refreshed(ctx, Refreshed{Keys: l.keys, TTL: ttl, Left: max(0, time.Until(until)), Err: err})
	}()
	err = l.refresh(ctx, ttl, opt)
	return err
}

// refresh is Refresh with arguments that can be used.
func (l *Lock) refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	if h := l.parts(); h != nil {
		return h.refresh(ctx, ttl, opt)
	}
	r := &refreshing{lock: l, ttl: ttl, call: l.known()}
	if opt != nil {
		r.metadata = opt.Metadata
	}
	if err := r.begin(ctx); err != nil {
		l.client.ended(r.call)
		return err
	}
	l.renewSooner()
	valid, stop := l.whileValid(ctx, lateAnswer)
	defer stop()
	cut, err := func() (bool, error) {
		defer r.finish() // also if a hook or a strategy panics: otherwise the next Refresh would wait for this one
		return retry(valid, nil, opt.strategy(), l.Until(), func() (bool, error) { return r.try(ctx, valid) })
	}()
	if cut {
		err = failed("refresh", l.keys, fmt.Errorf("%w; the last try: %w", outlived(ctx), err))
	}
	l.lapse() // if it was found lost
	l.renewSooner()
	if r.loss != nil {
		tell(ctx, l.client.tracer.Lost, *r.loss)
	}
	return err
}

// lateAnswer is how long past Until a Refresh waits. On one place, an answer that comes so late may still extend the
// validity. On several, only if the lock had lapsed before the Refresh began.
const lateAnswer = 250 * time.Millisecond

// whileValid returns a ctx that ends with ctx, and so long after the lock's validity. If Refresh waited any longer for a
// server that hangs, the holder would go on believing that it has the lock. Call the returned function, which also ends
// the ctx.
func (l *Lock) whileValid(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	free, leave := detached(ctx) // has no deadline: with ContextTimeoutEnabled, go-redis would stop waiting for the answer
	limited, cancel := context.WithCancel(free)
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() { // Reset below, when the variable is set
		// A renewal may have prolonged the validity meanwhile.
		if left := time.Until(l.Until()); left > 0 && limited.Err() == nil {
			timer.Reset(left + after)
			return
		}
		cancel()
	})
	timer.Reset(max(time.Until(l.Until()), 0) + after)
	return limited, func() {
		timer.Stop()
		leave()
		cancel()
	}
}

// outlived returns why a ctx that whileValid made from ctx has ended.
func outlived(ctx context.Context) error {
	if err := ended(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w, and Redis has not answered the refresh", ErrLapsed)
}

// renewSooner tells the scheduler, if the lock is kept, that its renewal may be due sooner than before.
func (l *Lock) renewSooner() {
	l.mu.Lock()
	due := l.lease.Due()
	l.mu.Unlock()
	l.client.renewals.lookBy(l, due)
}

// known lets a later obtain with the same custom token wait for a refresh: executed after that obtain, it could shorten
// the ttl. A later obtain has a random token only if its caller passes that of this lock, and seldom, so for one it returns
// nil, and the refresh becomes known when it is abandoned. Call it before it is checked whether the lock was released, and
// Client.ended when the refresh has ended.
func (l *Lock) known() *cleanup {
	if l.random {
		return nil
	}
	return l.client.underWay(l.token, l.keys)
}

// refreshing is one Refresh with all its tries. Lock.mu protects the fields from refresh on.
type refreshing struct {
	lock     *Lock
	ttl      time.Duration
	metadata string
	call     *cleanup // see Lock.known

	refresh   *lease.Refresh // its part in the lease
	abandoned bool           // its call goes on although nobody waits for it
	sent      bool           // something was sent
	loss      *Lost          // what to tell a Tracer; nil if nothing was lost
	losses    int32          // of the lock when the refresh began
}

// begin waits for the refresh's turn. It brings the validity forward if the new ttl is shorter, because that ttl may
// apply as soon as the request is sent. If the turn does not come while the lock is valid, the refresh is sent all the
// same: conclude allows for other refreshes that may be executed after it.
func (r *refreshing) begin(ctx context.Context) error {
	l := r.lock
	var turn context.Context // nil until there is a refresh to wait for
	stop := context.CancelFunc(func() {})
	defer func() { stop() }()
	for {
		if err := ended(ctx); err != nil {
			return failed("refresh", l.keys, err)
		}
		l.mu.Lock()
		ahead := l.lease.Ahead(r.ttl)
		if ahead == nil || turn != nil && turn.Err() != nil {
			break
		}
		l.mu.Unlock()
		if turn == nil {
			turn, stop = l.whileValid(ctx, 0)
		}
		select {
		case <-ahead.Ended():
		case <-turn.Done():
		}
	}
	defer l.mu.Unlock()
	if !l.released.IsZero() {
		return ErrNotObtained
	}
	if l.doubtful && l.number == 0 && lease.Passed(l.lease.Until()) { // the keys may be there again, after another holder
		return ErrNotObtained
	}
	r.refresh, r.losses = l.lease.Begin(time.Now(), r.ttl), l.losses
	return nil
}

// finish ends a refresh, unless its call goes on.
func (r *refreshing) finish() {
	if !r.abandoned {
		r.end()
	}
}

// end notes that nothing more is sent.
func (r *refreshing) end() {
	l := r.lock
	l.mu.Lock()
	l.lease.Finish(r.refresh, r.sent)
	l.mu.Unlock()
	l.client.ended(r.call)
}

// try sends the refresh once. It reports whether it failed in a way that makes another try worthwhile. valid comes from
// whileValid.
func (r *refreshing) try(ctx, valid context.Context) (again bool, err error) {
	l := r.lock
	c := l.newRefresh(valid, r.ttl, r.metadata, false)
	c.GiveUp = l.Until()
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and it is not known what the server did
			l.mu.Lock()
			defer l.mu.Unlock()
			r.note(c)
		}
	}()
	answered := l.client.redis.Do(valid, c)
	returned = true
	if !answered {
		r.abandon(c)
		return false, failed("refresh", l.keys, outlived(ctx))
	}
	again, err = r.conclude(c)
	if again && (ended(ctx) != nil || valid.Err() != nil) {
		return false, failed("refresh", l.keys, outlived(ctx))
	}
	return again, err
}

// abandon lets a call go on without its caller.
func (r *refreshing) abandon(c *transport.Call) {
	l := r.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	r.abandoned = true
	r.refresh.Abandon()
	if r.call == nil {
		r.call = l.client.underWay(l.token, l.keys)
	}
	go func() { // ends with the call
		<-c.Done()
		l.mu.Lock()
		r.note(c)
		l.mu.Unlock()
		r.end()
		if l.number > 0 {
			l.holds.until() // if nothing was sent, the hold lasts as long as before, and so may the lock
		}
	}()
}

// note notes what is known of a call that has ended, whether it succeeded or not. The caller holds l.mu.
func (r *refreshing) note(c *transport.Call) {
	r.sent = r.sent || !c.First.IsZero()
	if c.Doubtful {
		r.lock.lease.Doubt(r.refresh)
	}
}

// conclude applies the result of a call that has ended to the lock.
func (r *refreshing) conclude(c *transport.Call) (again bool, err error) {
	l := r.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	r.note(c)
	if c.Err != nil {
		return true, failed("refresh", l.keys, withHint(l.keys, c.Err))
	}
	switch err := readLoss(l.keys, c.Reply, ErrNotObtained); {
	case errors.Is(err, ErrNotObtained):
		r.loss = l.lose(c.Reply)
		return false, err
	case err != nil:
		return false, failed("refresh", l.keys, err)
	}
	if l.losses != r.losses { // a later request has found the keys lost
		return false, ErrNotObtained
	}
	l.lease.Confirm(r.refresh, c.Sent)
	late := lease.Passed(l.lease.Until())
	if l.released.IsZero() {
		l.ended, l.told = nil, l.told && late // a late one revives no hold
	}
	l.renewErr = nil
	if r.metadata != "" {
		l.metadata = r.metadata
	}
	if late {
		return false, ErrNotObtained
	}
	return false, nil
}
