package place

import (
	"context"
	"sync/atomic"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Place is one Redis as the locks on it see it: the one of a Client, with all of its slots, or one server of a quorum. It
// lives as long as its Client, and does not know whether its locks are parts of others.
type Place struct {
	Redis    *transport.Link
	Renewals *Renewals // of the kept locks of all Clients of the Redis client
	Lines    line.Lines
	Cleanups undo.Cleanups
	Calls    atomic.Int64 // under way for locks at several places, and perhaps after their caller has returned

	shared *shared
	set    *Config
	keeps  atomic.Bool // some lock was kept
}

// Config is what a Client wants of its places. It does not change once a place was made with it.
type Config struct {
	Scripts   *script.Scripts
	Events    *life.Events                                // never nil
	CleanedUp func(context.Context, undo.Event)           // is told the end of each cleanup; nil tells nobody
	LostError func(loss script.Loss, decides error) error // makes the error for some of the keys of a lock that are lost
	Closed    <-chan struct{}                             // closed when the Client is
	Separate  bool                                        // each call goes by itself
	Lingers   bool                                        // subscriptions stay open for a while after the last waiter
}

// New returns the place for a Redis client. It returns an error if that cannot be used.
func New(client redisClient, set *Config) (*Place, error) {
	s, err := sharedBy(client)
	if err != nil {
		return nil, fault.Invalid("%v", err)
	}
	p := &Place{shared: s, set: set, Redis: s.redis.Link(set.Separate), Renewals: s.renewals}
	p.Lines.Hub, p.Lines.Lingers = s.waiters, set.Lingers
	p.Cleanups.Link, p.Cleanups.Closed, p.Cleanups.Running, p.Cleanups.Tell = p.Redis, set.Closed, &s.cleaning, set.CleanedUp
	return p, nil
}

// Shut ends what the place does for locks that are kept, and for waiters to come. Config.Closed has just been closed.
func (p *Place) Shut() {
	if p.keeps.Load() {
		p.Renewals.end(p)
	}
	p.Lines.Close()
}

// Health returns how the server answers, for locks on several servers. All Clients of the Redis client share it.
func (p *Place) Health() *health.Server { return p.shared.health }

// IsBusy reports whether anything must still be given up: by a cleanup, by a waiter in line (which leaves with a
// cleanup), or by a call whose caller may have returned.
func (p *Place) IsBusy() bool {
	return p.Calls.Load() > 0 || p.Cleanups.IsBusy() || p.Lines.Count() > 0
}

// Address returns where the server is.
func (p *Place) Address() string { return p.Redis.Address() }

// IsRing reports whether the Redis client is a Ring.
func (p *Place) IsRing() bool { return p.Redis.IsRing() }

// Do sends a call, and reports whether it ended before ctx did. Otherwise the call goes on.
func (p *Place) Do(ctx context.Context, c *transport.Call) bool {
	c.Ctx = ctx
	return p.Redis.Do(ctx, c)
}

// ask sends a call for which nobody waits after ctx has ended. It returns the reply, or an error with the operation and the
// keys.
func (p *Place) ask(ctx context.Context, operation string, keys []string, request *transport.Call) (any, error) {
	request.Ctx = ctx
	err := fault.Ended(ctx)
	if err == nil && p.Redis.Do(ctx, request) {
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

// FenceTo mints a fencing token, or raises the counter to least where the token has all keys; see fence.lua. The error names
// the keys of the lock.
func (p *Place) FenceTo(
	ctx context.Context, lock []string, token string, keys script.Keys, fenceKey string, least int64,
) (int64, error) {
	reply, err := p.ask(ctx, "fence", lock, p.set.Scripts.Fence(token, keys, fenceKey, least))
	if err != nil {
		return 0, err
	}
	return script.ReadFence(reply)
}

// ReleaseCall returns an unsent call that releases the keys. The end of ctx does not end it.
func (p *Place) ReleaseCall(ctx context.Context, token string, keys script.Keys) *transport.Call {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c := p.set.Scripts.Release(token, keys)
	c.Ctx = ctx
	return c
}
