package place

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Refresh does the work of Lock.Refresh in the root, whose arguments are checked.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, metadata string, strategy retry.Strategy) error {
	r := &refreshing{lock: l, ttl: ttl, metadata: metadata, users: 1}
	if l.Origin != claim.Random {
		r.announce() // before begin checks whether the lock was released
	}
	if err := r.begin(ctx); err != nil {
		l.Place.Ledger.End(r.work)
		return err
	}
	l.renewSooner()
	valid, stop := WhileValid(ctx, l, l.Place.LateAnswer())
	defer stop()
	cut, err := func() (bool, error) {
		defer func() { // also if a hook or a strategy panics, because the next Refresh waits for this one
			r.leave()
		}()
		return retry.Do(valid, nil, strategy, life.Until(l), func() (bool, error) { return r.try(ctx, valid) })
	}()
	if cut {
		err = fault.Failed("refresh", l.Keys.Names, fmt.Errorf("%w; the last try: %w", Outlived(ctx), err))
	}
	life.Lapse(l) // if the lock was found lost
	l.renewSooner()
	l.Events().SendRestored(ctx, l.Keys.Names, r.back)
	l.Events().SendLost(ctx, r.loss)
	return err
}

// refreshing is one Refresh with all its tries. Life.Mu protects the fields from refresh on.
type refreshing struct {
	lock     *Lock
	ttl      time.Duration
	metadata string
	work     *claim.Work // see announce; nil before that

	refresh  *lease.Refresh // as the lease knows it
	prolongs bool           // it leaves keys alone that last longer
	users    int            // its caller, until that returns, and those who wait for calls that go on after their try
	sent     bool           // a request was sent
	loss     *life.Lost     // the event to send; nil for none
	losses   int32          // of the lock, when the refresh began
	back     []string       // the keys that a guard has put back
	postpone time.Duration  // a guard has not executed the last call; send it again after that time
}

// announce makes a later obtain with the same token wait for the refresh. Executed after that obtain, the refresh could
// shorten the ttl. With a random token, a refresh is announced only when it is abandoned, because a later obtain has such a
// token only if its caller passes Lock.Token.
func (r *refreshing) announce() {
	if r.work == nil {
		r.work = &claim.Work{Token: r.lock.Token, Keys: r.lock.Keys.Names}
		r.lock.Place.Ledger.Begin(r.work)
	}
}

// begin waits for the turn of the refresh. If the new ttl is shorter, begin brings the validity forward, because that ttl
// may apply as soon as the request is sent. If the turn does not come while the lock is valid, the refresh is sent anyway.
// This is safe, because conclude allows for other refreshes that may be executed after it.
func (r *refreshing) begin(ctx context.Context) error {
	l := r.lock
	var turn context.Context // nil until there is a refresh to wait for
	stop := context.CancelFunc(func() {})
	defer func() { stop() }()
	for {
		if err := fault.Ended(ctx); err != nil {
			return fault.Failed("refresh", l.Keys.Names, err)
		}
		l.Life.Mu.Lock()
		ahead := l.Lease.Ahead(r.ttl)
		if ahead == nil || turn != nil && turn.Err() != nil {
			break
		}
		l.Life.Mu.Unlock()
		if turn == nil {
			turn, stop = WhileValid(ctx, l, 0)
		}
		select {
		case <-ahead.Ended():
		case <-turn.Done():
		}
	}
	defer l.Life.Mu.Unlock()
	if l.IsReleased() {
		return fault.ErrNotObtained
	}
	// After a lapse, the keys may be there again, and another holder may have come and gone.
	if (l.IsDoubtful() || l.Place.IsGuarded()) && lease.Passed(l.Lease.Until()) {
		return fault.ErrNotObtained
	}
	r.prolongs = (l.Origin == claim.Random) && r.metadata == "" && l.Lease.Prolongs(r.ttl)
	r.refresh, r.losses = l.Lease.Begin(time.Now(), r.ttl, r.prolongs), l.Losses()
	return nil
}

