package foreign

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

const (
	// routesWait is how long to wait for the answer to which node has which slots.
	routesWait = 3 * time.Second

	// routesPause is the least time between two questions, and routesLast how long an answer lasts without an error.
	routesPause = 250 * time.Millisecond
	routesLast  = time.Minute
)

const slots = 16384

// routes are the nodes of a Cluster. Nobody waits for them: they are asked for in the background, one question at a time.
type routes struct {
	table   atomic.Pointer[table] // nil before the first answer
	loading atomic.Bool           // a question is under way, or was just now; it protects nodes
	nodes   map[string]*node      // by address: those of table
}

// table says which node has which slot. It never changes.
type table struct {
	bySlot [slots]*node // nil for a slot without a master
	asked  time.Time
}

// node returns the node that has a key; nil if that is not known.
func (r *routes) node(c *conn, key string) *node {
	t := r.table.Load()
	if t == nil {
		r.reload(c)
		return nil
	}
	n := t.bySlot[transport.Slot(key)]
	if n == nil || time.Since(t.asked) > routesLast { // clients follow redirections without a word
		r.reload(c)
	}
	return n
}

// reload asks the Cluster, unless somebody does so, or has just done so.
func (r *routes) reload(c *conn) {
	if !r.loading.CompareAndSwap(false, true) {
		return
	}
	go func() { // ends when the client has an answer or gives up
		defer time.AfterFunc(routesPause, func() { r.loading.Store(false) })
		defer func() { _ = recover() }() // from the adapter; nobody could catch it
		ctx, cancel := context.WithTimeout(context.Background(), routesWait)
		defer cancel()
		asked := time.Now()
		ranges, err := c.router.Slots(ctx)
		if err != nil {
			return
		}
		t, used := &table{asked: asked}, map[string]*node{}
		for _, some := range ranges {
			n := used[some.Address]
			if n == nil {
				if n = r.nodes[some.Address]; n == nil {
					n = &node{conn: c, address: some.Address}
				}
				used[some.Address] = n
			}
			for slot := max(0, some.First); slot <= min(some.Last, slots-1); slot++ {
				t.bySlot[slot] = n
			}
		}
		for address, n := range r.nodes {
			if used[address] == nil {
				n.gone.Store(true)
			}
		}
		r.nodes = used
		r.table.Store(t)
	}()
}
