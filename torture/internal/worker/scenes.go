package worker

import (
	"slices"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// plain obtains without a line: once, or again and again.
func (g *goroutine) plain() {
	c := g.newObtain(g.someTTL(), g.between(5*time.Millisecond, time.Second))
	defer c.cancel()
	if !g.chance(3) {
		var name string
		c.opt.RetryStrategy, name = g.strategy()
		c.with(name)
	}
	if h := g.obtain(c, g.someClient(c)); h != nil {
		h.work()
		h.release(g.somePatience())
	}
}

// somePatience returns how long a release may take: mostly long enough.
func (g *goroutine) somePatience() time.Duration {
	switch g.random.IntN(8) {
	case 0:
		return -time.Millisecond
	case 1:
		return g.between(50*time.Microsecond, 3*time.Millisecond)
	}
	return 3 * time.Second
}

// queued waits in line.
func (g *goroutine) queued() {
	patience := g.between(300*time.Millisecond, 5*time.Second)
	if g.chance(5) {
		patience *= 3
	}
	c := g.newObtain(g.someTTL(), patience)
	defer c.cancel()
	g.inLine(c)
	if h := g.obtain(c, g.someClient(c)); h != nil {
		h.work()
		h.release(g.somePatience())
	}
}

func (g *goroutine) inLine(c *call) {
	c.opt.Queue = true
	c.with("queue")
	if g.chance(8) {
		var name string
		c.opt.RetryStrategy, name = g.strategy()
		c.with("pace-" + name)
	}
}

// outlive holds a lock for longer than it lasts, writes late, and releases late or never.
func (g *goroutine) outlive() {
	c := g.newObtain(g.between(30*time.Millisecond, 500*time.Millisecond), 2*time.Second)
	defer c.cancel()
	if g.chance(2) {
		g.inLine(c)
	}
	h := g.obtain(c, g.someClient(c))
	if h == nil {
		return
	}
	h.write()
	time.Sleep(time.Until(h.lock.Until()) + g.between(0, 250*time.Millisecond))
	h.write()
	if g.chance(3) {
		h.refreshLate()
	}
	h.write()
	if !g.chance(4) {
		h.release(time.Second)
	}
}

// refreshLate refreshes a lock that has probably expired, and whose keys another holder may have.
func (h *held) refreshLate() {
	if h.refresh(h.ttl+50*time.Millisecond, time.Second, nil) == nil {
		time.Sleep(5 * time.Millisecond)
	}
}

// abandon ends the ctx of an obtain at a random moment.
func (g *goroutine) abandon() {
	ttl := g.someTTL()
	if g.chance(2) { // so long that it shows if nothing is cleaned up
		ttl = g.between(7*time.Second, 9*time.Second)
	}
	c := g.newObtain(ttl, 0)
	defer c.cancel()
	switch g.random.IntN(4) {
	case 0: // while the request is under way
		c.abandon(time.Duration(g.random.IntN(600)) * time.Microsecond)
	case 1: // while the request is under way, if replies take long
		c.abandon(g.between(time.Millisecond, 30*time.Millisecond))
	default: // in line
		g.inLine(c)
		c.abandon(g.between(time.Millisecond, 300*time.Millisecond))
	}
	c.with("abandoned")
	if h := g.obtain(c, g.someClient(c)); h != nil {
		h.write()
		h.release(g.somePatience())
	}
}

// refreshes refreshes a lock to longer and shorter ttls, with answers and without, and then relies on Until.
func (g *goroutine) refreshes() {
	keys := g.someKeys()
	if g.chance(2) { // without a wait
		keys = g.ownKey()
	}
	c := g.newCall("ObtainMulti", keys, g.between(300*time.Millisecond, 2*time.Second), 2*time.Second)
	defer c.cancel()
	g.options(c)
	g.inLine(c)
	h := g.obtain(c, g.someClient(c))
	if h == nil {
		return
	}
	for range g.random.IntN(4) { // a Refresh without an answer may be executed after the next one
		h.write()
		moment := g.between(50*time.Microsecond, 2*time.Millisecond)
		_ = h.refresh(g.between(80*time.Millisecond, 200*time.Millisecond), moment, nil)
		_ = h.refresh(g.between(1500*time.Millisecond, 3*time.Second), 2*time.Second, nil)
		for range 4 {
			time.Sleep(g.between(10*time.Millisecond, 250*time.Millisecond))
			h.ask()
		}
	}
	for range 1 + g.random.IntN(4) {
		opt := new(redislock.Options)
		if g.chance(3) {
			opt.Metadata = h.op + "|refreshed"
		}
		if g.chance(3) {
			opt.RetryStrategy = redislock.LinearBackoff(5 * time.Millisecond)
		}
		patience := 2 * time.Second
		if g.chance(3) {
			patience = g.between(100*time.Microsecond, 5*time.Millisecond)
		}
		if err := h.refresh(g.between(100*time.Millisecond, 3*time.Second), patience, opt); isLoss(err) {
			break
		}
		h.write()
		h.ask()
		time.Sleep(g.between(0, 30*time.Millisecond))
	}
	if g.chance(2) { // rely on the lock until its end
		time.Sleep(min(time.Until(h.lock.Until()), 700*time.Millisecond))
		h.ask()
	}
	h.release(g.somePatience())
}

// custom obtains with a token of its own, and then again for more keys. Sometimes it has abandoned an obtain with that token
// before. On a quorum, a caller cannot choose the token.
func (g *goroutine) custom() {
	if g.Endpoint.Topology == "quorum" {
		g.attach()
		return
	}
	client := g.client(0) // only one Client may use the token at a time
	keys := g.someKeys()
	keys = slices.DeleteFunc(keys, func(key string) bool { return key[1] != keys[0][1] }) // those of one slot
	token := g.nextOp()
	// All calls with the token share the keys in the same way: nobody can lock a key alone that he shares.
	how := &call{opt: new(redislock.Options)}
	if g.chance(3) {
		g.share(how, keys...)
	}
	if g.chance(2) {
		c := g.newCall("ObtainMulti", keys, g.someTTL(), 0)
		c.opt.Token = token
		c.with("token", "abandoned")
		g.options(c)
		c.shareAs(how, keys...)
		c.abandon(time.Duration(g.random.IntN(20_000)) * time.Microsecond)
		if g.chance(2) {
			g.inLine(c)
		}
		h := g.obtain(c, client)
		c.cancel()
		if h != nil {
			h.release(g.between(50*time.Microsecond, 2*time.Millisecond))
		}
	}
	ttl := g.between(time.Second, 4*time.Second)
	c := g.newCall("ObtainMulti", keys, ttl, 2*time.Second)
	defer c.cancel()
	c.opt.Token = token
	c.with("token")
	g.options(c)
	c.shareAs(how, keys...)
	g.inLine(c)
	h := g.obtain(c, client)
	if h == nil {
		return
	}
	h.work()
	var more *held
	if g.chance(2) { // again, and for more keys
		all := append(append([]string(nil), keys...), g.siblings(keys)...)
		again := g.newCall("ObtainMulti", all, ttl, 300*time.Millisecond)
		defer again.cancel()
		again.opt.Token = token
		again.with("token", "again")
		g.options(again)
		again.shareAs(how, keys...)
		if g.chance(3) {
			g.share(again, all[len(keys):]...)
		}
		if more = g.obtain(again, client); more != nil {
			more.shared, h.shared = true, true
			more.work()
		}
	}
	h.unclaim()
	if more != nil {
		more.unclaim()
		more.release(time.Second)
	}
	h.release(time.Second)
}

// siblings returns keys of the same group that are not among keys.
func (g *goroutine) siblings(keys []string) []string {
	group := int(keys[0][1] - 'a')
	named := map[string]bool{}
	for _, name := range keys {
		named[name] = true
	}
	var more []string
	for range 3 {
		if name := key(group, g.random.IntN(g.Keys)); !named[name] {
			named[name] = true
			more = append(more, name)
		}
	}
	return more
}

// attach makes a second handle of a lock, and releases through one of the two.
func (g *goroutine) attach() {
	keys := g.someKeys()
	c := g.newCall("ObtainMulti", keys, g.between(time.Second, 4*time.Second), 2*time.Second)
	defer c.cancel()
	g.options(c)
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
	lock, err := client.Attach(ctx, keys, h.lock.Token())
	e.Lost = isLoss(err)
	h.done(e, err)
	if err != nil {
		h.release(time.Second)
		return
	}
	attached := g.newCall("Attach", keys, h.ttl, 0)
	attached.cancel()
	attached.shareAs(c, keys...)
	attached.start = e.Start // a process that is stopped meanwhile may hear the answer long after the servers gave it
	g.granted(attached, lock.Token(), lock.Until(), 0)
	second := &held{g: g, op: attached.op, lock: lock, client: client, keys: keys, ttl: h.ttl, shared: true}
	second.ask()
	if g.chance(2) && second.refresh(second.ttl+time.Second, time.Second, nil) == nil {
		second.work()
	}
	h.unclaim()
	second.unclaim()
	h.shared = true
	if g.chance(2) {
		h, second = second, h
	}
	h.release(time.Second)
	second.release(time.Second)
}
