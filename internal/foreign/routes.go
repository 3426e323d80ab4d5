package foreign

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

const (
	// routesWait is how long to wait for the answer to which node has which slots.
	routesWait = 3 * time.Second

	// routesLast is how long an answer lasts at least, whatever errors come.
	routesLast = 250 * time.Millisecond
)

// routes are the nodes of a Cluster.
type routes struct {
	table atomic.Pointer[[slots]*node] // by slot; nil for a slot without a master. Nobody changes a table that is stored

	mu    sync.Mutex // held while somebody asks the Cluster
	nodes map[string]*node
	asked time.Time // when that was last
}

const slots = 16384

// node returns the node that has a key. Only the first call asks the Cluster.
func (r *routes) node(c *conn, key string) (transport.Node, error) {
	table := r.table.Load()
	if table == nil {
		var err error
		if table, err = r.load(c); err != nil {
			return nil, err
		}
	}
	if n := table[transport.Slot(key)]; n != nil {
		return n, nil
	}
	return nil, errors.New("no node of the Cluster has the slot of the key")
}

// reload asks the Cluster again, in the background, unless that was done just now.
func (r *routes) reload(c *conn) {
	if !r.mu.TryLock() {
		return
	}
	due := time.Since(r.asked) >= routesLast
	r.mu.Unlock()
	if due {
		go func() { _, _ = r.load(c) }() // ends after routesWait, as far as the client obeys its ctx
	}
}

// load asks the Cluster, unless somebody has just done so.
func (r *routes) load(c *conn) (*[slots]*node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if table := r.table.Load(); table != nil && time.Since(r.asked) < routesLast {
		return table, nil
	}
	r.asked = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), routesWait)
	defer cancel()
	ranges, err := c.router.Slots(ctx)
	if err != nil {
		return nil, err
	}
	if r.nodes == nil {
		r.nodes = map[string]*node{}
	}
	table, used := new([slots]*node), map[string]*node{}
	for _, some := range ranges {
		n := r.nodes[some.Address]
		if n == nil {
			n = &node{c, some.Address}
			r.nodes[some.Address] = n
		}
		used[some.Address] = n
		for slot := max(0, some.First); slot <= min(some.Last, slots-1); slot++ {
			table[slot] = n
		}
	}
	r.nodes = used
	r.table.Store(table)
	return table, nil
}
