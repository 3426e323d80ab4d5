package place

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Refresh does the work of Lock.Refresh in the root, whose arguments are checked.
func (h *Hold) Refresh(ctx context.Context, ttl time.Duration, metadata string, strategy retry.Strategy) error {
	r := &refreshing{hold: h, ttl: ttl, metadata: metadata}
	if !h.random {
		r.announce() // before begin checks whether the lock was released
	}
	if err := r.begin(ctx); err != nil {
		h.Place.Cleanups.End(r.work)
		return err
	}
	h.renewSooner()
	valid, stop := WhileValid(ctx, h, h.Place.LateAnswer())
	defer stop()
	cut, err := func() (bool, error) {
		defer func() { // also if a hook or a strategy panics, because the next Refresh waits for this one
			if !r.abandoned { // otherwise the call goes on
				r.end()
			}
		}()
		return retry.Do(valid, nil, strategy, life.Until(h), func() (bool, error) { return r.try(ctx, valid) })
	}()
	if cut {
		err = fault.Failed("refresh", h.Keys.Names, fmt.Errorf("%w; the last try: %w", Outlived(ctx), err))
	}
	life.Lapse(h) // if the lock was found lost
	h.renewSooner()
	h.Events().SendRestored(ctx, h.Keys.Names, r.back)
	h.Events().SendLost(ctx, r.loss)
	return err
}

// refreshing is one Refresh with all its tries. Life.Mu protects the fields from refresh on.
type refreshing struct {
	hold     *Hold
	ttl      time.Duration
	metadata string
	work     *undo.Work // see announce; nil before that

	refresh   *lease.Refresh // as the lease knows it
	abandoned bool           // its call goes on after its caller has returned
	sent      bool           // a request was sent
	loss      *life.Lost     // the event to send; nil for none
	losses    int32          // of the lock, when the refresh began
	back      []string       // the keys that a guard has put back
	postpone  time.Duration  // a guard has not executed the last call; send it again after that time
}

// announce makes a later obtain with the same token wait for the refresh. Executed after that obtain, the refresh could
// shorten the ttl. With a random token, a refresh is announced only when it is abandoned, because a later obtain has such a
// token only if its caller passes Lock.Token.
func (r *refreshing) announce() {
	if r.work == nil {
		r.work = &undo.Work{Token: r.hold.Token, Keys: r.hold.Keys.Names}
		r.hold.Place.Cleanups.Begin(r.work)
	}
}

// begin waits for the turn of the refresh. If the new ttl is shorter, begin brings the validity forward, because that ttl
// may apply as soon as the request is sent. If the turn does not come while the lock is valid, the refresh is sent anyway.
// This is safe, because conclude allows for other refreshes that may be executed after it.
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
	if (h.isDoubtful() || h.Place.IsGuarded()) && lease.Passed(h.Lease.Until()) {
		return fault.ErrNotObtained
	}
	r.refresh, r.losses = h.Lease.Begin(time.Now(), r.ttl), h.Losses()
	return nil
}

// end ends the refresh: nothing more is sent.
func (r *refreshing) end() {
	h := r.hold
	h.Life.Mu.Lock()
	h.Lease.Finish(r.refresh, r.sent)
	h.Life.Mu.Unlock()
	h.Place.Cleanups.End(r.work)
}

// try sends the refresh once, and again when a guard that has just closed executes refreshes. again says whether it failed
// in a way that makes another try worthwhile. WhileValid has made valid from ctx.
func (r *refreshing) try(ctx, valid context.Context) (again bool, err error) {
	for {
		again, err = r.send(ctx, valid)
		if r.postpone == 0 {
			return again, err
		}
		timer := time.NewTimer(r.postpone)
		select {
		case <-timer.C:
		case <-r.hold.awaitRelease():
			timer.Stop()
			return false, fault.ErrNotObtained
		case <-valid.Done():
			timer.Stop()
			return false, fault.Failed("refresh", r.hold.Keys.Names, fmt.Errorf("%w; the last try: %w", Outlived(ctx), err))
		}
	}
}

// send does the work of try for one call.
func (r *refreshing) send(ctx, valid context.Context) (again bool, err error) {
	h := r.hold
	r.postpone = 0
	ended, may := h.BeginRevival()
	if !may { // the lock was released, and the refresh could put its keys back
		ended(false)
		return false, fault.ErrNotObtained
	}
	c := h.RefreshCall(r.ttl, r.metadata, h.Metadata(), false)
	c.Ctx = valid
	c.GiveUp = life.Until(h)
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and nobody knows what the server did
			h.Life.Mu.Lock()
			defer h.Life.Mu.Unlock()
			r.note(c)
			ended(true)
		}
	}()
	if r.work != nil {
		h.Place.Cleanups.Note(r.work, c)
	}
	answered := h.Place.Redis.Do(valid, c)
	returned = true
	if !answered {
		r.abandon(c, ended)
		return false, fault.Failed("refresh", h.Keys.Names, Outlived(ctx))
	}
	ended(c.Doubtful)
	again, err = r.conclude(c)
	if again && (fault.Ended(ctx) != nil || valid.Err() != nil) {
		return false, fault.Failed("refresh", h.Keys.Names, Outlived(ctx))
	}
	return again, err
}

// abandon lets a call go on after its caller has returned.
func (r *refreshing) abandon(c *transport.Call, ended func(doubtful bool)) {
	h := r.hold
	h.Life.Mu.Lock()
	defer h.Life.Mu.Unlock()
	r.abandoned = true
	r.refresh.Abandon()
	r.announce()
	go func() { // ends with the call
		<-c.Done()
		ended(c.Doubtful)
		h.Life.Mu.Lock()
		r.note(c)
		h.Life.Mu.Unlock()
		r.end()
	}()
}

// note notes what is known of a call that has ended, with or without success. The caller holds Life.Mu.
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
	got, err := h.ReadRefresh("refresh", c)
	r.postpone, r.back = got.Again, append(r.back, got.Back...)
	switch {
	case c.Err != nil:
		return true, err
	case errors.Is(err, fault.ErrNotObtained):
		r.loss = h.lose(got.Loss, h.Place.contextCause(got.Loss))
		return false, err
	case err != nil:
		return false, err
	case h.Place.IsGuarded() && lease.Passed(h.Lease.Until()): // nobody knows who has had the keys since
		return false, fault.ErrNotObtained
	}
	if h.Losses() != r.losses { // a request that was sent later has found the keys lost
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
