package worker

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// call is one call that obtains, with what a Tracer reports about it.
type call struct {
	op     string
	name   string
	keys   []string
	ttl    time.Duration
	opt    *redislock.Options
	names  []string // of the options
	ctx    context.Context
	cancel context.CancelFunc
	start  int64
	limit  atomic.Int64 // when its ctx ends; 0 if it does not

	log     *history.Writer
	refused atomic.Int64 // when it was first refused

	under []string // the ops of the holds that its caller has meanwhile

	// Set by the Tracer before the call returns, in the goroutine of the call.
	until time.Time
	fence int64
}

type callKey struct{}

// tracer notes what happened to a call that obtains.
var tracer = &redislock.Tracer{
	Refused: func(ctx context.Context, e redislock.Refused) {
		c, _ := ctx.Value(callKey{}).(*call)
		if c != nil && e.Try == 1 && c.refused.CompareAndSwap(0, clock.Now()) && c.opt.Queue {
			c.log.Write(history.Event{
				Kind: history.Wait, At: clock.Now(), Op: c.op, Name: c.name, Keys: c.keys, Holders: c.holders(), Under: c.under,
				Start: c.start, Refused: c.refused.Load(), TTL: c.ttl, Queue: true,
			})
		}
	},
	ObtainEnd: func(ctx context.Context, e redislock.ObtainEnd) {
		if c, _ := ctx.Value(callKey{}).(*call); c != nil && e.Err == nil {
			c.until, c.fence = e.Until, e.Fence
		}
	},
}

// newCall prepares a call for keys whose ctx ends after patience, or never if that is 0.
func (g *goroutine) newCall(name string, keys []string, ttl, patience time.Duration) *call {
	c := &call{op: g.nextOp(), name: name, keys: keys, ttl: g.Endpoint.Guard.clamp(ttl), opt: &redislock.Options{}, log: g.log}
	if slices.ContainsFunc(keys, func(key string) bool { return key[1] != keys[0][1] }) {
		c.opt.AcrossSlots = true
		c.with("across-slots")
	}
	ctx := context.WithValue(context.Background(), callKey{}, c)
	if patience > 0 {
		_, late := timeOf(time.Now().Add(patience), clock.Now)
		c.limit.Store(late)
		c.ctx, c.cancel = context.WithTimeout(ctx, patience)
	} else {
		c.ctx, c.cancel = context.WithCancel(ctx)
	}
	c.start = clock.Now()
	return c
}

// newObtain prepares a call with options for keys at random.
func (g *goroutine) newObtain(ttl, patience time.Duration) *call {
	keys := g.someKeys()
	name := "ObtainMulti"
	if len(keys) == 1 && !g.chance(4) {
		name = "Obtain"
	}
	c := g.newCall(name, keys, ttl, patience)
	g.options(c)
	return c
}

// abandon ends the ctx of the call after some time.
func (c *call) abandon(after time.Duration) {
	time.AfterFunc(after, func() {
		if now, limit := clock.Now(), c.limit.Load(); limit == 0 || now < limit {
			c.limit.Store(now)
		}
		c.cancel()
	})
}

func (c *call) with(names ...string) { c.names = append(c.names, names...) }

// shareAs makes a call share these keys as another one does, and no others.
func (c *call) shareAs(other *call, keys ...string) {
	isOther := func(key string) bool { return !slices.Contains(keys, key) }
	c.opt.Shared, c.opt.Permits = slices.DeleteFunc(slices.Clone(other.opt.Shared), isOther), maps.Clone(other.opt.Permits)
	maps.DeleteFunc(c.opt.Permits, func(key string, _ int) bool { return isOther(key) })
}

// holders returns how many holders each key of the call may have, as a history has it.
func (c *call) holders() []int64 { return history.HoldersOf(c.keys, c.opt.Shared, c.opt.Permits) }

// granted writes that the call was granted.
func (g *goroutine) granted(c *call, token string, until time.Time, fence int64) {
	at := clock.Now()
	early, _ := timeOf(until, clock.Now)
	if until.IsZero() {
		early = 0
	}
	g.log.Write(history.Event{
		Kind: history.Grant, At: at, Op: c.op, Name: c.name, Keys: c.keys, Token: token, FenceKey: c.opt.FenceKey, Fence: fence,
		Start: c.start, Refused: c.refused.Load(), Until: early, TTL: c.ttl, Queue: c.opt.Queue, Custom: c.opt.Token != "",
		Holders: c.holders(), Under: c.under, Need: g.Endpoint.need(),
	})
}

// ended writes how the call has ended.
func (g *goroutine) ended(c *call, err error, good string) {
	if len(c.opt.Shared) > 0 {
		c.with("shared")
	}
	if len(c.opt.Permits) > 0 {
		c.with("permits")
	}
	e := history.Event{
		Kind: history.Done, At: clock.Now(), Op: c.op, Name: c.name, Start: c.start, Limit: c.limit.Load(), Options: c.names,
	}
	conclude(&e, err, good)
	if err != nil && c.opt.Queue {
		e.Queue, e.Refused, e.Keys, e.Holders, e.TTL, e.Under = true, c.refused.Load(), c.keys, c.holders(), c.ttl, c.under
	}
	g.log.Write(e)
}
