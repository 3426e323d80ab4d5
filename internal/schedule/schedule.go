// Package schedule looks at things when they are due, in rounds, so that what is due at about the same time can be done
// together. It knows nothing of what the things are.
package schedule

import (
	"container/heap"
	"sync"
	"time"
)

// Item is a thing to look at. Its Entry is the place in the Schedule.
type Item interface {
	// Look is called when the item is due, by the Schedule's goroutine, with the Schedule locked: it must not block, and
	// not call the Schedule. It returns when to look again, the zero time for never again, and by how much sooner than
	// when they are due other items may be looked at in this round.
	Look(now time.Time) (next time.Time, early time.Duration)

	// Wanted reports whether the item is still to be looked at. It is called with the Schedule locked.
	Wanted() bool

	// Entry returns the same Entry at each call.
	Entry() *Entry
}

// Entry is the place of an item in a Schedule. The zero Entry is in none. It belongs to the Schedule.
type Entry struct {
	item  Item
	next  time.Time
	index int
	in    bool
}

// Schedule looks at items when they are due. Its goroutine starts with the first of them and ends after the last. It is
// safe for concurrent use.
type Schedule struct {
	ended func(over []Item)

	mu      sync.Mutex // protects what follows
	queue   queue
	running bool
	closed  bool

	wake chan struct{} // has room for one; tells the goroutine that the queue has changed at its head
}

// New returns an empty Schedule. After each round it calls ended, unlocked and from its goroutine, with the items that
// are not looked at again.
func New(ended func(over []Item)) *Schedule {
	return &Schedule{ended: ended, wake: make(chan struct{}, 1)}
}

// Add makes the Schedule look at an item, soon, unless that is in it already. It reports false after Close.
func (s *Schedule) Add(item Item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if e := item.Entry(); !e.in {
		*e = Entry{item: item, next: time.Now(), in: true}
		heap.Push(&s.queue, e)
		s.nudge()
	}
	if !s.running {
		s.running = true
		go s.run() // ends when the queue is empty
	}
	return true
}

// Remove takes an item out, unless it is wanted again.
func (s *Schedule) Remove(item Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.in && !item.Wanted() {
		heap.Remove(&s.queue, e.index)
		*e = Entry{}
		s.nudge()
	}
}

// LookBy makes the Schedule look at an item no later than at that time.
func (s *Schedule) LookBy(item Item, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.in && at.Before(e.next) {
		s.put(e, at)
	}
}

// LookAt makes the Schedule look at an item at that time, and no sooner.
func (s *Schedule) LookAt(item Item, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.in {
		s.put(e, at)
	}
}

// put moves an entry. s.mu is held.
func (s *Schedule) put(e *Entry, at time.Time) {
	e.next = at
	heap.Fix(&s.queue, e.index)
	s.nudge()
}

// nudge wakes the goroutine. s.mu is held.
func (s *Schedule) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close refuses items from now on, and returns those that are in. They stay until they are removed.
func (s *Schedule) Close() []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	items := make([]Item, len(s.queue))
	for i, e := range s.queue {
		items[i] = e.item
	}
	return items
}

// run is the goroutine.
func (s *Schedule) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		}
		over, next := s.round()
		s.ended(over)
		if len(over) == 0 && next.IsZero() && s.stopped() {
			return
		}
		timer.Reset(time.Until(next))
	}
}

// stopped ends the running if the queue is empty still.
func (s *Schedule) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.queue) > 0
	return !s.running
}

// round looks at the items whose time has come. It returns those that are not looked at again, and the time of the next
// look: the zero time if there is nothing to look at.
func (s *Schedule) round() (over []Item, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	horizon := now
	var looked []*Entry
	for len(s.queue) > 0 && !s.queue[0].next.After(horizon) {
		e := heap.Pop(&s.queue).(*Entry)
		again, early := e.item.Look(now)
		if again.IsZero() {
			over = append(over, e.item)
			*e = Entry{}
			continue
		}
		if sooner := now.Add(early); sooner.After(horizon) {
			horizon = sooner
		}
		e.next = again
		looked = append(looked, e) // and not at once into the queue again, lest it be looked at twice
	}
	for _, e := range looked {
		heap.Push(&s.queue, e)
	}
	if len(s.queue) > 0 {
		next = s.queue[0].next
	}
	return over, next
}

// queue is a heap by the time of the next look.
type queue []*Entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(e any) {
	added := e.(*Entry)
	added.index = len(*q)
	*q = append(*q, added)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
