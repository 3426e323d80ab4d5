package transport

import (
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redis/go-redis/v9"
)

// server is what is known of one Redis server, and the ways to it.
type server struct {
	standalone atomic.Int32 // one of standaloneUnknown, standaloneYes and standaloneNo; see greeting

	calling atomic.Int32 // calls that share, or would
	crowd   atomic.Int32 // so many more calls are taken to come from many callers

	// Calls that do not yield do not wait behind those that do.
	yielding, others lane
}

// What a server says of itself.
const (
	standaloneUnknown int32 = iota
	standaloneYes
	standaloneNo
)

func newServer(r *Redis) *server {
	s := &server{}
	s.yielding.redis, s.yielding.server = r, s
	s.others.redis, s.others.server = r, s
	return s
}

// servers are those of one Redis. An entry does not keep the client of its server alive, and goes some time after that
// has gone: a Ring and a Cluster make new clients and close old ones for as long as they live.
type servers struct{ byClient sync.Map } // from weak.Pointer[redis.Client] to *server

// of returns what is known of the server behind a client.
func (s *servers) of(r *Redis, client *redis.Client) *server {
	if client == r.single {
		return r.only
	}
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
	found, _ := s.byClient.LoadOrStore(key, newServer(r))
	return found.(*server)
}

const (
	// fewCalls may be under way to a server before they share. The server takes up so many connections in one turn of its
	// event loop anyway, and nobody waits for anybody.
	fewCalls = 5

	// crowdLasts is how many calls more share after there were many at a time.
	crowdLasts = 256
)

// AlwaysTogether makes calls share pipelines even when they are alone. The specs set it.
var AlwaysTogether = false

// enter counts a call, and reports whether it is one of many.
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

// uncount takes back what enter has counted, once: when the call has been sent, or when its caller has left.
func (c *Call) uncount() {
	if c.counted.CompareAndSwap(true, false) {
		c.lane.server.calling.Add(-1)
	}
}
