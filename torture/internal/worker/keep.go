package worker

import (
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// keep keeps a lock alive for a while.
func (g *goroutine) keep() {
	ttl := g.between(150*time.Millisecond, 1500*time.Millisecond)
	c := g.newObtain(ttl, g.between(300*time.Millisecond, 3*time.Second))
	defer c.cancel()
	g.inLine(c)
	h := g.obtain(c, g.someClient(c))
	if h == nil {
		return
	}
	long := g.between(100*time.Millisecond, 3*time.Second)
	if g.Endpoint.Topology == "quorum" && g.chance(2) { // so long that a server that forgets gets its keys again
		long = g.between(3*time.Second, 6*time.Second)
	}
	h.keep(long)
}

// keep keeps the lock alive for that long, checks its context all the time, and releases it.
func (h *held) keep(long time.Duration) {
	g := h.g
	ctx, stop := h.lock.KeepAlive(context.Background())
	defer stop()
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	lapsed := make(chan int64, 1) // when the derived context ended
	context.AfterFunc(derived, func() { lapsed <- clock.Now() })

	last := int64(0) // the end of the validity, as last read
	for enough := time.Now().Add(long); time.Now().Before(enough); {
		at := clock.Now()
		if ctx.Err() != nil {
			h.unclaim()
			cause := context.Cause(ctx)
			h.done(history.Event{Name: "KeepAlive", Start: at, Lost: isLoss(cause)}, cause)
			if errors.Is(cause, redislock.ErrLapsed) && last > 0 {
				g.log.Write(history.Event{
					Kind: history.Late, At: clock.Now(), Op: h.op, Left: time.Duration(max(<-lapsed-last, 0)),
				})
			}
			break
		}
		early, late := h.until()
		last = late
		g.log.Write(history.Event{
			Kind: history.Alive, At: at, End: clock.Now(), Op: h.op, Until: max(early, 1), Bound: max(late, 1),
		})
		h.write()
		if g.chance(6) {
			h.ask()
		}
		time.Sleep(min(h.ttl/12, 100*time.Millisecond))
	}
	if ctx.Err() == nil {
		h.done(history.Event{Name: "KeepAlive", Start: clock.Now()}, nil)
	}
	if g.chance(2) {
		stop()
	}
	h.release(g.somePatience())
}

// do runs a function under a lock, and sometimes another one inside it.
func (g *goroutine) do() {
	keys := g.someKeys()
	c := g.newCall("Do", keys, g.between(150*time.Millisecond, 1500*time.Millisecond), g.between(time.Second, 4*time.Second))
	defer c.cancel()
	g.options(c)
	g.inLine(c)
	client := g.someClient(c)
	g.doKeys(c, keys, client, func(ctx context.Context) {
		g.workUnder(ctx, c, g.between(0, 600*time.Millisecond))
		if !g.chance(3) {
			return
		}
		missing := g.siblings(keys)
		inner := g.newCall("Do", append(append([]string(nil), keys[:1]...), missing...), time.Second, 500*time.Millisecond)
		defer inner.cancel()
		inner.with("nested")
		inner.under = []string{c.op}
		inner.opt.Metadata = inner.op
		inner.shareAs(c, keys[0]) // it can have fewer holders there, but not more
		if g.chance(3) {
			g.share(inner, missing...)
		}
		innerCtx, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, inner), time.Now().Add(500*time.Millisecond))
		defer cancel()
		inner.ctx = innerCtx
		all := inner.keys
		inner.keys = missing // the inner Do does not obtain again what the outer lock holds
		g.doKeys(inner, all, client, func(ctx context.Context) {
			g.workUnder(ctx, inner, g.between(0, 100*time.Millisecond))
			if at := clock.Now(); ctx.Err() == nil { // then the outer lock is valid as well
				g.log.Write(history.Event{Kind: history.Alive, At: at, Op: c.op})
			}
		})
	})
}

// doKeys calls Do for keys. The hold of the call is that of c.keys.
func (g *goroutine) doKeys(c *call, keys []string, client *redislock.Client, fn func(context.Context)) {
	work := func(ctx context.Context) error {
		if len(c.keys) > 0 {
			g.granted(c, "", c.until, c.fence)
		}
		fn(ctx)
		g.log.Write(history.Event{Kind: history.Claim, At: clock.Now(), Op: c.op})
		return nil
	}
	var err error
	if nested := len(keys) > len(c.keys); g.backend.client != nil && !nested && g.chance(6) {
		c.with("package")
		c.until = time.Time{}
		c.opt.FenceKey = "" // nothing reports the fencing token
		err = redislock.Do(c.ctx, g.backend.client, keys, c.ttl, c.opt, work)
	} else {
		err = client.Do(c.ctx, keys, c.ttl, c.opt, work)
	}
	g.ended(c, err, "ok")
}

// workUnder works for a while, and checks that ctx has not ended.
func (g *goroutine) workUnder(ctx context.Context, c *call, long time.Duration) {
	for enough := time.Now().Add(long); ; time.Sleep(c.ttl / 12) {
		at := clock.Now()
		if ctx.Err() != nil {
			g.log.Write(history.Event{Kind: history.Claim, At: clock.Now(), Op: c.op})
			return
		}
		g.log.Write(history.Event{Kind: history.Alive, At: at, Op: c.op})
		if c.opt.FenceKey != "" {
			if _, err := g.store.Write(c.op, c.opt.FenceKey, c.fence); err != nil {
				g.ended(c, err, "")
				return
			}
		}
		if !time.Now().Before(enough) {
			return
		}
	}
}
