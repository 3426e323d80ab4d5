package schedule

import (
	"container/heap"
	"sync"
	"time"
)

// Item is something to look at. Its Entry is its position in the Schedule.
type Item interface {
	// Look is called when the item is due, in the goroutine of the Schedule, which is locked. So Look must not block, and must
	// not call the Schedule. It returns when to look again (the zero time for never), and by how much earlier than they are due
	// this round may look at other items.
	Look(now time.Time) (next time.Time, early time.Duration)

	// Wanted reports whether to go on looking at the item. It is called with the Schedule locked.
	Wanted() bool

	// Entry returns the same Entry at each call.
	Entry() *Entry
}

// Entry is the place of an item in a Schedule. It belongs to the Schedule. The zero Entry is in no Schedule.
type Entry struct {
	item  Item // nil while the Entry is in no Schedule
	next  time.Time
	index int
}

// in reports whether the item is in a Schedule. It has no field of its own, because a Lock fills its size class.
func (e *Entry) in() bool { return e.item != nil }

// Schedule looks at items when they are due. Its goroutine starts with the first of them and ends after the last. It is
// safe for concurrent use.
type Schedule struct {
	ended func(over []Item)

	mu      sync.Mutex // protects the fields below
	queue   queue
	running bool

	wake chan struct{} // has room for one; a value says that the head of the queue may have changed
}

// New returns an empty Schedule. After each round, it calls ended with the items at which it will not look again. It does so
// in its goroutine, and is not locked then.
func New(ended func(over []Item)) *Schedule {
	return &Schedule{ended: ended, wake: make(chan struct{}, 1)}
}

// Add makes the Schedule look at an item soon, unless the item is already in it.
func (s *Schedule) Add(item Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); !e.in() {
		*e = Entry{item: item, next: time.Now()}
		heap.Push(&s.queue, e)
		s.nudge()
	}
	if !s.running {
		s.running = true
		go s.run() // ends when the queue is empty
	}
}

// Remove takes an item out of the Schedule, unless it is wanted again.
func (s *Schedule) Remove(item Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.in() && !item.Wanted() {
		heap.Remove(&s.queue, e.index)
		*e = Entry{}
		s.nudge()
	}
}

// LookBy makes the Schedule look at an item no later than at the given time.
func (s *Schedule) LookBy(item Item, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.in() && at.Before(e.next) {
		s.put(e, at)
	}
}

// LookAt makes the Schedule look at an item at the given time, and no sooner.
func (s *Schedule) LookAt(item Item, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := item.Entry(); e.in() {
		s.put(e, at)
	}
}

// put moves an entry. The caller holds s.mu.
func (s *Schedule) put(e *Entry, at time.Time) {
	e.next = at
	heap.Fix(&s.queue, e.index)
	s.nudge()
}

// nudge wakes the goroutine. The caller holds s.mu.
func (s *Schedule) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Items returns the present items, in no order.
func (s *Schedule) Items() []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]Item, len(s.queue))
	for i, e := range s.queue {
		items[i] = e.item
	}
	return items
}

// run is the Schedule's goroutine.
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

// stopped reports whether the queue is still empty, and then lets run end.
func (s *Schedule) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.queue) > 0
	return !s.running
}

// round looks at the items that are due. It returns the items that it will not look at again, and the time of the next
// round: the zero time if no item is left.
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
		looked = append(looked, e) // back into the queue only after the loop, or this round might look at it twice
	}
	for _, e := range looked {
		heap.Push(&s.queue, e)
	}
	if len(s.queue) > 0 {
		next = s.queue[0].next
	}
	return over, next
}

// queue is a heap, ordered by the time of the next look.
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
