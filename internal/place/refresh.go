package place

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Refresh is Refresh with arguments that can be used.
func (h *Hold) Refresh(ctx context.Context, ttl time.Duration, metadata string, strategy retry.Strategy) error {
	r := &refreshing{hold: h, ttl: ttl, metadata: metadata, call: h.known()}
	if err := r.begin(ctx); err != nil {
		h.Place.Cleanups.End(r.call)
		return err
	}
	h.renewSooner()
	valid, stop := WhileValid(ctx, h, LateAnswer)
	defer stop()
	cut, err := func() (bool, error) {
		defer r.finish() // also if a hook or a strategy panics: otherwise the next Refresh would wait for this one
		return retry.Do(valid, nil, strategy, life.Until(h), func() (bool, error) { return r.try(ctx, valid) })
	}()
	if cut {
		err = fault.Failed("refresh", h.Keys.Names, fmt.Errorf("%w; the last try: %w", Outlived(ctx), err))
	}
	life.Lapse(h) // if it was found lost
	h.renewSooner()
	if r.loss != nil {
		h.Events().Lost(ctx, *r.loss)
	}
	return err
}

// LateAnswer is how long past Until a Refresh waits. On one place, an answer that comes so late may still extend the
// validity. On several, only if the lock had lapsed before the Refresh began.
const LateAnswer = 250 * time.Millisecond

// WhileValid returns a ctx that ends with ctx, and so long after the lock's validity. If Refresh waited any longer for a
// server that hangs, the holder would go on believing that it has the lock. Call the returned function, which also ends
// the ctx.
func WhileValid(ctx context.Context, b life.Bearer, after time.Duration) (context.Context, context.CancelFunc) {
	free, leave := Detached(ctx) // has no deadline: with ContextTimeoutEnabled, go-redis would stop waiting for the answer
	limited, cancel := context.WithCancel(free)
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() { // Reset below, when the variable is set
		// A renewal may have prolonged the validity meanwhile.
		if left := time.Until(life.Until(b)); left > 0 && limited.Err() == nil {
			timer.Reset(left + after)
			return
		}
		cancel()
	})
	timer.Reset(max(time.Until(life.Until(b)), 0) + after)
	return limited, func() {
		timer.Stop()
		leave()
		cancel()
	}
}

// Detached returns a ctx for calls that may outlast their caller: it has the values of ctx and ends with ctx, until the
// returned function is called.
func Detached(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return ctx, func() {}
	}
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func() { stop() }
}

