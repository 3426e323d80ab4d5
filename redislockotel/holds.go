package redislockotel

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"
)

// holds knows which locks are held, and until when. A lock may expire without an event, so counting up at the grant and
// down at the release would drift.
type holds struct {
	seed maphash.Seed

	mu     sync.Mutex       // protects what follows
	locks  map[uint64]hold  // by the hash of the keys
	names  map[string]int64 // every name there was, for a count of 0 is worth telling; the values are those of the last count
	enough int              // locks; more of them and those that have expired are removed
}

type hold struct {
	name  string
	until time.Time
}

// leastEnough is how many holds are no burden.
const leastEnough = 1024

func newHolds() *holds {
	return &holds{
		seed: maphash.MakeSeed(), locks: make(map[uint64]hold), names: make(map[string]int64), enough: leastEnough,
	}
}

// hash returns a number that stands for keys: two sets share one with a chance of 1 in 2^64.
func (h *holds) hash(keys []string) uint64 {
	var sum maphash.Hash
	sum.SetSeed(h.seed)
	for _, key := range keys {
		_, _ = sum.WriteString(key) // never fails
		_ = sum.WriteByte(0)
	}
	return sum.Sum64()
}

func (h *holds) set(keys []string, name string, until time.Time) {
	id := h.hash(keys)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.names[name]; !known {
		h.names[name] = 0
	}
	if h.locks[id] = (hold{name, until}); len(h.locks) > h.enough { // nobody may ever count
		h.prune(time.Now())
		h.enough = max(leastEnough, 2*len(h.locks))
	}
}

func (h *holds) remove(keys []string) {
	id := h.hash(keys)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.locks, id)
}

// prune removes the locks that have expired. h.mu is held.
func (h *holds) prune(now time.Time) {
	for id, held := range h.locks {
		if !now.Before(held.until) {
			delete(h.locks, id)
		}
	}
}

// count returns how many locks are held by each name.
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
