package tree

import (
	"time"

	"github.com/redislock/redislock"
)

// Tree is who waits for whom.
type Tree struct {
	Roots  []*Lock // where the trees begin; those with the most waiters first
	Unheld []*Key  // the other roots: keys that no lock is known to hold; those with the most waiters first

	Circles     []*Circle // at most 100
	MoreCircles bool      // there are others

	// All that is reached from the roots, each once, in the order in which the trees have it.
	Locks   []*Lock
	Waiters []*Waiter
	Keys    []*Key
}

// Key is a key, who holds it and who waits for it.
type Key struct {
	redislock.Status // Line may have fewer waiters than Waiters says

	Holders []*Hold
	Places  []*Place // as in Line

	settled int // how many of the first places belong to waiters that are not stuck
}

// Lock is what one token holds.
type Lock struct {
	ID       int // its number among the Locks of a Tree, from 1
	Token    string
	Metadata string
	Keys     []*Hold
	Waits    []*Waiter // those in which its caller waits while it holds this lock

	stuck bool
}

// TTL returns for how long the lock holds all its keys, as far as they have an expiry; -1 if none of them has.
func (l *Lock) TTL() time.Duration {
	least := time.Duration(-1)
	for _, h := range l.Keys {
		if ttl := h.TTL(); ttl > 0 && (least < 0 || ttl < least) {
			least = ttl
		}
	}
	return least
}

// Hold is a key that a lock holds.
type Hold struct {
	Lock  *Lock
	Key   *Key
	Limit int // how many holders the lock lets the key have; 0 for no limit, 1 for an exclusive key
}

// TTL returns for how long the lock holds the key; -1 without expiry.
func (h *Hold) TTL() time.Duration {
	for _, holder := range h.Key.Status.Holders {
		if holder.Token == h.Lock.Token {
			return holder.TTL
		}
	}
	return h.Key.TTL
}

// Waiter is one waiter in the lines of all its keys. Limit and Late are those of its first place.
type Waiter struct {
	redislock.Waiter

	ID     int // its number among the Waiters of a Tree, from 1
	Places []*Place
	Locks  []*Lock // of Holds, those that hold a key of the tree

	stuck   bool
	blocked int // how many of its places block it
}

// Lock returns the lock of the tree that its caller holds with that token; nil if there is none.
func (w *Waiter) Lock(token string) *Lock {
	for _, l := range w.Locks {
		if l.Token == token {
			return l
		}
	}
	return nil
}

// Place is the place of a waiter in the line of a key.
type Place struct {
	Waiter *Waiter
	Key    *Key
	Index  int // in the line, from 0
	Limit  int // how many holders the waiter would let the key have; 0 for no limit

	group   int  // the index of the first of those just ahead who have the same limit, or its own
	blocked bool // by what is stuck
}

// Build makes a tree of what [redislock.Client.Inspect] has found. Each key may occur once.
func Build(statuses []redislock.Status) *Tree {
	b := builder{locks: map[string]*Lock{}, waiters: map[waiterID]*Waiter{}}
	for _, s := range statuses {
		b.addKey(s)
	}
	for _, w := range b.all {
		b.link(w)
	}
	settle(b.keys)
	t := &Tree{Keys: b.keys}
	t.Circles, t.MoreCircles = findCircles(b.all)
	t.plant(b.order)
	return t
}

type builder struct {
	keys    []*Key
	locks   map[string]*Lock // by token
	order   []*Lock
	waiters map[waiterID]*Waiter
	all     []*Waiter
}

// waiterID names a waiter: all its entries have its token. A custom token may stand in a line several times.
type waiterID struct {
	token string
	nth   int // in the line
}

func (b *builder) addKey(s redislock.Status) {
	k := &Key{Status: s}
	b.keys = append(b.keys, k)
	if s.HolderCount == 0 && s.Token != "" {
		b.hold(k, s.Token, s.Metadata, 1)
	}
	for _, h := range s.Holders {
		b.hold(k, h.Token, h.Metadata, h.Limit)
	}
	seen := map[string]int{}
	for i, found := range s.Line {
		id := waiterID{found.Token, seen[found.Token]}
		seen[found.Token]++
		w := b.waiters[id]
		if w == nil {
			w = &Waiter{Waiter: found, stuck: true}
			b.waiters[id], b.all = w, append(b.all, w)
		}
		p := &Place{Waiter: w, Key: k, Index: i, Limit: found.Limit, blocked: true}
		if p.group = i; i > 0 && k.Places[i-1].Limit == p.Limit {
			p.group = k.Places[i-1].group
		}
		w.Places, k.Places = append(w.Places, p), append(k.Places, p)
		w.blocked++
	}
}

func (b *builder) hold(k *Key, token, metadata string, limit int) {
	l := b.locks[token]
	if l == nil {
		l = &Lock{Token: token, Metadata: metadata}
		b.locks[token], b.order = l, append(b.order, l)
	}
	h := &Hold{Lock: l, Key: k, Limit: limit}
	l.Keys, k.Holders = append(l.Keys, h), append(k.Holders, h)
}

// link joins a waiter to the locks that its caller holds.
func (b *builder) link(w *Waiter) {
	for _, held := range w.Holds {
		if l := b.locks[held.Token]; l != nil && l.Token != w.Token {
			w.Locks, l.Waits = append(w.Locks, l), append(l.Waits, w)
			l.stuck = true
		}
	}
}
