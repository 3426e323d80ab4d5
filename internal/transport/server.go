package transport

import (
	"maps"
	"sync"
	"sync/atomic"
)

// server is what is known about one Redis server, with the lanes to it.
type server struct {
	standing atomic.Int32 // a Standing

	calling atomic.Int32 // calls under way that share or could
	crowd   atomic.Int32 // how many more calls share although few are under way

	// Calls that do not yield have their own lane, so they do not wait behind those that do.
	yielding, others lane

	batches lane // only trips; see SendBatches
}

func newServer(r *Redis) *server {
	s := &server{}
	s.yielding.redis, s.yielding.server = r, s
	s.others.redis, s.others.server = r, s
	return s
}

// servers holds the servers of one Redis. An entry does not keep its Node alive. The next look-up of an unknown Node removes
// the entries whose Nodes are gone: a Ring and a Cluster keep making new ones.
type servers struct {
	mu     sync.Mutex // protects byNode
	byNode map[WeakNode]*server
}

// of returns what is known about a server.
func (s *servers) of(r *Redis, node Node) *server {
	if node == r.single {
		return r.only
	}
	key := node.Weak()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.byNode[key]
	if !known {
		maps.DeleteFunc(s.byNode, func(key WeakNode, _ *server) bool { return key.IsGone() })
		found = newServer(r)
		s.byNode[key] = found
	}
	return found
}

const (
	// fewCalls is how many calls may be under way to a server before calls share. The server handles so many connections in
	// one turn of its event loop anyway, and no call waits for another.
	fewCalls = 8

	// crowdLasts is how many further calls share after many were under way at once.
	crowdLasts = 256
)

// AlwaysTogether makes calls share pipelines even when they are alone. Only specs set it.
var AlwaysTogether = false

// enter counts a call and reports whether it is one of many.
func (s *server) enter() bool {
	if s.calling.Add(1) > fewCalls || AlwaysTogether {
		s.crowd.Store(crowdLasts)
		return true
	}
	if s.crowd.Load() <= 0 {
		return false
	}
	s.crowd.Add(-1)
	return true
}

// uncount takes back, once, what enter has counted: when the call has been sent, or when its caller no longer waits.
func (c *Call) uncount() {
	if c.counted.CompareAndSwap(true, false) {
		c.lane.server.calling.Add(-1)
	}
}
