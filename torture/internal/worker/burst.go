package worker

import (
	"time"

	"github.com/redislock/redislock/torture/internal/clock"
)

// burst obtains and releases keys that few others want, as fast as it can.
func (g *goroutine) burst() {
	for range 60 {
		if clock.Now() >= g.Until {
			return
		}
		name, shares := g.quietKey(), g.chance(3)
		if shares { // so few keys that several callers meet
			name = key(g.random.IntN(g.Groups), g.Hot+g.random.IntN(4))
		}
		c := g.newCall("Obtain", []string{name}, g.someTTL(), time.Second)
		c.opt.Metadata = c.op
		c.with("metadata")
		if g.chance(2) {
			c.opt.FenceKey = name + FenceSuffix
			c.with("fence")
		}
		if shares {
			g.share(c, name)
		}
		if h := g.obtain(c, g.client(0)); h != nil {
			h.write()
			h.release(0)
		}
		c.cancel()
	}
}

// brief locks keys that few others want for long, and releases them at once. So what obtains them again after that shows.
func (g *goroutine) brief() {
	for range 60 {
		if clock.Now() >= g.Until {
			return
		}
		name := g.quietKey()
		c := g.newCall("Obtain", []string{name}, g.between(7*time.Second, 9*time.Second), 2*time.Second)
		c.opt.Metadata = c.op
		c.with("metadata")
		if g.chance(3) {
			g.share(c, name)
		}
		if h := g.obtain(c, g.someClient(c)); h != nil {
			h.release(0)
		}
		c.cancel()
		time.Sleep(g.between(0, 40*time.Millisecond))
	}
}