// Outlived returns why a ctx that WhileValid made from ctx has ended.
func Outlived(ctx context.Context) error {
	if err := fault.Ended(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w, and Redis has not answered the refresh", fault.ErrLapsed)
}

// known lets a later obtain with the same custom token wait for a refresh: executed after that obtain, it could shorten
// the ttl. A later obtain has a random token only if its caller passes that of this lock, and seldom, so for one it returns
// nil, and the refresh becomes known when it is abandoned. Call it before it is checked whether the lock was released, and
// Cleanups.End when the refresh has ended.
func (h *Hold) known() *undo.Work {
	if h.Random {
		return nil
	}
	return h.pend()
}

// pend makes a refresh known to later obtains with the same token.
func (h *Hold) pend() *undo.Work {
	p := &undo.Work{Token: h.Token, Keys: h.Keys.Names}
	h.Place.Cleanups.Begin(p)
	return p
}

// refreshing is one Refresh with all its tries. Life.Mu protects the fields from refresh on.
type refreshing struct {
	hold     *Hold
	ttl      time.Duration
	metadata string
	call     *undo.Work // see Hold.known

	refresh   *lease.Refresh // its part in the lease
	abandoned bool           // its call goes on although nobody waits for it
	sent      bool           // something was sent
	loss      *life.Lost     // what to tell; nil if nothing was lost
	losses    int32          // of the lock when the refresh began
}

// begin waits for the refresh's turn. It brings the validity forward if the new ttl is shorter, because that ttl may
// apply as soon as the request is sent. If the turn does not come while the lock is valid, the refresh is sent all the
// same: conclude allows for other refreshes that may be executed after it.
func (r *refreshing) begin(ctx context.Context) error {
	h := r.hold
	var turn context.Context // nil until there is a refresh to wait for
	stop := context.CancelFunc(func() {})
	defer func() { stop() }()
	for {
		if err := fault.Ended(ctx); err != nil {
			return fault.Failed("refresh", h.Keys.Names, err)
		}
		h.Life.Mu.Lock()
		ahead := h.Lease.Ahead(r.ttl)
		if ahead == nil || turn != nil && turn.Err() != nil {
			break
		}
		h.Life.Mu.Unlock()
		if turn == nil {
			turn, stop = WhileValid(ctx, h, 0)
		}
		select {
		case <-ahead.Ended():
		case <-turn.Done():
		}
	}
	defer h.Life.Mu.Unlock()
	if h.IsReleased() {
		return fault.ErrNotObtained
	}
	// After a lapse, the keys may be there again, and another holder may have come and gone.
	if h.isDoubtful() && lease.Passed(h.Lease.Until()) {
		return fault.ErrNotObtained
	}
	r.refresh, r.losses = h.Lease.Begin(time.Now(), r.ttl), h.Losses()
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
	h := r.hold
	h.Life.Mu.Lock()
	h.Lease.Finish(r.refresh, r.sent)
	h.Life.Mu.Unlock()
	h.Place.Cleanups.End(r.call)
}

// try sends the refresh once. It reports whether it failed in a way that makes another try worthwhile. valid comes from
// WhileValid.
func (r *refreshing) try(ctx, valid context.Context) (again bool, err error) {
	h := r.hold
	c := h.RefreshCall(r.ttl, r.metadata, false)
	c.Ctx = valid
	c.GiveUp = life.Until(h)
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and it is not known what the server did
			h.Life.Mu.Lock()
			defer h.Life.Mu.Unlock()
			r.note(c)
		}
	}()
	if r.call != nil {
		h.Place.Cleanups.Note(r.call, c)
	}
	answered := h.Place.Redis.Do(valid, c)
	returned = true
	if !answered {
		r.abandon(c)
		return false, fault.Failed("refresh", h.Keys.Names, Outlived(ctx))
	}
	again, err = r.conclude(c)
	if again && (fault.Ended(ctx) != nil || valid.Err() != nil) {
		return false, fault.Failed("refresh", h.Keys.Names, Outlived(ctx))
	}
	return again, err
}

// abandon lets a call go on without its caller.
func (r *refreshing) abandon(c *transport.Call) {
	h := r.hold
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	r.abandoned = true
	r.refresh.Abandon()
	if r.call == nil {
		r.call = h.pend()
	}
	go func() { // ends with the call
		<-c.Done()
		h.Life.Mu.Lock()
		r.note(c)
		h.Life.Mu.Unlock()
		r.end()
	}()
}

// note notes what is known of a call that has ended, whether it succeeded or not. The caller holds h.Life.Mu.
func (r *refreshing) note(c *transport.Call) {
	r.sent = r.sent || !c.First.IsZero()
	if c.Doubtful {
		r.hold.Lease.Doubt(r.refresh)
	}
}

// conclude applies the result of a call that has ended to the lock.
func (r *refreshing) conclude(c *transport.Call) (again bool, err error) {
	h := r.hold
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	r.note(c)
	switch loss, err := h.ReadRefresh("refresh", c); {
	case c.Err != nil:
		return true, err
	case errors.Is(err, fault.ErrNotObtained):
		r.loss = h.lose(loss, h.Place.contextCause(loss))
		return false, err
	case err != nil:
		return false, err
	}
	if h.Losses() != r.losses { // a later request has found the keys lost
		return false, fault.ErrNotObtained
	}
	h.Lease.Confirm(r.refresh, c.Sent)
	late := lease.Passed(h.Lease.Until())
	h.Revive(!late)
	h.SetMetadata(r.metadata)
	if late {
		return false, fault.ErrNotObtained
	}
	return false, nil
}
