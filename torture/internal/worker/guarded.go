package worker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// guarded returns the scenes for servers with a guard. They do what goes wrong if a server forgets and the guard is too soon,
// or grants too much.
func (g *goroutine) guarded() []scene {
	all := map[string]scene{
		"rely": {16, g.rely}, "release-twice": {16, g.releaseTwice}, "reuse": {20, g.reuse}, "keep-one": {24, g.keepOne},
	}
	if one, aimed := all[g.Scene]; aimed {
		one.weight *= 20
		return []scene{one}
	}
	var scenes []scene
	for _, name := range slices.Sorted(maps.Keys(all)) { // in order, so that a seed repeats them
		scenes = append(scenes, all[name])
	}
	return scenes
}

// keepOne keeps a lock of one key, which few others want, for so long that some server probably forgets it.
func (g *goroutine) keepOne() {
	longest := g.Endpoint.Guard.MaxTTL
	c := g.newCall("Obtain", []string{key(g.random.IntN(g.Groups), g.random.IntN(g.Keys))},
		g.between(longest/8, longest), 2*longest)
	defer c.cancel()
	g.options(c)
	g.inLine(c)
	if h := g.obtain(c, g.someClient(c)); h != nil {
		h.keep(g.between(longest/2, 2*longest))
	}
}

// rely holds a lock until its end, without a renewal, so that a guard that opens too soon lets another holder in.
func (g *goroutine) rely() {
	longest := g.Endpoint.Guard.MaxTTL
	c := g.newCall("Obtain", []string{key(g.random.IntN(g.Groups), g.random.IntN(g.Hot))},
		g.between(longest/2, longest), 2*longest)
	defer c.cancel()
	g.options(c)
	if !g.chance(3) {
		g.inLine(c)
	} else {
		c.opt.RetryStrategy = redislock.LinearBackoff(20 * time.Millisecond)
	}
	h := g.obtain(c, g.someClient(c))
	if h == nil {
		return
	}
	h.write()
	time.Sleep(time.Until(h.lock.Until()))
	if g.chance(2) {
		h.release(time.Second)
	}
}

// releaseTwice releases a lock through one handle, and much later through another one. The second release must not touch
// what others have by then, even if a server has gone back to a time before the first one.
func (g *goroutine) releaseTwice() {
	longest := g.Endpoint.Guard.MaxTTL
	c := g.newCall("Obtain", []string{key(g.random.IntN(g.Groups), g.random.IntN(g.Hot))}, longest, longest)
	defer c.cancel()
	c.opt.Metadata = c.op
	g.inLine(c)
	client := g.someClient(c)
	h := g.obtain(c, client)
	if h == nil {
		return
	}
	e := history.Event{Name: "Attach"}
	ctx, cancel := g.limited(time.Second, &e)
	defer cancel()
	e.Start = clock.Now()
	lock, err := client.Attach(ctx, c.keys, h.lock.Token())
	e.Lost = isLoss(err)
	h.done(e, err)
	h.shared = true
	time.Sleep(g.moment(300 * time.Millisecond))
	h.release(time.Second)
	if err != nil {
		return
	}
	second := &held{g: g, op: h.op, lock: lock, client: client, keys: c.keys, ttl: h.ttl, shared: true}
	time.Sleep(g.uniform(longest/8, longest))
	second.release(time.Second)
}

// moment returns a short time, or in every other case a time that is almost as long as the longest ttl. If a server goes back
// to a short hold, the next holder is still there.
func (g *goroutine) moment(short time.Duration) time.Duration {
	if longest := g.Endpoint.Guard.MaxTTL; g.chance(2) {
		return g.uniform(longest/2, longest)
	}
	return g.uniform(short/4, short)
}

// uniform returns a random duration.
func (g *goroutine) uniform(least, most time.Duration) time.Duration {
	return least + time.Duration(g.random.Int64N(int64(most-least)))
}

// reuse obtains one key again and again with the same custom token, as a job does whose token is its name.
func (g *goroutine) reuse() {
	if g.Endpoint.Topology == "quorum" { // there, a caller cannot choose the token
		g.rely()
		return
	}
	token := g.Worker + "/reuse/" + string(rune('a'+g.n))
	var slot int
	_, _ = fmt.Sscanf(g.Worker, "w%d.", &slot)
	number := (slot*g.Goroutines + g.n) % (g.Groups * g.Hot) // with few goroutines a worker, few want the same key
	keys := []string{key(number%g.Groups, number/g.Groups)}
	client := g.client(0)
	for range 4 {
		c := g.newCall("Obtain", keys, g.Endpoint.Guard.MaxTTL, 700*time.Millisecond)
		c.opt.Token = token
		c.with("token")
		c.opt.RetryStrategy = redislock.LinearBackoff(10 * time.Millisecond)
		if h := g.obtain(c, client); h != nil {
			time.Sleep(g.moment(250 * time.Millisecond))
			h.release(time.Second)
		}
		c.cancel()
	}
}
