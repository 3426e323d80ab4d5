package worker

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// deepest is how many locks the scene nest takes one inside the other, at most.
const deepest = 3

// nest takes locks one inside the other, in random order, and waits in line for each. So callers wait for each other in
// circles. The call that has closed a circle must end soon, and its caller then releases what it holds.
func (g *goroutine) nest() {
	c := g.nestedCall(g.nestedKeys(), 20*time.Second, nil)
	defer c.cancel()
	g.nestIn(c, g.random.IntN(2), nil)
}

// nestedKeys returns keys of one group, in random order. They are contended, or only other calls of nest want them for long.
func (g *goroutine) nestedKeys() (keys []string) {
	group, from, n := g.random.IntN(g.Groups), 0, g.Hot
	if !g.chance(3) {
		from, n = g.Hot+4, 4
	}
	for _, i := range g.random.Perm(n)[:1+g.random.IntN(2)] {
		keys = append(keys, key(group, from+i))
	}
	return keys
}

// nestedCall prepares a call that waits in line, while its caller has the holds of the outer calls.
func (g *goroutine) nestedCall(keys []string, patience time.Duration, outer []*call) *call {
	name := "Do"
	if g.chance(3) {
		name = "ObtainMulti"
	}
	c := g.newCall(name, keys, g.between(500*time.Millisecond, 3*time.Second), patience)
	g.options(c)
	g.inLine(c)
	for _, o := range outer {
		c.under = append(c.under, o.op)
	}
	return c
}

// nestIn makes a call with the Client of that number, and perhaps others inside it.
func (g *goroutine) nestIn(c *call, number int, outer []*call) {
	if len(outer) > 0 {
		c.with("inside")
	}
	inside := func(ctx context.Context) {
		time.Sleep(g.between(0, 40*time.Millisecond))
		g.nestMore(ctx, number, append(slices.Clip(outer), c))
		if at := clock.Now(); ctx.Err() == nil {
			g.log.Write(history.Event{Kind: history.Alive, At: at, Op: c.op})
		}
	}
	if c.name == "Do" {
		g.doKeys(c, c.keys, g.client(number), inside)
		return
	}
	h := g.obtain(c, g.client(number))
	if h == nil {
		return
	}
	ctx, stop := h.lock.KeepAlive(c.ctx)
	inside(ctx)
	stop()
	h.release(3 * time.Second)
}

// nestMore makes a call inside others, mostly if there is only one yet.
func (g *goroutine) nestMore(ctx context.Context, number int, outer []*call) {
	if len(outer) == deepest || len(outer) > 1 && !g.chance(3) {
		return
	}
	keys, other := g.nestedKeys(), g.chance(3)
	if other {
		number = 1 - number
	}
	if !other || len(outer) > 1 || !g.chance(4) { // otherwise the call may wait for its own caller
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return slices.ContainsFunc(outer, func(o *call) bool { return slices.Contains(o.keys, key) })
		})
	}
	if len(keys) == 0 {
		return
	}
	c := g.nestedCall(keys, 15*time.Second, outer)
	defer c.cancel()
	deadline, _ := c.ctx.Deadline()
	within, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, c), deadline)
	defer cancel()
	c.ctx = within
	g.nestIn(c, number, outer)
}