// leave notes that one of its users has left. The last one ends the refresh: nothing more is sent or under way.
func (r *refreshing) leave() {
	l := r.lock
	l.Life.Mu.Lock()
	r.users--
	last := r.users == 0
	if last {
		l.Lease.Finish(r.refresh, r.sent)
	}
	l.Life.Mu.Unlock()
	if last {
		l.Place.Ledger.End(r.work)
	}
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
		case <-r.lock.Begun():
			timer.Stop()
			return false, fault.ErrNotObtained
		case <-valid.Done():
			timer.Stop()
			return false, fault.Failed("refresh", r.lock.Keys.Names, fmt.Errorf("%w; the last try: %w", Outlived(ctx), err))
		}
	}
}

// send does the work of try for one call.
func (r *refreshing) send(ctx, valid context.Context) (again bool, err error) {
	l := r.lock
	r.postpone = 0
	if !l.BeginRefresh() {
		return false, fault.ErrNotObtained
	}
	c := l.RefreshCall(r.ttl, r.metadata, l.Metadata(), r.prolongs)
	c.GiveUp = life.Until(l)
	if r.work != nil {
		r.work.Note(c)
	}
	c, answered := l.SendRefresh(valid, c, r.prolongs, r.abandon, r.ended)
	if !answered {
		return false, fault.Failed("refresh", l.Keys.Names, Outlived(ctx))
	}
	again, err = r.conclude(c)
	if again && (fault.Ended(ctx) != nil || valid.Err() != nil) {
		return false, fault.Failed("refresh", l.Keys.Names, Outlived(ctx))
	}
	return again, err
}

// abandon lets calls go on after their try.
func (r *refreshing) abandon() {
	r.lock.Life.Mu.Lock()
	defer r.lock.Life.Mu.Unlock()
	r.users++
	r.refresh.Abandon()
	r.announce()
}

// ended notes that the calls have ended for which abandon was called. What they have confirmed gains nothing. What they have
// found lost counts, unless conclude has seen the last one, or another refresh has begun since: it may know better.
func (r *refreshing) ended(calls []*transport.Call, _, returned bool) {
	l := r.lock
	var lost *life.Lost
	l.Life.Mu.Lock()
	for _, c := range calls {
		r.note(c)
		got, err := l.ReadRefresh("refresh", c)
		if !returned && errors.Is(err, fault.ErrNotObtained) && l.Lease.Begun() == r.refresh.Begun {
			lost = l.lose(got.Loss, l.Place.contextCause(got.Loss))
		}
	}
	l.Life.Mu.Unlock()
	r.leave()
	life.Lapse(l) // if the lock was found lost
	l.Events().LaterLost(context.WithoutCancel(calls[0].Ctx), lost)
}

// note notes what is known of a call that has ended, with or without success. The caller holds Life.Mu.
func (r *refreshing) note(c *transport.Call) {
	r.sent = r.sent || !c.First.IsZero()
	if c.Doubtful {
		r.lock.Lease.Doubt(r.refresh)
	}
}

// conclude applies the result of a call that has ended to the lock.
func (r *refreshing) conclude(c *transport.Call) (again bool, err error) {
	l := r.lock
	l.Life.Mu.Lock()
	defer l.Life.Mu.Unlock()
	r.note(c)
	got, err := l.ReadRefresh("refresh", c)
	r.postpone, r.back = got.Again, append(r.back, got.Back...)
	switch {
	case c.Err != nil:
		return true, err
	case errors.Is(err, fault.ErrNotObtained):
		r.loss = l.lose(got.Loss, l.Place.contextCause(got.Loss))
		return false, err
	case err != nil:
		return false, err
	case l.Place.IsGuarded() && lease.Passed(l.Lease.Until()): // nobody knows who has had the keys since
		return false, fault.ErrNotObtained
	}
	if l.Losses() != r.losses { // a request that was sent later has found the keys lost
		return false, fault.ErrNotObtained
	}
	l.Lease.Confirm(r.refresh, c.Sent)
	if l.IsReleased() { // a release that was sent after the end of the validity before may have freed the keys
		l.Know(l.Lease.Until())
	}
	late := lease.Passed(l.Lease.Until())
	if l.IsLost() {
		l.Hold.Lose(script.Loss{}, time.Time{}) // another handle has got the keys back
	}
	l.Revive(!late)
	l.SetMetadata(r.metadata)
	if late {
		return false, fault.ErrNotObtained
	}
	return false, nil
}
