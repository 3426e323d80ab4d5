package place

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Hold is what a token has at a place. It does not know for how long that is valid.
type Hold struct {
	claim.Claim

	Place *Place
}

// Begin says what the hold is of.
func (h *Hold) Begin(p *Place, token string, keys script.Keys, origin claim.Origin) {
	h.Place, h.Ledger, h.Token, h.Keys, h.Origin = p, &p.Ledger, token, keys, origin
}

// RefreshCall returns an unsent call that gives the keys a new ttl; see script.Scripts.Refresh.
func (h *Hold) RefreshCall(ttl time.Duration, metadata, kept string, prolongs bool) *transport.Call {
	return h.Place.set.Scripts.Refresh(h.Token, h.Keys, ttl, metadata, kept, prolongs)
}

// SendRefresh sends a call of RefreshCall until ctx ends. It returns the last call, and whether that has finished. If the
// refresh only prolongs, and no other claim can have the token, a late execution does no harm: then another call goes at
// once in place of one whose connection has died.
//
// If some call may still be executed, or a hook panics, SendRefresh calls left before it returns, and ended when the calls
// have ended, in another goroutine: with all of them, whether one may still be executed even then, and whether the last one
// was returned as finished.
func (h *Hold) SendRefresh(
	ctx context.Context, call *transport.Call, prolongs bool,
	left func(), ended func(calls []*transport.Call, doubtful, returned bool),
) (last *transport.Call, answered bool) {
	call.Ctx = ctx
	var lost []*transport.Call // those that may still be executed
	finished := false
	end := func(panicked bool) {
		c, returned := call, finished
		doubtful := panicked || returned && c.Doubtful
		switch {
		case returned && len(lost) == 0:
			h.EndRefresh(doubtful, c)
			return
		case panicked && c.Err == nil:
			c.Err = fault.ErrPanicked
		case returned:
			c.Doubtful = true // as long as a lost one may be executed
		}
		left()
		go func() { // ends with the calls
			for _, other := range lost {
				<-other.Done()
				doubtful = doubtful || other.Doubtful
			}
			if !returned {
				c.Wait(context.Background())
				doubtful = doubtful || c.Doubtful
			}
			all := slices.Concat(lost, []*transport.Call{c})
			h.EndRefresh(doubtful, all...)
			ended(all, doubtful, returned)
		}()
	}
	panicked := true
	defer func() { end(panicked) }()
	if !prolongs || h.Origin != claim.Random {
		finished = h.Place.Redis.Do(ctx, call)
	} else {
		_, finished = h.Place.Redis.DoAnew(ctx, call, func(left, next *transport.Call) { lost, call = append(lost, left), next })
	}
	panicked = false
	return call, finished
}

// ReadRefresh reads the reply to a call of RefreshCall. If keys are lost, it returns an error that matches ErrNotObtained.
// It also returns an error if a guard has not executed the call.
func (h *Hold) ReadRefresh(operation string, call *transport.Call) (r script.Refreshed, err error) {
	if call.Err != nil {
		return r, fault.Failed(operation, h.Keys.Names, fault.WithHint(h.Keys.Names, call.Err))
	}
	if r, err = script.ReadRefreshed(h.Keys.Names, call.Reply); err == nil {
		h.Place.noteClosure(call.Ctx, r.Closure)
		err = h.Place.LossError(r.Loss, fault.ErrNotObtained)
	}
	if r.Again > 0 {
		err = notExecuted(r.Again)
	}
	if err != nil && !errors.Is(err, fault.ErrNotObtained) {
		err = fault.Failed(operation, h.Keys.Names, err)
	}
	return r, err
}

// TTL asks for the least remaining ttl of the keys: 0 if the token lacks one of them.
func (h *Hold) TTL(ctx context.Context) (time.Duration, error) {
	call, err := h.Place.ask(ctx, "ttl", h.Keys.Names, h.Place.set.Scripts.TTL(h.Token, h.Keys))
	if err != nil {
		return 0, err
	}
	left, err := script.ReadTTL(call.Reply)
	if err != nil {
		return 0, fault.Failed("ttl", h.Keys.Names, err)
	}
	return left, nil
}

// BeginRefresh notes that a refresh is about to be sent. Under a guard, it may put keys back that Redis has forgotten. Call
// EndRefresh when it has ended. If BeginRefresh returns false, the lock is being released: do not send the refresh.
func (h *Hold) BeginRefresh() bool { return !h.Place.IsGuarded() || h.Ask() }

// EndRefresh notes that these calls of a refresh have ended. doubtful says that one may still be executed.
func (h *Hold) EndRefresh(doubtful bool, calls ...*transport.Call) {
	if !h.Place.IsGuarded() {
		return
	}
	var back []string
	for _, c := range calls {
		if c.Err == nil {
			got, _ := script.ReadRefreshed(h.Keys.Names, c.Reply)
			back = append(back, got.Back...)
		}
	}
	h.RefreshEnded(back, doubtful)
}

// Release frees the keys; see claim.Claim.Free. If keys were lost, it also returns which ones and how. Keys that are gone
// count as lost if only a release that was sent after until, and not answered, may have freed them.
func (h *Hold) Release(ctx context.Context, until time.Time, longest time.Duration) (life.Loss, error) {
	found, err := h.Free(ctx, claim.Terms{Why: claim.Release, Until: until, Held: until, Lasts: longest})
	if err != nil {
		return life.Loss{}, err
	}
	if lost := h.Place.LossError(found.Loss, fault.ErrLockNotHeld); lost != nil {
		return lossOf(found.Loss), lost
	}
	return life.Loss{}, nil
}
