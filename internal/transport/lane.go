package transport

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// lane is a way to one server on which calls share round trips. While there are few calls, each goes at once and by itself.
// While there are many:
//   - a call that finds no trip under way goes at once and by itself;
//   - a call that finds one takes along the calls that are about to be made;
//   - a call that finds more waits. As soon as a trip ends, all waiting calls go in one pipeline.
type lane struct {
	redis  *Redis
	server *server

	mu        sync.Mutex // protects the fields below
	queue     []*Call    // waiting calls; empty unless there are laneTrips trips, or one gathers
	trips     []*trip    // those under way that count
	gathering bool       // the last of trips is about to take the queue along
	watched   bool       // a timer is going to call look
}

// trip is a call by itself, or a pipeline of calls.
type trip struct {
	began time.Time
	node  Node // of the lane
}

const (
	// laneTrips is how many trips may be under way before calls wait. Measured, larger values were no faster.
	laneTrips = 2

	// slowTrip is how long a trip counts. A trip that takes longer hangs, and others do not wait for it.
	slowTrip = 100 * time.Millisecond

	// largeCall is the number of keys from which a call goes by itself, because others would wait for it.
	largeCall = 64
)

// lane returns the lane of the call and its server, or nil for a call that goes by itself.
func (r *Redis) lane(c *Call) (*lane, Node) {
	if c.Alone || len(c.Keys) >= largeCall || r.rewritten.Load() {
		return nil, nil
	}
	node, err := r.serverOf(c)
	if err != nil || node == nil {
		return nil, nil
	}
	s := r.servers.of(r, node)
	if c.Script.Yields {
		return &s.yielding, node
	}
	return &s.others, node
}

// admit reports whether the call is to go by itself, now. If not, it is in the queue and finishes later.
func (l *lane) admit(c *Call, node Node) bool {
	c.lane = l
	c.counted.Store(true)
	if !l.server.enter() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.trips) < laneTrips && !l.gathering && !AlwaysTogether { // then the queue is empty
		c.trip = l.begin(node)
		return len(l.trips) == 1 || !l.gather(c)
	}
	l.enqueue(c)
	switch {
	case l.gathering:
	case len(l.trips) < laneTrips:
		l.launch(node)
	case !l.watched:
		l.watched = true
		time.AfterFunc(slowTrip, func() { l.look(node) })
	}
	return false
}

// gather lets other goroutines make calls, and takes those calls along in the trip of this one. It reports whether
// there were any. The caller holds l.mu, which gather releases for a moment.
func (l *lane) gather(c *Call) bool {
	l.gathering = true
	l.mu.Unlock()
	runtime.Gosched() // the end of a trip wakes many callers at once; each needs only its turn to run
	l.mu.Lock()
	l.gathering = false
	if len(l.queue) == 0 {
		return false
	}
	l.enqueue(c)
	go l.run(c.trip, l.takeQueue()) // ends when the queue is empty after a trip
	return true
}

// begin begins a trip. The caller holds l.mu.
func (l *lane) begin(node Node) *trip {
	t := &trip{began: time.Now(), node: node}
	l.trips = append(l.trips, t)
	return t
}

func (l *lane) enqueue(c *Call) {
	c.done = make(chan struct{})
	l.queue = append(l.queue, c)
}

func (l *lane) takeQueue() []*Call {
	batch := l.queue
	l.queue = nil
	return batch
}

// look sends the queue if the trips hang.
func (l *lane) look(node Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = len(l.queue) > 0
	if !l.watched {
		return
	}
	now := time.Now()
	l.forget(now, slowTrip)
	if len(l.trips) < laneTrips {
		l.launch(node)
	}
	next := slowTrip
	for _, t := range l.trips {
		next = min(next, t.began.Add(slowTrip).Sub(now))
	}
	time.AfterFunc(next, func() { l.look(node) })
}

// forget drops the trips that have taken so long: they hang, and others do not wait for them. The caller holds l.mu.
func (l *lane) forget(now time.Time, counts time.Duration) {
	l.trips = slices.DeleteFunc(l.trips, func(t *trip) bool { return now.Sub(t.began) >= counts })
}

// launch sends the queue. The caller holds l.mu.
func (l *lane) launch(node Node) {
	go l.run(l.begin(node), l.takeQueue()) // ends when the queue is empty after a trip
}

// endTrip ends the trip of a call that went by itself.
func (l *lane) endTrip(c *Call) {
	c.uncount()
	if c.trip != nil {
		l.end(c.trip)
	}
}

// end ends a trip, and sends the waiting calls.
func (l *lane) end(t *trip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trips = slices.DeleteFunc(l.trips, func(other *trip) bool { return other == t })
	if len(l.queue) > 0 && len(l.trips) < laneTrips {
		l.launch(t.node)
	}
}

// run sends one batch of calls after the other, until no call waits.
func (l *lane) run(t *trip, batch []*Call) {
	defer func() {
		if batch == nil {
			return
		}
		if waiting := l.next(t); waiting != nil { // a hook has called runtime.Goexit
			go l.run(t, waiting)
		}
	}()
	for batch != nil {
		l.redis.sendTogether(t.node, batch, ConnectTimeout, func(c *Call) {
			c.uncount()
			l.redis.finish(c)
		})
		batch = l.next(t)
	}
}

// next returns the calls that a trip is to send next. If there are none, or the trip no longer counts, it returns nil.
func (l *lane) next(t *trip) []*Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.trips, t)
	if at >= 0 && len(l.queue) == 0 {
		l.trips = slices.Delete(l.trips, at, at+1)
	}
	if at < 0 || len(l.queue) == 0 {
		return nil
	}
	t.began = time.Now()
	return l.takeQueue()
}
