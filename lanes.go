package redislock

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lanes are the ways to one server. What frees and keeps locks does not wait behind what takes them.
type lanes struct{ obtains, others lane }

// lane is a way to one server on which calls share round trips. A call that finds no flight under way leaves at once and
// by itself. One that finds few leaves together with those who are about to call. One that finds more waits, and leaves
// in one pipeline with all that wait by then, as soon as a flight has landed.
type lane struct {
	node   *node
	server *redis.Client

	mu        sync.Mutex // protects what follows
	queue     []*call    // empty unless there are laneFlights
	flights   []*flight  // those under way that count
	gathering bool       // the last of them is about to take the queue along
	watched   bool       // a timer will look at the lane
}

// flight is a call by itself, or a pipeline of calls.
type flight struct {
	began time.Time
}

const (
	// laneFlights is how many flights may be under way before calls wait for one another. More of them measure the same.
	laneFlights = 2

	// slowFlight is how long a flight counts. One that takes longer hangs, and is no reason to wait.
	slowFlight = 100 * time.Millisecond

	// largeCall is the number of keys from which on a call goes by itself: others would wait for it.
	largeCall = 64
)

// lane returns the lane of the call, nil for one that goes by itself.
func (n *node) lane(c *call) *lane {
	if n.process == nil || len(c.keys) >= largeCall || n.cluster != nil && !n.reached.Load() {
		return nil
	}
	server, err := n.server(c.boxed[0].(string))
	if err != nil {
		return nil
	}
	found, ok := n.lanes.Load(server)
	if !ok {
		found, _ = n.lanes.LoadOrStore(server, &lanes{
			obtains: lane{node: n, server: server}, others: lane{node: n, server: server},
		})
	}
	if c.script == obtainScript {
		return &found.(*lanes).obtains
	}
	return &found.(*lanes).others
}

// alwaysTogether makes calls share pipelines even when they are alone. The specs set it.
var alwaysTogether = false

// takeOff reports whether the call is to leave by itself, now. If not, it is in the queue, and lands later.
func (l *lane) takeOff(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flights) < laneFlights && !l.gathering && !alwaysTogether { // so nothing is in the queue
		c.flight.began = time.Now()
		l.flights = append(l.flights, &c.flight)
		return len(l.flights) == 1 || !l.gather(c)
	}
	l.enqueue(c)
	switch {
	case l.gathering:
	case len(l.flights) < laneFlights:
		l.launch()
	case !l.watched:
		l.watched = true
		time.AfterFunc(slowFlight, l.look)
	}
	return false
}

// gather lets others call, and takes them along in the flight of the call. It reports whether there were any. l.mu is
// held, but not all the while.
func (l *lane) gather(c *call) bool {
	l.gathering = true
	l.mu.Unlock()
	runtime.Gosched() // a flight that has landed has woken many at once; they need no time but a turn
	l.mu.Lock()
	l.gathering = false
	if len(l.queue) == 0 {
		return false
	}
	l.enqueue(c)
	go l.fly(&c.flight, l.takeQueue()) // ends when the queue is empty after a flight
	return true
}

func (l *lane) enqueue(c *call) {
	c.done = make(chan struct{})
	l.queue = append(l.queue, c)
}

func (l *lane) takeQueue() []*call {
	batch := l.queue
	l.queue = nil
	return batch
}

// look lets the queue go if flights hang.
func (l *lane) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = len(l.queue) > 0
	if !l.watched {
		return
	}
	now := time.Now()
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool { return now.Sub(f.began) >= slowFlight })
	if len(l.flights) < laneFlights {
		l.launch()
	}
	next := slowFlight
	for _, f := range l.flights {
		next = min(next, f.began.Add(slowFlight).Sub(now))
	}
	time.AfterFunc(next, l.look)
}

// launch sends what is in the queue. l.mu is held.
func (l *lane) launch() {
	f := &flight{began: time.Now()}
	l.flights = append(l.flights, f)
	go l.fly(f, l.takeQueue()) // ends when the queue is empty after a flight
}

// land ends the flight of a call that left by itself. What waits leaves.
func (l *lane) land(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights = slices.DeleteFunc(l.flights, func(other *flight) bool { return other == f })
	if len(l.queue) > 0 && len(l.flights) < laneFlights {
		l.launch()
	}
}

// fly sends one batch of calls after the other, until none waits.
func (l *lane) fly(f *flight, batch []*call) {
	for batch != nil {
		l.node.sendTogether(l.server, batch, longTimeout, l.node.settle)
		batch = l.next(f)
	}
}

// next returns what waits after a flight has landed, if that goes on.
func (l *lane) next(f *flight) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.flights, f)
	if at >= 0 && len(l.queue) == 0 {
		l.flights = slices.Delete(l.flights, at, at+1)
	}
	if at < 0 || len(l.queue) == 0 {
		return nil
	}
	f.began = time.Now()
	return l.takeQueue()
}
