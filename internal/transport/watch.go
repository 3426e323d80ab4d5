package transport

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A connection can die without a sign: a firewall or a load balancer forgets it, or a virtual machine moves. Until
// go-redis' ReadTimeout, a call on it looks like a call to a slow server, and the next connection of the pool may be as
// dead. So watch looks after whatever is on its way. When something is not answered for longer than answers usually
// take, it asks the server on a new connection. If the answer comes, and what was silent before is still silent, its
// connection is dead:
//   - the idle connections of the pool get a PING. While they owe the answer, nobody else can take them, and go-redis
//     removes those that stay silent. So what is sent next goes by a connection that has answered, or by a new one;
//   - calls that may be executed late are lost: DoAnew sends them again at once. Any other call waits for its connection to
//     end: it may still be executed, and what follows depends on when that is certain.
//
// A server that hangs answers on no connection. Then nothing is lost, and no connection is given up.
type watch struct {
	redis *Redis

	mu      sync.Mutex       // protects the fields below
	flights map[*Call]flight // those on their way, by their first call
	usual   time.Duration    // how long answers took lately, a moving average; 0 before the first
	timer   *time.Timer      // calls look; nil before the first flight
	ticking bool             // the timer runs
	slow    bool             // it looks only for flights that were silent before

	asked map[Node]struct{} // servers that are being asked, or were just now

	started time.Time
	heard   atomic.Int64                  // how long after that the last answer came; 0 before the first
	losses  atomic.Pointer[chan struct{}] // closed when calls are lost, and then replaced
}

// flight is what is on its way to a server in one piece: a call by itself, or a pipeline.
type flight struct {
	first  *Call
	others []*Call   // its calls after the first
	since  time.Time // when look first saw that it was written; zero before
	dead   bool      // its connection is
}

const (
	// watchInterval is the time between two looks at flights that may soon be silent.
	watchInterval = 25 * time.Millisecond

	// leastSilence is how long a flight may be without an answer before the library asks on a new connection, or four times as
	// long as answers usually take.
	leastSilence = 100 * time.Millisecond

	// firstSilence is the same as long as nothing was answered.
	firstSilence = 250 * time.Millisecond

	// vagueSilence is the least if nobody knows when the flight was written: it may still wait for a connection.
	vagueSilence = 400 * time.Millisecond

	// silencePerCall is what each key of a call by itself, and each call of a pipeline, adds.
	silencePerCall = 20 * time.Microsecond

	// askTimeout is how long the answer to a question may take. The next question to that server follows after askInterval, or
	// after askAgain if it was answered.
	askTimeout  = time.Second
	askInterval = 500 * time.Millisecond
	askAgain    = 100 * time.Millisecond

	// leastPing is how long an idle connection may take for its answer to a PING, or eight times as long as a new one took.
	leastPing = 25 * time.Millisecond

	// justHeard is for how long after an answer a caller without a ctx that can end sends its call itself, so that DoAnew
	// cannot leave it. To hand the call to another goroutine costs up to 33 µs, which only a client that makes one call
	// after the other would notice.
	justHeard = 2 * time.Millisecond
)

// errLost is the error of a call that was lost and has no reply.
var errLost = errors.New("no answer from Redis on a connection that has died")

// start makes a watch ready.
func (w *watch) start(r *Redis) {
	w.redis, w.started, w.flights, w.asked = r, time.Now(), map[*Call]flight{}, map[Node]struct{}{}
	losses := make(chan struct{})
	w.losses.Store(&losses)
}

// begin adds a flight.
func (w *watch) begin(first *Call, others []*Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flights[first] = flight{first: first, others: others}
	if !w.ticking || w.slow {
		w.tick(watchInterval)
	}
}

// tick makes the timer call look. The caller holds w.mu.
func (w *watch) tick(d time.Duration) {
	w.ticking, w.slow = true, d > watchInterval
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.look)
	} else {
		w.timer.Reset(d)
	}
}

// end removes a flight.
func (w *watch) end(first *Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.flights, first)
}

// answered notes an answer to something that was sent at that time.
func (w *watch) answered(sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.heard.Store(int64(now.Sub(w.started)))
	took := max(1, now.Sub(sent))
	if w.usual == 0 {
		w.usual = min(took, leastSilence/4)
	} else { // one answer says little, so it doubles the average at most
		w.usual = min((7*w.usual+took)/8, 2*w.usual)
	}
}

