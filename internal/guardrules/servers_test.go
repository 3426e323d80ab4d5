package guardrules_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/spec"
)

// node is one in-memory Redis of a schedule. It can restart with what it held at an earlier time.
type node struct {
	*spec.MemoryServer
	self *incarnation.Server

	mu     sync.Mutex // protects the fields below
	run    string     // the id that it has kept since it started: no promotion changes it
	synced bool       // as a replica, it has received the past of the master
	past   []snapshot // what it held, the latest last
}

func newNode() *node {
	n := &node{MemoryServer: spec.NewMemoryServer(), synced: true}
	n.self = incarnation.Of(n.Memory)
	n.run = n.self.ID()
	return n
}

// snapshot is what a node held at some time.
type snapshot struct {
	at   time.Time
	keys map[string]entry
}

type entry struct {
	value   string
	set     map[string]float64 // of a sorted set
	expires time.Time          // zero for a key without expiry
}

// lastingKeys are those without expiry.
var lastingKeys = []string{keyname.GuardMarker, fenceKey}

const fenceKey = "fence"

// remember adds what the node holds to its past, which reaches back for 1.5 s.
func (n *node) remember() {
	now := snapshot{time.Now(), map[string]entry{}}
	db := n.Memory.DB(0)
	for _, key := range db.Keys() {
		var e entry
		var err error
		switch db.Type(key) {
		case "string":
			e.value, err = db.Get(key)
		case "zset":
			e.set = spec.SortedSet(db, key)
		}
		switch left := db.TTL(key); {
		case err != nil:
			continue
		case left > 0:
			e.expires = now.at.Add(left)
		case !slices.Contains(lastingKeys, key): // it was deleted just now
			continue
		}
		now.keys[key] = e
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.past = append(n.past, now)
	if len(n.past) > 400 {
		n.past = slices.Clone(n.past[len(n.past)-300:])
	}
}

// ago returns what the node held about that long ago.
func (n *node) ago(d time.Duration) snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	since := time.Now().Add(-d)
	for _, s := range slices.Backward(n.past) {
		if !s.at.After(since) {
			return s
		}
	}
	return snapshot{}
}

// restore makes the node hold what the snapshot says, as far as it has not expired since.
func (n *node) restore(s snapshot) {
	n.Memory.FlushAll()
	db := n.Memory.DB(0)
	for key, e := range s.keys {
		left := time.Until(e.expires)
		if !e.expires.IsZero() && left <= 0 {
			continue
		}
		if e.set == nil {
			_ = db.Set(key, e.value)
		}
		for member, score := range e.set {
			_, _ = db.ZAdd(key, score, member)
		}
		if !e.expires.IsZero() {
			db.SetTTL(key, left)
		}
	}
}

// start begins a new run of the node, as a master.
func (n *node) start() {
	n.self.Begin()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.run = n.self.ID()
}

// promote makes the node a master. With sameRun, it keeps the id of its run, as if run_id were its identity.
func (n *node) promote(sameRun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if sameRun {
		n.self.Become("master", n.run)
		return
	}
	n.self.Begin()
}

func (n *node) setSynced(synced bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.synced = synced
}

func (n *node) isSynced() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.synced
}

// group is one server as its clients see it: a master, and perhaps a replica that takes over.
type group struct {
	mu      sync.Mutex // protects the fields below
	master  *node
	replica *node              // nil for none
	at      map[int]*node      // by client: the node that it takes for the master
	conns   map[int][]net.Conn // by client: all that it has opened
}

func newGroup(nodes ...*node) *group {
	g := &group{master: nodes[0], at: map[int]*node{}, conns: map[int][]net.Conn{}}
	for client := range clients {
		g.at[client+1] = g.master
	}
	if len(nodes) > 1 {
		g.replica = nodes[1]
		g.replica.Refuse()
		g.replica.self.Follow(g.master.self.ID())
	}
	return g
}

// dialer connects a client to the node that it takes for the master.
func (g *group) dialer(client int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.mu.Lock()
		n := g.at[client]
		g.mu.Unlock()
		conn, err := n.Dialer(client)(ctx, network, addr)
		if err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.conns[client] = append(g.conns[client], conn)
		}
		return conn, err
	}
}

// point makes a client take a node for the master. Its connections are closed.
func (g *group) point(client int, n *node) {
	g.mu.Lock()
	conns := g.conns[client]
	g.at[client], g.conns[client] = n, nil
	g.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// nodes returns the master and the replica, which is nil if there is none.
func (g *group) nodes() (master, replica *node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.master, g.replica
}

// swap makes the replica the master.
func (g *group) swap() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.master, g.replica = g.replica, g.master
}
