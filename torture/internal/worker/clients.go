package worker

import (
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// packaged calls the functions that need no Client.
func (g *goroutine) packaged() {
	if g.backend.client == nil {
		return
	}
	c := g.newObtain(g.someTTL(), 2*time.Second)
	defer c.cancel()
	if g.chance(2) {
		g.inLine(c)
	}
	if h := g.obtain(c, nil); h != nil {
		h.write()
		h.release(time.Second)
	}
}

// leave does what a program does at its end. Right after a release or an abandoned obtain, it closes the Client, which
// nobody else uses, and all connections. So nothing can be given up any more.
func (g *goroutine) leave() {
	b, err := g.connect()
	if err != nil {
		return
	}
	defer b.close()
	client := b.newClient(redislock.WithTracer(tracer))
	c := g.newObtain(g.between(7*time.Second, 9*time.Second), 2*time.Second)
	defer c.cancel()
	c.opt.Metadata = c.op
	c.with("leaves")
	if g.chance(2) {
		g.inLine(c)
	}
	if g.chance(3) {
		c.abandon(time.Duration(g.random.IntN(3000)) * time.Microsecond)
	}
	if h := g.obtain(c, client); h != nil {
		h.release(time.Second)
	}
	_ = client.Close()
	g.log.Write(history.Event{Kind: history.Done, At: clock.Now(), Start: c.start, Name: "Leave", Outcome: "ok", Op: c.op})
}

// close closes a Client that other goroutines are using.
func (g *goroutine) close() {
	if g.n == 0 && g.chance(3) {
		g.replaceClient(g.random.IntN(2))
	}
}
