package worker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/torture/internal/clock"
	"github.com/redislock/redislock/torture/internal/store"
)

// goroutine is one of the goroutines of a worker. It makes one call at a time.
type goroutine struct {
	*process

	n      int
	random *rand.Rand
	store  *store.Client
}

// scene is one way to use the library, and how often it is chosen.
type scene struct {
	name   string
	weight int
	play   func()
}

// mostly is by how much more often the scene of a configuration is chosen than its weight says.
const mostly = 100

// run goes from one scene to the next until the time is over.
func (g *goroutine) run() {
	scenes := []scene{
		{"plain", 10, g.plain}, {"queued", 22, g.queued}, {"keep", 8, g.keep}, {"do", 8, g.do}, {"outlive", 7, g.outlive},
		{"abandon", 9, g.abandon}, {"refreshes", 7, g.refreshes}, {"custom", 14, g.custom}, {"attach", 4, g.attach},
		{"packaged", 3, g.packaged}, {"burst", 9, g.burst}, {"brief", 3, g.brief}, {"leave", 4, g.leave}, {"close", 1, g.close},
		{"nest", 10, g.nest},
	}
	if g.Endpoint.Guard.MaxTTL > 0 { // what goes wrong if a server forgets, and the guard opens too soon or grants too much
		scenes = append(scenes,
			scene{"keep-one", 24, g.keepOne}, scene{"rely", 16, g.rely}, scene{"release-twice", 16, g.releaseTwice},
			scene{"reuse", 20, g.reuse},
		)
	}
	total := 0
	for i, s := range scenes {
		if s.name == g.Scene {
			scenes[i].weight *= mostly
		}
		total += scenes[i].weight
	}
	for clock.Now() < g.Until {
		if g.n >= g.Goroutines || g.Scene == "" && g.n >= g.Goroutines-2 && !g.chance(6) { // so that there are many grants
			g.burst()
			continue
		}
		n := g.random.IntN(total)
		for _, s := range scenes {
			if n -= s.weight; n < 0 {
				s.play()
				break
			}
		}
	}
}

// chance reports true in one of n cases.
func (g *goroutine) chance(n int) bool { return g.random.IntN(n) == 0 }

// between returns a random duration; short ones are as likely as long ones.
func (g *goroutine) between(least, most time.Duration) time.Duration {
	d := least + time.Duration(g.random.Int64N(int64(most-least)))
	if g.chance(2) {
		d = least + (d-least)/8
	}
	return d
}

// someClient returns one of the Clients.
func (g *goroutine) someClient(c *call) *redislock.Client {
	i := 0
	if g.chance(4) {
		i = 1
		c.with("separate")
	}
	return g.client(i)
}

// someKeys returns keys of one group, most often one of the contended keys.
func (g *goroutine) someKeys() []string {
	group := g.random.IntN(g.Groups)
	n, from := 1, g.Hot
	switch choice := g.random.IntN(100); {
	case choice < 55:
	case choice < 80:
		n = 2 + g.random.IntN(3)
	case choice < 93:
		n, from = 2+g.random.IntN(8), g.Keys
	default:
		n, from = 10+g.random.IntN(41), g.Keys
	}
	n = min(n, from)
	var keys []string
	for _, i := range g.random.Perm(from)[:n] {
		keys = append(keys, key(group, i))
	}
	if g.Endpoint.Topology == "cluster" && g.chance(6) {
		keys = append(keys, key((group+1)%g.Groups, g.random.IntN(g.Hot)))
	}
	return keys
}

// quietKey returns a key that few others want.
func (g *goroutine) quietKey() string {
	return key(g.random.IntN(g.Groups), g.Hot+g.random.IntN(g.Keys-g.Hot))
}

// options gives the call options at random. Almost all calls write their op into the metadata, so that a key names its
// owner.
func (g *goroutine) options(c *call) {
	if !g.chance(8) {
		c.opt.Metadata = c.op
		c.with("metadata")
		if g.chance(30) {
			c.opt.Metadata += "|" + strings.Repeat("long ", 300)
			c.with("long-metadata")
		}
	}
	if !g.chance(3) {
		c.opt.FenceKey = c.keys[0] + FenceSuffix
		c.with("fence")
	}
	if g.chance(8) {
		c.opt.Explain = true
		c.with("explain")
	}
	if g.chance(3) {
		g.share(c, c.keys...)
	}
}

// share lets others hold these keys of a call as well. Most calls want a key in the same way, so that they meet.
func (g *goroutine) share(c *call, keys ...string) {
	for _, name := range keys {
		var group rune
		var number int
		_, _ = fmt.Sscanf(name, "{%c}:%d", &group, &number)
		if g.chance(6) {
			number = g.random.IntN(4)
		}
		switch most := number % 4; {
		case most == 1:
		case most == 0, g.Endpoint.Topology == "quorum": // where permits above 1 are an error
			c.opt.Shared = append(c.opt.Shared, name)
		default:
			if c.opt.Permits == nil {
				c.opt.Permits = map[string]int{}
			}
			c.opt.Permits[name] = most
		}
	}
}

// strategy returns a strategy, and its name.
func (g *goroutine) strategy() (s redislock.RetryStrategy, name string) {
	pause := g.between(time.Millisecond, 60*time.Millisecond)
	switch g.random.IntN(5) {
	case 0:
		return redislock.NoRetry(), "no-retry"
	case 1:
		return redislock.LinearBackoff(pause), "linear"
	case 2:
		return redislock.ExponentialBackoff(pause/4+time.Millisecond, 4*pause), "exponential"
	case 3:
		return redislock.LimitRetry(redislock.LinearBackoff(pause), 5), "limit"
	}
	return redislock.Jitter(redislock.LinearBackoff(pause), 0.5), "jitter"
}

// someTTL returns the ttl of a lock. Some are so long that it shows if nothing is cleaned up.
func (g *goroutine) someTTL() time.Duration {
	switch g.random.IntN(6) {
	case 0:
		return g.between(40*time.Millisecond, 400*time.Millisecond)
	case 1:
		return g.between(6*time.Second, 9*time.Second)
	}
	return g.between(time.Second, 4*time.Second)
}

// work uses the lock for a while: it writes, asks, and holds the lock.
func (h *held) work() {
	h.write()
	if h.g.chance(2) {
		time.Sleep(h.g.between(0, 12*time.Millisecond))
	}
	if h.g.chance(2) {
		h.ask()
	}
	if h.g.chance(3) {
		h.write()
	}
}
