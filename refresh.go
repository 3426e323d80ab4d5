package redislock

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"time"
)

//go:embed refresh.lua
var refreshSource string

var refreshScript = newScript("refresh", refreshSource)

// Refresh gives all keys of the lock the new ttl, counted from now, or none of them if any is lost. With
// [Options.Metadata] it also replaces the metadata. Of the other options only RetryStrategy counts: errors of Redis are
// repeated as it says, while the lock is still valid; a loss is final.
//
// Refresh blocks until Redis answers or ctx ends. One lock has one refresh on the wire at a time; another one waits for
// its turn. It is sent at least once, even past [Lock.Until], for the keys may be there yet. It returns:
//   - [ErrNotObtained] if all keys are lost, if the answer came too late to be relied on, after Release, and for a nil
//     lock;
//   - a [*LostError], which matches [ErrNotObtained] and [ErrLockNotHeld], if some keys are lost;
//   - [ErrInvalid] if ctx is nil or the ttl is under 2 ms;
//   - an error that wraps ctx.Err() if ctx ended first, and whatever Redis reported otherwise. Then it is not known
//     whether the ttl has changed, and Until counts on the worse.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	switch {
	case l == nil:
		return ErrNotObtained
	case ctx == nil:
		return errNilContext
	}
	if err := checkTTL(ttl); err != nil {
		return err
	}
	r := &refreshing{lock: l, ttl: ttl}
	if opt != nil {
		r.metadata = opt.Metadata
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	cut, err := retry(ctx, nil, opt.strategy(), l.Until(), func() (bool, error) { return r.try(ctx) })
	if cut {
		err = failed("refresh", l.keys, fmt.Errorf("%w; the last try: %w", ended(ctx), err))
	}
	if r.abandoned == nil {
		r.end()
	}
	return err
}

// refreshing is one Refresh with all its tries. It belongs to one goroutine at a time: that of the caller, and after an
// abandoned call the one that waits for its end.
type refreshing struct {
	lock     *Lock
	ttl      time.Duration
	metadata string

	before    time.Time // the lock's validity as it was
	lowered   time.Time // what begin made of it
	left      bool      // something was sent
	abandoned *call     // goes on although the caller has left
}

// begin waits for the lock's turn to refresh, and brings the validity forward to what a shorter ttl leaves of it: the
// ttl may be that from the moment the request leaves.
func (r *refreshing) begin(ctx context.Context) error {
	l := r.lock
	for {
		if err := ended(ctx); err != nil {
			return failed("refresh", l.keys, err)
		}
		l.mu.Lock()
		turn := l.refreshing
		if turn == nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
		}
	}
	defer l.mu.Unlock()
	if !l.released.IsZero() {
		return ErrNotObtained
	}
	l.refreshing = make(chan struct{})
	r.before, r.lowered = l.until, l.until
	if shorter := validUntil(time.Now(), r.ttl); shorter.Before(l.until) {
		r.lowered = shorter
		l.until = shorter
	}
	return nil
}

// end gives the turn to the next refresh. Where nothing was sent, the validity is what it was.
func (r *refreshing) end() {
	l := r.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.left && l.until.Equal(r.lowered) {
		l.until = r.before
	}
	close(l.refreshing)
	l.refreshing = nil
}

// try sends the refresh once. It reports whether that failed in a way that makes another try worthwhile.
func (r *refreshing) try(ctx context.Context) (again bool, err error) {
	l := r.lock
	c := &call{
		script: refreshScript,
		keys:   l.keys,
		token:  l.token,
		args:   []any{r.ttl.Milliseconds(), r.metadata},
		ctx:    ctx,
		giveUp: l.Until(),
	}
	if !l.client.node.do(ctx, c) {
		r.abandoned = c
		go func() { // ends with the call
			<-c.done
			_, _ = r.settle(c)
			r.end()
		}()
		return false, failed("refresh", l.keys, ended(ctx))
	}
	again, err = r.settle(c)
	if again && ended(ctx) != nil {
		return false, failed("refresh", l.keys, ended(ctx))
	}
	return again, err
}

// settle draws the conclusions from a call that has ended.
func (r *refreshing) settle(c *call) (again bool, err error) {
	l := r.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	r.left = r.left || !c.first.IsZero()
	if c.doubtful && (l.unanswered == 0 || r.ttl < l.unanswered) {
		l.unanswered = r.ttl
	}
	if c.err != nil {
		return true, failed("refresh", l.keys, explain(l.keys, c.err))
	}
	if err := loss(l.keys, c.reply, ErrNotObtained); err != nil {
		if now := time.Now(); now.Before(l.until) {
			l.until = now
		}
		return false, err
	}
	certain := r.ttl
	if l.unanswered > 0 {
		certain = min(certain, l.unanswered)
	}
	l.until = validUntil(c.sent, certain)
	if r.metadata != "" {
		l.metadata = r.metadata
	}
	if passed(l.until) {
		return false, ErrNotObtained
	}
	return false, nil
}