// hasJustHeard reports whether an answer has come so lately that connections are unlikely to be dead.
func (w *watch) hasJustHeard() bool {
	heard := w.heard.Load()
	return heard > 0 && time.Since(w.started)-time.Duration(heard) < justHeard
}

// silence returns how long a flight may be without an answer. The caller holds w.mu.
func (w *watch) silence(f flight) time.Duration {
	most := firstSilence
	if w.usual > 0 {
		most = max(leastSilence, 4*w.usual)
	}
	if f.first.Token == "" || w.redis.Opaque {
		most = max(most, vagueSilence)
	}
	return most + time.Duration(len(f.others)+len(f.first.Keys))*silencePerCall
}

// look looks for flights that are silent, and asks their servers.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ticking = false
	if len(w.flights) == 0 {
		return
	}
	now := time.Now()
	next := askInterval
	var silent []flight
	for first, f := range w.flights {
		switch {
		case f.since.IsZero():
			if next = watchInterval; f.hasDeparted() {
				f.since = now
				w.flights[first] = f
			}
		case f.dead:
		case now.Sub(f.since) >= w.silence(f):
			silent = append(silent, f)
			next = min(next, askAgain)
		default:
			next = watchInterval
		}
	}
	w.tick(next)
	// A look at 10,000 flights takes long, and none of them can end meanwhile. So looks take a tenth of the time at most. The
	// pause has a bound, because the process may have been stopped during this look.
	if pause := min(10*time.Since(now), askInterval); pause > next {
		w.timer.Reset(pause)
	}
	if len(silent) > 0 {
		go w.sort(silent) // ends when it is known which servers they are for
	}
}

// sort asks the servers of silent flights, unless that was done just now.
func (w *watch) sort(silent []flight) {
	byServer := map[Node][]flight{}
	for _, f := range silent {
		if node := w.redis.pool(f.first); node != nil {
			byServer[node] = append(byServer[node], f)
		}
	}
	for node, flights := range byServer {
		if w.mayAsk(node) {
			go func() { // ends within seconds: go-redis limits how long it connects
				pause := askInterval
				defer func() { w.hasAsked(node, pause) }()
				if w.ask(node, flights) {
					pause = askAgain
				}
			}()
		}
	}
}

// mayAsk reports whether to ask a server now. If so, call hasAsked afterwards.
func (w *watch) mayAsk(node Node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, is := w.asked[node]; is {
		return false
	}
	w.asked[node] = struct{}{}
	return true
}

// hasAsked lets a server be asked again after a pause.
func (w *watch) hasAsked(node Node, pause time.Duration) {
	time.AfterFunc(pause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.asked, node)
	})
}

// ask asks a server on a new connection, and reports whether it has answered. If so, the silent flights that it has not
// answered meanwhile are lost.
func (w *watch) ask(node Node, silent []flight) (answered bool) {
	took, answered := node.AskAnew(askTimeout)
	if !answered {
		return false
	}
	silent = slices.DeleteFunc(silent, func(f flight) bool { return !f.hasDeparted() })
	if len(silent) == 0 {
		return true
	}
	node.PingIdle(max(leastPing, 8*took))
	w.bury(silent)
	return true
}

// keep makes sure that a call whose caller has left is not lost any more: nobody would send a copy.
func (w *watch) keep(c *Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.leaves = false
}

// bury notes that the connections of flights are dead, unless these have landed meanwhile. Their calls that leave are lost.
func (w *watch) bury(silent []flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range silent {
		if now, is := w.flights[f.first]; !is || !now.since.Equal(f.since) {
			continue
		}
		f.dead = true
		w.flights[f.first] = f
		for _, c := range append([]*Call{f.first}, f.others...) {
			if c.leaves {
				c.state.CompareAndSwap(departed, lost)
			}
		}
	}
	losses := make(chan struct{})
	close(*w.losses.Swap(&losses))
}

// hasDeparted reports whether the flight was written, and has neither landed nor been lost.
func (f flight) hasDeparted() bool {
	has := func(c *Call) bool { return c.state.Load() == departed }
	return has(f.first) || slices.ContainsFunc(f.others, has)
}
