package redislock

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// keeper is the one scheduler of a Client that renews its kept locks. Its goroutine starts with the first of them and
// ends after the last. Renewals that are due leave together, in a pipeline for each server.
type keeper struct {
	node *node

	mu      sync.Mutex // protects what follows
	queue   schedule
	running bool
	closed  bool
	trips   map[*redis.Client]trips

	wake chan struct{} // has room for one; tells the goroutine that the queue has changed at its head
}

// scheduled is a lock in the queue of the scheduler, which looks at it at next.
type scheduled struct {
	lock  *Lock
	next  time.Time
	index int
}

const (
	// maxBatch bounds the renewals of one pipeline. So many take a server some 30 ms, with other clients' turns between.
	maxBatch = 10_000

	// Up to so many pipelines may be under way to one server at any time. More of them mean that it hangs: then one
	// follows the other at an interval, or sooner where a lock has less time, each with all that is due. So a server
	// that comes back is found soon, and one that does not costs few connections. A hanging pipeline goes on until the
	// Redis client gives it up, which may be never. So it counts for a while only: renewals must go on when the network
	// is back, whatever has become of the connections of before.
	freeTrips    = 4
	tripInterval = 250 * time.Millisecond
	maxTrips     = 16
	tripCounts   = 5 * time.Second

	// leastConnecting is how long a pipeline waits for a connection at least, however soon the next one follows it.
	leastConnecting = 50 * time.Millisecond
)

// trips are the pipelines of renewals under way to one server that count, by when they began, the oldest first.
type trips []*trip

func newKeeper(n *node) *keeper {
	return &keeper{node: n, trips: map[*redis.Client]trips{}, wake: make(chan struct{}, 1)}
}

// add puts a lock into the queue, unless it is there. It reports false after close.
func (k *keeper) add(l *Lock) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	if l.scheduled == nil {
		l.scheduled = &scheduled{lock: l, next: time.Now()}
		heap.Push(&k.queue, l.scheduled)
		k.nudge()
	}
	if !k.running {
		k.running = true
		go k.run()
	}
	return true
}

// remove takes a lock out of the queue, unless it has come to be kept again.
func (k *keeper) remove(l *Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.scheduled != nil && !l.isKept() {
		heap.Remove(&k.queue, l.scheduled.index)
		l.scheduled = nil
		k.nudge()
	}
}

// look makes the scheduler look at a lock no later than at that time.
func (k *keeper) look(l *Lock, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := l.scheduled; w != nil && at.Before(w.next) {
		w.next = at
		heap.Fix(&k.queue, w.index)
		k.nudge()
	}
}

// put sets the time at which the scheduler looks at a lock again.
func (k *keeper) put(l *Lock, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := l.scheduled; w != nil {
		w.next = at
		heap.Fix(&k.queue, w.index)
		k.nudge()
	}
}

// nudge wakes the goroutine. k.mu is held.
func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// close ends every kept context.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	locks := make([]*Lock, len(k.queue))
	for i, w := range k.queue {
		locks[i] = w.lock
	}
	k.mu.Unlock()
	for _, l := range locks {
		if !l.lapse() {
			l.endKept(ErrClosed)
		}
	}
}

// run is the goroutine. It ends when the queue is empty.
func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		}
		due, over, next := k.takeDue()
		for _, l := range over {
			if !l.lapse() && !k.add(l) { // a Refresh has saved it since
				l.endKept(ErrClosed)
			}
		}
		k.launch(due)
		if len(over) == 0 && next.IsZero() && k.stopped() {
			return
		}
		timer.Reset(time.Until(next))
	}
}

// stopped ends the running if the queue is empty still.
func (k *keeper) stopped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = len(k.queue) > 0
	return !k.running
}

// takeDue looks at the locks whose time has come. It returns their renewals, those that are kept or valid no longer, and
// the time of the next look: the zero time if there is nothing to look at.
func (k *keeper) takeDue() (due []*renewal, over []*Lock, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	horizon := now
	var looked []*scheduled
	for len(k.queue) > 0 && !k.queue[0].next.After(horizon) {
		w := heap.Pop(&k.queue).(*scheduled)
		r, again := w.lock.renewal(now)
		if again.IsZero() {
			w.lock.scheduled = nil
			over = append(over, w.lock)
			continue
		}
		if r != nil {
			due = append(due, r)
			// What is due soon comes along, so that it shares the round trip. The lock says how soon that may be.
			horizon = later(horizon, now.Add(r.early))
		}
		w.next = again
		looked = append(looked, w) // and not at once into the queue again, lest it be looked at twice
	}
	for _, w := range looked {
		heap.Push(&k.queue, w)
	}
	if len(k.queue) > 0 {
		next = k.queue[0].next
	}
	return due, over, next
}

// launch sends renewals, those of the locks that lapse first before the others, and those for one server together. It
// does not wait for them.
func (k *keeper) launch(due []*renewal) {
	slices.SortFunc(due, func(a, b *renewal) int { return a.until.Compare(b.until) })
	servers := map[*redis.Client][]*renewal{}
	for _, r := range due {
		server, err := k.node.server(r.lock.keys[0])
		if err != nil {
			r.call.err = err
			k.land(r)
			continue
		}
		servers[server] = append(servers[server], r)
	}
	for server, all := range servers {
		for batch := range slices.Chunk(all, maxBatch) {
			t := k.begin(server, batch[0].patience)
			if t == nil {
				break // their locks are looked at again soon
			}
			go func() { // ends when the Redis client has an answer or gives up
				defer k.end(server, t)
				calls := make([]*call, len(batch))
				for i, r := range batch {
					calls[i] = r.call
				}
				through := server
				if k.node.separates() {
					through = nil
				}
				patience := max(batch[0].patience, leastConnecting)
				k.node.sendTogether(through, calls, patience, func(c *call) { k.land(c.renewal) })
			}()
		}
	}
}

// land draws the conclusions from a renewal that has ended.
func (k *keeper) land(r *renewal) {
	switch next, settled := r.lock.renewed(r); {
	case next.IsZero():
	case settled:
		k.put(r.lock, next)
	default:
		k.look(r.lock, next)
	}
}

// begin counts one more pipeline to a server, and returns it; nil if none may go now.
func (k *keeper) begin(server *redis.Client, patience time.Duration) *trip {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	under := k.trips[server]
	for len(under) > 0 && now.Sub(under[0].began) >= tripCounts {
		under = under[1:]
	}
	if n := len(under); n >= freeTrips && (n >= maxTrips || now.Sub(under[n-1].began) < min(tripInterval, patience)) {
		return nil
	}
	t := &trip{began: now}
	k.trips[server] = append(under, t)
	return t
}

// end takes away a pipeline that has ended.
func (k *keeper) end(server *redis.Client, t *trip) {
	k.mu.Lock()
	defer k.mu.Unlock()
	under := slices.DeleteFunc(k.trips[server], func(other *trip) bool { return other == t })
	if len(under) == 0 {
		delete(k.trips, server)
	} else {
		k.trips[server] = under
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// jittered returns d, more or less by up to a half at random.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// schedule is a heap of locks by the time of the next look.
type schedule []*scheduled

func (q schedule) Len() int           { return len(q) }
func (q schedule) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q schedule) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *schedule) Push(w any) {
	added := w.(*scheduled)
	added.index = len(*q)
	*q = append(*q, added)
}

func (q *schedule) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return w
}
