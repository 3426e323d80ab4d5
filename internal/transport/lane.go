package transport

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lane is a way to one server on which calls share round trips. While few call at a time, each call goes at once and by
// itself. While many do, one that finds no trip under way goes at once and by itself; one that finds few goes together
// with those who are about to call; one that finds more waits, and goes in one pipeline with all that wait by then, as
// soon as a trip has ended.
type lane struct {
	redis  *Redis
	server *server

	mu        sync.Mutex // protects what follows
	queue     []*Call    // empty unless there are laneTrips
	trips     []*trip    // those under way that count
	gathering bool       // the last of them is about to take the queue along
	watched   bool       // a timer will look at the lane
}

// trip is a call by itself, or a pipeline of calls.
type trip struct {
	began time.Time // zero for a call that does not count
}

const (
	// laneTrips is how many trips may be under way before calls wait for one another. More of them measure the same.
	laneTrips = 2

	// slowTrip is how long a trip counts. One that takes longer hangs, and is no reason to wait.
	slowTrip = 100 * time.Millisecond

	// largeCall is the number of keys from which on a call goes by itself: others would wait for it.
	largeCall = 64
)

// lane returns the lane of the call, and the client of its server; nil for a call that goes by itself.
func (r *Redis) lane(c *Call) (*lane, *redis.Client) {
	if r.process == nil || len(c.Keys) >= largeCall || r.sharing.Load() != sharingAllowed {
		return nil, nil
	}
	client, err := r.serverOf(c)
	if err != nil {
		return nil, nil
	}
	s := r.servers.of(r, client)
	if c.Script.Yields {
		return &s.yielding, client
	}
	return &s.others, client
}

// admit reports whether the call goes by itself, now. If not, it is in the queue, and finishes later.
func (l *lane) admit(c *Call, client *redis.Client) bool {
	c.lane, c.client = l, client
	c.counted.Store(true)
	if !l.server.enter() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.trips) < laneTrips && !l.gathering && !AlwaysTogether { // so nothing is in the queue
		c.trip.began = time.Now()
		l.trips = append(l.trips, &c.trip)
		return len(l.trips) == 1 || !l.gather(c, client)
	}
	l.enqueue(c)
	switch {
	case l.gathering:
	case len(l.trips) < laneTrips:
		l.launch(client)
	case !l.watched:
		l.watched = true
		time.AfterFunc(slowTrip, func() { l.look(client) })
	}
	return false
}

// gather lets others call, and takes them along in the trip of the call. It reports whether there were any. l.mu is
// held, but not all the while.
func (l *lane) gather(c *Call, client *redis.Client) bool {
	l.gathering = true
	l.mu.Unlock()
	runtime.Gosched() // a trip that has ended has woken many at once; they need no time but a turn
	l.mu.Lock()
	l.gathering = false
	if len(l.queue) == 0 {
		return false
	}
	l.enqueue(c)
	go l.run(&c.trip, client, l.takeQueue()) // ends when the queue is empty after a trip
	return true
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

// look lets the queue go if trips hang.
func (l *lane) look(client *redis.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = len(l.queue) > 0
	if !l.watched {
		return
	}
	now := time.Now()
	l.trips = slices.DeleteFunc(l.trips, func(t *trip) bool { return now.Sub(t.began) >= slowTrip })
	if len(l.trips) < laneTrips {
		l.launch(client)
	}
	next := slowTrip
	for _, t := range l.trips {
		next = min(next, t.began.Add(slowTrip).Sub(now))
	}
	time.AfterFunc(next, func() { l.look(client) })
}

// launch sends what is in the queue. l.mu is held.
func (l *lane) launch(client *redis.Client) {
	t := &trip{began: time.Now()}
	l.trips = append(l.trips, t)
	go l.run(t, client, l.takeQueue()) // ends when the queue is empty after a trip
}

// leave ends the trip of a call that went by itself. What waits goes.
func (l *lane) leave(c *Call) {
	c.uncount()
	if c.trip.began.IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trips = slices.DeleteFunc(l.trips, func(other *trip) bool { return other == &c.trip })
	if len(l.queue) > 0 && len(l.trips) < laneTrips {
		l.launch(c.client)
	}
}

// run sends one batch of calls after the other, until none waits.
func (l *lane) run(t *trip, client *redis.Client, batch []*Call) {
	defer func() {
		if batch == nil {
			return
		}
		if waiting := l.next(t); waiting != nil { // a hook has called runtime.Goexit
			go l.run(t, client, waiting)
		}
	}()
	for batch != nil {
		through := client
		if l.redis.separates() {
			through = nil // since this batch was begun, a hook has been found that rewrites keys
		}
		l.redis.sendTogether(through, batch, connectTimeout, func(c *Call) {
			c.uncount()
			l.redis.finish(c)
		})
		batch = l.next(t)
	}
}

// next returns what waits after a trip has ended, if that goes on.
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
