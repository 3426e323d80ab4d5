package redislock

import (
	"context"
	"sync/atomic"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// place is one Redis as the locks on it see it: the one of a Client, with all of its slots, or one server of a quorum. It
// lives as long as its Client, and does not know whether its locks are parts of others.
type place struct {
	shared   *shared
	redis    *transport.Link
	scripts  *script.Scripts
	renewals *renewals
	lines    line.Lines
	cleanups undo.Cleanups
	events   *life.Events
	closed   chan struct{} // closed by Client.Close
	calls    atomic.Int64  // under way for locks on several places, and perhaps after their caller has returned
	keeps    atomic.Bool   // some lock was kept
}

// newPlace returns the place for a Redis client. It returns an error if that cannot be used.
func newPlace(client RedisClient, set clientOptions, closed chan struct{}) (*place, error) {
	s, err := sharedBy(client)
	if err != nil {
		return nil, fault.Invalid("%v", err)
	}
	p := &place{redis: s.redis.Link(set.separate), scripts: scripts, renewals: s.renewals, events: set.events, closed: closed}
	p.shared = s
	p.lines.Hub, p.lines.Lingers = s.waiters, !set.short
	p.cleanups.Link, p.cleanups.Closed, p.cleanups.Running = p.redis, closed, &s.cleaning
	if tell := set.tracer.CleanedUp; tell != nil {
		p.cleanups.Tell = func(ctx context.Context, e undo.Event) { tell(ctx, CleanedUp(e)) }
	}
	return p, nil
}

// shut ends what the place does for locks that are kept, and for waiters to come. closed has just been closed.
func (p *place) shut() {
	if p.keeps.Load() {
		p.renewals.end(p)
	}
	p.lines.Close()
}

// busy reports whether anything must still be given up: by a cleanup, by a waiter in line (which leaves with a cleanup), or
// by a call whose caller may have returned.
func (p *place) busy() bool {
	return p.calls.Load() > 0 || p.cleanups.IsBusy() || p.lines.Count() > 0
}

// ask sends a call for which nobody waits after ctx has ended. It returns the reply, or an error with the operation and the
// keys.
func (p *place) ask(ctx context.Context, operation string, keys []string, request *transport.Call) (any, error) {
	request.Ctx = ctx
	err := fault.Ended(ctx)
	if err == nil && p.redis.Do(ctx, request) {
		if request.Err == nil {
			return request.Reply, nil
		}
		err = fault.WithHint(keys, request.Err)
	}
	if over := fault.Ended(ctx); over != nil {
		err = over
	}
	return nil, fault.Failed(operation, keys, err)
}

// fenceTo mints a fencing token, or raises the counter to least where the token has all keys; see fence.lua. The error names
// the keys of the lock.
func (p *place) fenceTo(
	ctx context.Context, lock []string, token string, keys script.Keys, fenceKey string, least int64,
) (int64, error) {
	reply, err := p.ask(ctx, "fence", lock, p.scripts.Fence(token, keys, fenceKey, least))
	if err != nil {
		return 0, err
	}
	return script.ReadFence(reply)
}

// newRelease returns an unsent call that releases the keys. The end of ctx does not end it.
func (p *place) newRelease(ctx context.Context, token string, keys script.Keys) *transport.Call {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c := p.scripts.Release(token, keys)
	c.Ctx = ctx
	return c
}
