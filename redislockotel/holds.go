package redislockotel

import (
	"maps"
	"sync"
	"time"
)

// holds knows which locks are held, and until when. A lock may expire without an event, so a counter that goes up at the
// grant and down at the release would drift.
//
// All events of one lock have the same slice of keys, so the address of its first key identifies the lock. The names of the
// keys do not: if a lock has expired, and the next holder of its keys is in this process as well, the late Release of the
// first lock must not end the hold of the second.
type holds struct {
	mu     sync.Mutex       // protects the fields below
	locks  map[*string]hold // by the first of their keys
	names  map[string]int64 // every name so far, with its last count: a count of 0 is reported as well
	enough int              // with more locks than this, set removes those that have expired
}

type hold struct {
	name  string
	until time.Time
}

// leastEnough is a number of holds that needs little memory.
const leastEnough = 1024

func newHolds() *holds {
	return &holds{locks: make(map[*string]hold), names: make(map[string]int64), enough: leastEnough}
}

// set notes that a lock is held until the given time. It reports whether the name is new.
func (h *holds) set(keys []string, name string, until time.Time) (fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.names[name]; !known {
		fresh = true
		h.names[name] = 0
	}
	if h.locks[&keys[0]] = (hold{name, until}); len(h.locks) > h.enough { // perhaps nobody ever calls count
		h.prune(time.Now())
		h.enough = max(leastEnough, 2*len(h.locks))
	}
	return fresh
}

// prolong notes that a lock is held until the given time, if it was held: the event of a renewal may come after that of
// the release.
func (h *holds) prolong(keys []string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held, ok := h.locks[&keys[0]]; ok {
		h.locks[&keys[0]] = hold{held.name, until}
	}
}

func (h *holds) remove(keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.locks, &keys[0])
}

// prune removes the locks that have expired. The caller holds h.mu.
func (h *holds) prune(now time.Time) {
	maps.DeleteFunc(h.locks, func(_ *string, held hold) bool { return !now.Before(held.until) })
}

// count returns how many locks of each name are held.
func (h *holds) count(now time.Time) map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune(now)
	for name := range h.names {
		h.names[name] = 0
	}
	for _, held := range h.locks {
		h.names[held.name]++
	}
	return maps.Clone(h.names)
}
