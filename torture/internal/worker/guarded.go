package worker

import (
	"fmt"
	"sync"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

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

// releaseTwice releases a lock through one handle, and much later through others. The late releases must not touch what the
// next holder has by then, or hand it over to the waiter, even if a server has gone back to a time before the first release.
func (g *goroutine) releaseTwice() {
	longest := g.Endpoint.Guard.MaxTTL
	keys := g.ownKey()
	time.Sleep(g.uniform(0, longest/2)) // so that not all do the same at the same time, which a closed guard causes
	c := g.newCall("Obtain", keys, longest, 2*longest)
	defer c.cancel()
	g.inLine(c)
	client := g.client(0)
	h := g.obtain(c, client)
	if h == nil {
		return
	}
	h.shared = true
	var late []*held
	for range 4 {
		e := history.Event{Name: "Attach", Start: clock.Now()}
		lock, err := client.Attach(c.ctx, keys, h.lock.Token())
		e.Lost = isLoss(err)
		h.done(e, err)
		if err == nil {
			late = append(late, &held{g: g, op: h.op, lock: lock, client: client, keys: keys, ttl: h.ttl, shared: true})
		}
	}
	time.Sleep(g.uniform(50*time.Millisecond, 500*time.Millisecond))
	h.release(time.Second)

	next := g.newCall("Obtain", keys, longest, longest)
	defer next.cancel()
	g.inLine(next)
	holder := g.obtain(next, client)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		c := g.newCall("Obtain", keys, longest, 2*longest)
		defer c.cancel()
		c.opt.Queue = true
		if h := g.obtain(c, client); h != nil {
			h.release(time.Second)
		}
	})
	for _, h := range late {
		time.Sleep(g.uniform(longest/8, longest/4))
		h.release(time.Second)
	}
	if holder != nil {
		time.Sleep(time.Until(holder.lock.Until()))
		holder.release(time.Second)
	}
	waiting.Wait()
}

// reuse obtains one key with a custom token, as a job does whose token is its name, and then with another one. While that
// one has the key, the first one must not get it again.
func (g *goroutine) reuse() {
	if g.Endpoint.Topology == "quorum" { // there, a caller cannot choose the token
		g.rely()
		return
	}
	longest := g.Endpoint.Guard.MaxTTL
	token, keys, client := g.Worker+"/reuse", g.ownKey(), g.client(0)
	obtain := func(suffix string, patience time.Duration) *held {
		c := g.newCall("Obtain", keys, longest, patience)
		defer c.cancel()
		c.opt.Token = fmt.Sprintf("%s%s/%d", token, suffix, g.n)
		c.with("token")
		c.opt.RetryStrategy = redislock.LinearBackoff(10 * time.Millisecond)
		return g.obtain(c, client)
	}
	time.Sleep(g.uniform(0, longest/2)) // as above
	h := obtain("", 2*longest)
	if h == nil {
		return
	}
	time.Sleep(g.uniform(50*time.Millisecond, longest/2))
	h.release(time.Second)
	other := obtain("d", time.Second)
	if other == nil {
		return
	}
	for time.Until(other.lock.Until()) > 0 {
		if h := obtain("", 100*time.Millisecond); h != nil {
			h.release(time.Second)
		}
		time.Sleep(20 * time.Millisecond)
	}
	other.release(time.Second)
}

// ownKey returns a key that few others want.
func (g *goroutine) ownKey() []string {
	var slot int
	_, _ = fmt.Sscanf(g.Worker, "w%d.", &slot)
	number := slot*g.Goroutines + g.n
	return []string{key(number%g.Groups, g.Keys-1-number/g.Groups%(g.Keys-g.Hot))}
}

// uniform returns a random duration.
func (g *goroutine) uniform(least, most time.Duration) time.Duration {
	return least + time.Duration(g.random.Int64N(int64(most-least)))
}
