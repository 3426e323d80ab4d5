package place

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Inspect returns what the keys hold, and who waits for them.
func (p *Place) Inspect(ctx context.Context, keys []string, g script.Glance) ([]script.Held, error) {
	groups, err := p.Redis.Group(keys)
	if err != nil {
		return nil, fault.Failed("inspect", keys, err)
	}
	for _, group := range groups {
		if err := script.TooMany(len(group)); err != nil {
			return nil, err
		}
	}
	held, err := p.inspectGroups(ctx, keys, groups, &g)
	if transport.HasCode(err, "CROSSSLOT") { // a Cluster behind a custom client type
		held, err = p.inspectGroups(ctx, keys, transport.GroupBySlot(keys), &g)
	}
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Found is what Attach has found.
type Found struct {
	Since    time.Time // when the question was sent
	TTL      time.Duration
	Metadata string
	Lost     []string // the keys that the token lacks; nil for none
	Limits   []int    // how many holders each key may have, 0 for no limit; nil if all are exclusive
}

// Find makes l the lock that Attach has found.
func (l *Lock) Find(p *Place, keys []string, token string, found Found) {
	l.Begin(p, token, script.BoxShared(keys, found.Limits), claim.Attached)
	l.Since = found.Since
	l.SetMetadata(found.Metadata)
	l.Lease = lease.Found(found.Since, found.TTL)
}

// Attach looks whether the token has the keys. If some are missing, Attach returns an error that matches ErrLockNotHeld, and
// Found.Lost.
func (p *Place) Attach(ctx context.Context, keys []string, token string) (Found, error) {
	call, err := p.ask(ctx, "attach", keys, p.set.Scripts.InspectOpen(keys, token))
	if err != nil {
		return Found{}, err
	}
	if c := script.ReadClosure(call.Reply); !c.IsOver() {
		p.noteClosure(ctx, c)
		return Found{}, attachClosed(keys, c)
	}
	held, err := script.ReadHeld(keys, call.Reply)
	if err != nil {
		return Found{}, fault.Failed("attach", keys, err)
	}
	loss, ttl := script.ReadOwned(keys, held, token)
	if err := p.LossError(loss, fault.ErrLockNotHeld); err != nil {
		return Found{Lost: loss.Keys}, err
	}
	return Found{Since: call.Sent, TTL: ttl, Metadata: held[0].Metadata, Limits: script.LimitsOf(held)}, nil
}

// maxLooks bounds how many groups of keys are inspected in parallel.
const maxLooks = 16

// inspectGroups asks what the keys hold and who waits for them, with one round trip for each group.
func (p *Place) inspectGroups(ctx context.Context, keys []string, groups [][]int, g *script.Glance) ([]script.Held, error) {
	all := make([]script.Held, len(keys))
	errs := make([]error, len(groups))
	ended := make([]func(), len(groups)) // a hook has panicked, or has ended its goroutine: does so again; else nil
	var wait sync.WaitGroup
	room := make(chan struct{}, maxLooks)
	for at, group := range groups {
		slices.SortStableFunc(group, func(a, b int) int { return script.LinesFirst(keys[a], keys[b]) })
		some := make([]string, len(group))
		for i, index := range group {
			some[i] = keys[index]
		}
		lookAt := func() {
			found, err := p.look(ctx, some, g)
			errs[at] = err
			for i := range found {
				all[group[i]] = found[i]
			}
		}
		if len(groups) == 1 {
			lookAt()
			break
		}
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			ended[at] = runtime.Goexit
			defer func() {
				if value := recover(); value != nil { // in this goroutine, nobody else could
					ended[at] = func() { panic(value) }
				}
			}()
			lookAt()
			ended[at] = nil
		})
	}
	wait.Wait()
	for _, again := range ended {
		if again != nil {
			again()
		}
	}
	return all, cmp.Or(errs...)
}

// look asks what the keys hold and who waits for them.
func (p *Place) look(ctx context.Context, keys []string, g *script.Glance) ([]script.Held, error) {
	call, err := p.ask(ctx, "inspect", keys, p.set.Scripts.Inspect(keys, g))
	if err != nil {
		return nil, err
	}
	held, err := script.ReadHeld(keys, call.Reply)
	if err != nil {
		return nil, fault.Failed("inspect", keys, err)
	}
	return held, nil
}

// Waiters returns who waits in line for a key.
func (p *Place) Waiters(ctx context.Context, key string) ([]script.Waiter, error) {
	c, name := p.set.Scripts.Waiters(key)
	if c == nil {
		return nil, nil // this key can have no line, so nobody can wait for it
	}
	line := []string{name}
	c, err := p.ask(ctx, "line", line, c)
	if err != nil {
		return nil, err
	}
	found, err := script.ReadWaiters(key, c.Reply)
	if err != nil {
		return nil, fault.Failed("line", line, err)
	}
	return found, nil
}

const (
	// explainPatience is how long Blocker waits for the answer. The server has just answered a try, so a healthy server
	// answers at once.
	explainPatience = 250 * time.Millisecond

	// explainGrace is the same if ctx has ended, because the obtain must return within milliseconds.
	explainGrace = 20 * time.Millisecond
)

// Blocker asks what blocks an obtain with that token and ticket (0 for none). The Key of the answer is "" if nothing blocks
// it any more, or if Redis does not answer in time.
func (p *Place) Blocker(ctx context.Context, keys script.Keys, token string, ticket int64) script.Blocker {
	patience := explainPatience
	if fault.Ended(ctx) != nil {
		ctx, patience = context.WithoutCancel(ctx), explainGrace
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, names := p.set.Scripts.Blocker(keys, token, ticket)
	c.Ctx = ctx
	c, answered := p.Redis.DoAnew(ctx, c, nil)
	if !answered || c.Err != nil {
		return script.Blocker{}
	}
	return script.ReadBlocker(names, c.Reply)
}
