package transport

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxBatch bounds the calls of one pipeline. So many take a server some 30 ms, with other clients' turns between.
	maxBatch = 10_000

	// Up to so many pipelines may be under way to one server at any time. More of them mean that it hangs: then one
	// follows the other at an interval, or sooner where a batch has less patience and not too many are under way. So a
	// server that comes back is found soon, and one that does not costs few connections. A hanging pipeline goes on until
	// the Redis client gives it up, which may be never. So it counts for a while only, and no number of them ends the
	// sending: it must go on when the network is back, whatever has become of the connections of before.
	freeBatches   = 4
	batchInterval = 250 * time.Millisecond
	maxBatches    = 16 // from here on impatience does not count
	batchCounts   = 5 * time.Second

	// leastConnecting is how long a pipeline waits for a connection at least, however little patience a batch has.
	leastConnecting = 50 * time.Millisecond
)

// SendBatches sends calls once each, those for one server in common pipelines in the order given, and calls finished
// once for each that has ended, possibly concurrently. It does not wait for them. patience returns how soon a call is
// wanted to have been sent; that of the first of a pipeline counts.
//
// Where too many pipelines hang, calls are not sent, and finished is not called for them: offer them again later.
func (r *Redis) SendBatches(calls []*Call, patience func(*Call) time.Duration, finished func(*Call)) {
	byServer := map[*redis.Client][]*Call{}
	for _, c := range calls {
		client, err := r.serverOf(c)
		if err != nil {
			c.Err = err
			finished(c)
			continue
		}
		byServer[client] = append(byServer[client], c)
	}
	for client, all := range byServer {
		for batch := range slices.Chunk(all, maxBatch) {
			wait := patience(batch[0])
			t := r.beginBatch(client, wait)
			if t == nil {
				break
			}
			go func() { // ends when the Redis client has an answer or gives up
				defer r.endBatch(client, t)
				through := client
				if r.separates() {
					through = nil
				}
				r.sendTogether(through, batch, max(wait, leastConnecting), finished)
			}()
		}
	}
}

// beginBatch counts one more pipeline to a server, and returns it; nil if none may go now.
func (r *Redis) beginBatch(client *redis.Client, patience time.Duration) *trip {
	r.batchMu.Lock()
	defer r.batchMu.Unlock()
	now := time.Now()
	under := r.batches[client]
	for len(under) > 0 && now.Sub(under[0].began) >= batchCounts {
		under = under[1:]
	}
	if n := len(under); n >= freeBatches {
		gap := batchInterval
		if n < maxBatches {
			gap = min(gap, patience)
		}
		if now.Sub(under[n-1].began) < gap {
			return nil
		}
	}
	t := &trip{began: now}
	r.batches[client] = append(under, t)
	return t
}

// endBatch takes away a pipeline that has ended.
func (r *Redis) endBatch(client *redis.Client, t *trip) {
	r.batchMu.Lock()
	defer r.batchMu.Unlock()
	under := slices.DeleteFunc(r.batches[client], func(other *trip) bool { return other == t })
	if len(under) == 0 {
		delete(r.batches, client)
	} else {
		r.batches[client] = under
	}
}
