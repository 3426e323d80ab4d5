package place

import (
	"context"
	"sync/atomic"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Place is one Redis as the locks of one Client see it, with all of its slots. It lives as long as the Client.
type Place struct {
	Redis         *transport.Link
	Keeper        *Keeper // of the kept locks of all Clients of the Redis client
	Lines         line.Lines
	Ledger        claim.Ledger
	DetachedCalls atomic.Int64 // under way; each may outlast its caller, who counts it here

	resources *resources
	set       *Config
	keeps     atomic.Bool // a lock was kept: Shut has to look at the renewals

	closing atomic.Pointer[closing] // the closure of the guard that was reported last; nil for none
}

// Config says what a Client wants of a place. It never changes after New.
type Config struct {
	Scripts   *script.Scripts
	Events    *life.Events                                // never nil
	CleanedUp func(context.Context, claim.Event)          // reports the end of each freeing; nil reports nothing
	LostError func(loss script.Loss, decides error) error // makes the error for a lock that has lost some of its keys
	Closed    <-chan struct{}                             // closed when the Client is
	Separate  bool                                        // no call shares a pipeline with others
	Lingers   bool                                        // subscriptions stay open for a while after the last waiter

	GuardClosed func(context.Context, GuardClosed) // reports a guard that was found closed; nil reports nothing
}

// New returns the place for a Redis client, of which connOf returns the Conn. It returns an error that wraps ErrInvalid if
// connOf fails.
func New(client any, connOf func() (transport.Conn, error), set *Config) (*Place, error) {
	r, err := resourcesOf(client, connOf)
	if err != nil {
		return nil, fault.Invalid("%v", err)
	}
	p := &Place{resources: r, set: set, Redis: r.redis.Link(set.Separate), Keeper: r.keeper}
	p.Lines.Hub, p.Lines.Link, p.Lines.Lingers = r.waiters, p.Redis, set.Lingers
	l := &p.Ledger
	l.Link, l.Scripts, l.Closed, l.Running, l.Report = p.Redis, set.Scripts, set.Closed, &r.freeing, set.CleanedUp
	return p, nil
}

// Shut ends the contexts of the locks that the Client keeps, and the subscriptions that linger for its waiters. Its caller
// has closed Config.Closed.
func (p *Place) Shut() {
	if p.keeps.Load() {
		p.Keeper.end(p)
	}
	p.Lines.Close()
}

// Health returns what is known of how the server answers. All Clients of the Redis client share it.
func (p *Place) Health() *health.Server { return p.resources.health }

// IsBusy reports whether a Close should still wait: for a freeing, for a waiter in line (which leaves with one), or
// for a call whose caller may have returned.
func (p *Place) IsBusy() bool {
	return p.DetachedCalls.Load() > 0 || p.Ledger.IsBusy() || p.Lines.Count() > 0
}

// Address returns where the server is.
func (p *Place) Address() string { return p.Redis.Name }

// IsRing reports whether the Redis client is a Ring.
func (p *Place) IsRing() bool { return p.Redis.IsRing() }

// ask sends a call that takes nothing, even if it is executed late, and waits for the reply until ctx ends. It returns
// the call that was answered. Its error names the operation and the keys.
func (p *Place) ask(ctx context.Context, operation string, keys []string, request *transport.Call) (*transport.Call, error) {
	request.Ctx = ctx
	err := fault.Ended(ctx)
	if err == nil {
		if c, answered := p.Redis.DoAnew(ctx, request, nil); answered {
			if c.Err == nil {
				return c, nil
			}
			err = fault.WithHint(keys, c.Err)
		}
	}
	if over := fault.Ended(ctx); over != nil {
		err = over
	}
	return nil, fault.Failed(operation, keys, err)
}

// FenceTo raises the fence counter to least, if the token has all keys, or mints a fencing token if least is 0; see
// internal/script/fence.lua. lock are all keys of the lock, for errors.
func (p *Place) FenceTo(
	ctx context.Context, lock []string, token string, keys script.Keys, fenceKey string, least int64,
) (int64, error) {
	c, err := p.ask(ctx, "fence", lock, p.set.Scripts.Fence(token, keys, fenceKey, least))
	if err != nil {
		return 0, err
	}
	return script.ReadFence(c.Reply)
}
