package redislock

import (
	"context"
	"slices"
	"sync"
)

// aftermath collects the cleanups of one call at several places. When all of them have ended, it reports each kind once
// to the Tracer of the caller's Client, because the Clients of the places have none.
type aftermath struct {
	client *Client
	keys   []string

	mu    sync.Mutex // protects the fields below
	ctx   context.Context
	open  int         // cleanups under way, and places that may still begin some
	ended []CleanedUp // one for each reason
}

// expect makes the aftermath wait for one more call of end from each of these places. ctx is that of the call.
func (a *aftermath) expect(ctx context.Context, places int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ctx = context.WithoutCancel(ctx)
	a.open += places
}

// begin makes the aftermath wait for a cleanup that one of the expected places begins. It may be called on nil.
func (a *aftermath) begin() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
}

// end ends what expect or begin has begun. found is how a cleanup has ended; nil for nothing to tell.
func (a *aftermath) end(found *CleanedUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found != nil {
		a.add(*found)
	}
	if a.open--; a.open > 0 || len(a.ended) == 0 {
		return
	}
	ctx, events := a.ctx, a.ended
	a.ended = nil
	go func() { // mutexes of the caller may be locked
		for _, event := range events {
			tell(ctx, a.client.tracer.CleanedUp, event)
		}
	}()
}

// add adds the result of one cleanup. The caller holds a.mu.
func (a *aftermath) add(found CleanedUp) {
	found.Keys = a.keys
	i := slices.IndexFunc(a.ended, func(e CleanedUp) bool { return e.Why == found.Why })
	if i < 0 {
		a.ended = append(a.ended, found)
		return
	}
	event := &a.ended[i]
	event.Dropped = event.Dropped || found.Dropped
	if event.Err == nil {
		event.Err = found.Err
	} else if found.Err != nil {
		event.Err = joined([]error{event.Err, found.Err})
	}
}
