package transport

import (
	"slices"
	"time"
)

const (
	// maxBatch bounds the calls of one pipeline. A server needs some 30 ms for 10,000 calls, and serves other clients in
	// between.
	maxBatch = 10_000

	// Up to freeBatches pipelines may be under way to one server at any time. If there are more, the server hangs. Then
	// the next pipeline waits for batchInterval, or for less if its patience is shorter and fewer than maxBatches are
	// under way. So the library soon notices a server that comes back, and spends few connections on one that does not.
	// A hanging pipeline goes on until the Redis client gives it up, which may be never. So it counts only for
	// batchCounts. Then no number of hanging pipelines stops the sending, which must go on when the network is back.
	freeBatches   = 4
	batchInterval = 250 * time.Millisecond
	maxBatches    = 16 // from here on, patience does not count
	batchCounts   = 5 * time.Second

	// leastConnecting is the least time that a pipeline waits for a connection, however short the patience of its batch.
	leastConnecting = 50 * time.Millisecond
)

// SendBatches sends each call once. Calls for the same server share pipelines, in the order given, except those that are to
// be Alone. It calls finished once per finished call, possibly concurrently, and does not wait for that. patience returns
// how soon a call should have been sent; the patience of a pipeline is that of its first call.
//
// If too many pipelines hang, it does not send the rest of the calls: it returns them, and does not call finished for them.
// Offer them again later.
func (r *Redis) SendBatches(calls []*Call, patience func(*Call) time.Duration, finished func(*Call)) (unsent []*Call) {
	type way struct {
		node  Node
		alone bool
	}
	ways := map[way][]*Call{}
	for _, c := range calls {
		node, err := r.serverOf(c)
		if err != nil {
			c.Err = err
			finished(c)
			continue
		}
		to := way{node, c.Alone}
		ways[to] = append(ways[to], c)
	}
	for to, all := range ways {
		for batch := range slices.Chunk(all, maxBatch) {
			wait := patience(batch[0])
			l := &r.servers.of(r, to.node).batches
			t := l.beginBatch(to.node, wait)
			if t == nil {
				unsent = append(unsent, batch...)
				continue
			}
			go func() { // ends when the Redis client has an answer or gives up
				defer l.end(t)
				r.sendTogether(to.node, batch, max(wait, leastConnecting), finished)
			}()
		}
	}
	return unsent
}

// beginBatch begins a pipeline of a batch, unless none may start now.
func (l *lane) beginBatch(node Node, patience time.Duration) *trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.forget(now, batchCounts)
	if n := len(l.trips); n >= freeBatches {
		gap := batchInterval
		if n < maxBatches {
			gap = min(gap, patience)
		}
		if now.Sub(l.trips[n-1].began) < gap {
			return nil
		}
	}
	return l.begin(node)
}
