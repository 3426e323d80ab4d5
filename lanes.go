package redislock

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// server is what is known of one Redis server, and the ways to it.
type server struct {
	standalone atomic.Int32 // what it says of itself; see greeting

	calling atomic.Int32 // calls that share, or would
	crowd   atomic.Int32 // so many more calls are taken to come from many callers

	// What frees and keeps locks does not wait behind what takes them.
	obtains, others lane
}

func newServer(n *node) *server {
	s := &server{}
	s.obtains.node, s.obtains.server = n, s
	s.others.node, s.others.server = n, s
	return s
}

// servers are those of one node. An entry does not keep the client of its server alive, and goes some time after that has
// gone: a Ring and a Cluster make new clients and close old ones for as long as they live.
type servers struct{ byClient sync.Map } // from weak.Pointer[redis.Client] to *server

// of returns what is known of the server behind a client.
func (s *servers) of(n *node, client *redis.Client) *server {
	key := weak.Make(client)
	if found, ok := s.byClient.Load(key); ok {
		return found.(*server)
	}
	s.byClient.Range(func(key, _ any) bool {
		if key.(weak.Pointer[redis.Client]).Value() == nil {
			s.byClient.Delete(key)
		}
		return true
	})
	found, _ := s.byClient.LoadOrStore(key, newServer(n))
	return found.(*server)
}

// lane is a way to one server on which calls share round trips. While few call at a time, each call goes at once and by
// itself. While many do, one that finds no trip under way goes at once and by itself; one that finds few goes together with
// those who are about to call; one that finds more waits, and goes in one pipeline with all that wait by then, as soon
// as a trip has ended.
type lane struct {
	node   *node
	server *server

	mu        sync.Mutex // protects what follows
	queue     []*call    // empty unless there are laneTrips
	trips     []*trip    // those under way that count
	gathering bool       // the last of them is about to take the queue along
	watched   bool       // a timer will look at the lane
}

// trip is a call by itself, or a pipeline of calls.
type trip struct {
	began time.Time // zero for a call that does not count
}

const (
	// fewCalls may be under way to a server before they share. The server takes up so many connections in one turn of its
	// event loop anyway, and nobody waits for anybody.
	fewCalls = 5

	// crowdLasts is how many calls more share after there were many at a time.
	crowdLasts = 256

	// laneTrips is how many trips may be under way before calls wait for one another. More of them measure the same.
	laneTrips = 2

	// slowTrip is how long a trip counts. One that takes longer hangs, and is no reason to wait.
	slowTrip = 100 * time.Millisecond

	// largeCall is the number of keys from which on a call goes by itself: others would wait for it.
	largeCall = 64
)

// lane returns the lane of the call, with the client of its server; nil for a call that goes by itself.
func (n *node) lane(c *call) (*lane, *redis.Client) {
	if n.process == nil || len(c.keys) >= largeCall || n.sharing.Load() != sharingAllowed {
		return nil, nil
	}
	client, err := n.server(c.boxed[0].(string))
	if err != nil {
		return nil, nil
	}
	s := n.servers.of(n, client)
	if c.script == obtainScript {
		return &s.obtains, client
	}
	return &s.others, client
}

// alwaysTogether makes calls share pipelines even when they are alone. The specs set it.
var alwaysTogether = false

// enter counts a call, and reports whether it is one of many.
func (s *server) enter() bool {
	if s.calling.Add(1) > fewCalls || alwaysTogether {
		s.crowd.Store(crowdLasts)
		return true
	}
	if s.crowd.Load() <= 0 {
		return false
	}
	s.crowd.Add(-1)
	return true
}

// admit reports whether the call goes by itself, now. If not, it is in the queue, and ends later.
func (l *lane) admit(c *call, client *redis.Client) bool {
	c.lane, c.client = l, client
	if !l.server.enter() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.trips) < laneTrips && !l.gathering && !alwaysTogether { // so nothing is in the queue
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
func (l *lane) gather(c *call, client *redis.Client) bool {
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

func (l *lane) enqueue(c *call) {
	c.done = make(chan struct{})
	l.queue = append(l.queue, c)
}

func (l *lane) takeQueue() []*call {
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
func (l *lane) leave(c *call) {
	l.server.calling.Add(-1)
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
func (l *lane) run(t *trip, client *redis.Client, batch []*call) {
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
		if l.node.separates() {
			through = nil // since this batch was begun, a hook has been found that rewrites keys
		}
		l.node.sendTogether(through, batch, longTimeout, l.finish)
		batch = l.next(t)
	}
}

// finish ends a call that has been sent with others.
func (l *lane) finish(c *call) {
	l.server.calling.Add(-1)
	l.node.settle(c)
}

// next returns what waits after a trip has ended, if that goes on.
func (l *lane) next(t *trip) []*call {
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
