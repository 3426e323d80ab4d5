package tree

import (
	"cmp"
	"slices"
	"strings"
)

// plant chooses the roots among all locks, and the keys that no lock holds.
func (t *Tree) plant(locks []*Lock) {
	w := newWalk()
	for _, k := range t.Keys {
		if len(k.Holders) == 0 {
			t.Unheld = append(t.Unheld, k)
			w.key(k)
		}
	}
	root := func(l *Lock) {
		if !w.locks[l] {
			t.Roots = append(t.Roots, l)
			w.lock(l)
		}
	}
	for _, l := range locks {
		if len(l.Waits) == 0 {
			root(l)
		}
	}
	for _, c := range t.Circles { // no other root leads there
		for _, s := range c.Steps {
			if s.Lock != nil {
				root(s.Lock)
				break
			}
		}
	}
	for _, l := range locks { // callers who wait for each other, and can go on
		root(l)
	}
	slices.SortStableFunc(t.Roots, func(a, b *Lock) int {
		return cmp.Or(cmp.Compare(b.Waiting(), a.Waiting()), strings.Compare(a.Keys[0].Key.Key, b.Keys[0].Key.Key))
	})
	slices.SortStableFunc(t.Unheld, func(a, b *Key) int {
		return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), strings.Compare(a.Key, b.Key))
	})
	t.collect()
}

// Waiting returns how many waiters the lines of its keys have. A waiter counts in each line.
func (l *Lock) Waiting() (count int) {
	for _, h := range l.Keys {
		count += h.Key.Waiters
	}
	return count
}

// Above returns these keys and locks, and all that lead to them.
func Above(keys []*Key, locks []*Lock) (aboveKeys map[*Key]bool, aboveLocks map[*Lock]bool) {
	aboveKeys, aboveLocks = map[*Key]bool{}, map[*Lock]bool{}
	due := slices.Clone(keys)
	add := func(l *Lock) {
		if aboveLocks[l] {
			return
		}
		aboveLocks[l] = true
		for _, w := range l.Waits {
			for _, p := range w.Places {
				due = append(due, p.Key)
			}
		}
	}
	for _, l := range locks {
		add(l)
	}
	for len(due) > 0 {
		k := due[len(due)-1]
		due = due[:len(due)-1]
		if aboveKeys[k] {
			continue
		}
		aboveKeys[k] = true
		for _, h := range k.Holders {
			add(h.Lock)
		}
	}
	return aboveKeys, aboveLocks
}

// Narrow leaves out the trees that have none of these keys, and their circles.
func (t *Tree) Narrow(keys []*Key) {
	above, roots := Above(keys, nil)
	t.Roots = slices.DeleteFunc(t.Roots, func(l *Lock) bool { return !roots[l] })
	t.Unheld = slices.DeleteFunc(t.Unheld, func(k *Key) bool { return !above[k] })
	reached := t.collect()
	t.Circles = slices.DeleteFunc(t.Circles, func(c *Circle) bool { return !reached.waiters[c.Steps[0].Place.Waiter] })
}

// collect sets the fields of all that is reached from the roots, and returns how it was reached.
func (t *Tree) collect() *walk {
	w := newWalk()
	for _, l := range t.Roots {
		w.lock(l)
	}
	for _, k := range t.Unheld {
		w.key(k)
	}
	for _, k := range w.foundKeys { // those who share a key with a lock below, and are roots of trees that are left out
		for _, h := range k.Holders {
			if !w.locks[h.Lock] {
				w.locks[h.Lock] = true
				w.foundLocks = append(w.foundLocks, h.Lock)
			}
		}
	}
	t.Locks, t.Waiters, t.Keys = w.foundLocks, w.foundWaiters, w.foundKeys
	for i, l := range t.Locks {
		l.ID = i + 1
	}
	for i, waiter := range t.Waiters {
		waiter.ID = i + 1
	}
	return w
}

// walk visits all below a root, each lock, waiter and key once. It keeps a stack of its own, because a chain may be long.
type walk struct {
	locks   map[*Lock]bool
	waiters map[*Waiter]bool
	keys    map[*Key]bool

	foundLocks   []*Lock
	foundWaiters []*Waiter
	foundKeys    []*Key
}

func newWalk() *walk {
	return &walk{locks: map[*Lock]bool{}, waiters: map[*Waiter]bool{}, keys: map[*Key]bool{}}
}

func (w *walk) lock(root *Lock) {
	due := []*Lock{root}
	for len(due) > 0 {
		l := due[len(due)-1]
		due = due[:len(due)-1]
		if w.locks[l] {
			continue
		}
		w.locks[l] = true
		w.foundLocks = append(w.foundLocks, l)
		var below []*Lock
		for _, h := range l.Keys {
			below = append(below, w.line(h.Key)...)
		}
		slices.Reverse(below)
		due = append(due, below...)
	}
}

func (w *walk) key(root *Key) {
	for _, l := range w.line(root) {
		w.lock(l)
	}
}

// line visits a key and its waiters, and returns the locks below them.
func (w *walk) line(k *Key) (below []*Lock) {
	if w.keys[k] {
		return nil
	}
	w.keys[k] = true
	w.foundKeys = append(w.foundKeys, k)
	for _, p := range k.Places {
		if w.waiters[p.Waiter] {
			continue
		}
		w.waiters[p.Waiter] = true
		w.foundWaiters = append(w.foundWaiters, p.Waiter)
		below = append(below, p.Waiter.Locks...)
	}
	return below
}
