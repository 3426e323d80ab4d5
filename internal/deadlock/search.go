package deadlock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/script"
)

const (
	// maxKeys is how many keys, and their lines, a search reads.
	maxKeys = 64

	// maxOwn is how many of these may be of the caller's own keys: all others would leave no room for what it waits for.
	maxOwn = maxKeys / 2

	// maxShown is how many waiters it reads of each line.
	maxShown = 1000

	// pause is the time between two readings.
	pause = 100 * time.Millisecond
)

// slots bounds the searches of this process that are under way, because thousands of waiters may begin to wait together.
var slots = make(chan struct{}, 4)

// Look returns what keys hold, and who waits for them.
type Look func(ctx context.Context, keys []string, g script.Glance) ([]script.Held, error)

// Search looks whether a waiter with that ticket has closed a circle. It returns the circle, beginning with the waiter; nil
// if there is none, or if it was not there all the time between two readings. An error of Look ends the search. So does the
// end of ctx.
func Search(ctx context.Context, look Look, w *Waiter, ticket int64) ([]Arrow, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s := &search{look: look, waiter: w, glance: script.Glance{Shown: maxShown, Below: ticket}, held: map[string]script.Held{}}
	s.glance.Note = w.note()
	found, err := s.explore(ctx)
	if err != nil || found == nil {
		return nil, err
	}
	timer := time.NewTimer(pause)
	select {
	case <-timer.C:
	case <-ctx.Done():
		timer.Stop()
		return nil, ctx.Err()
	}
	keys, before := s.keys, s.held
	s.keys, s.held, s.glance.Note = nil, map[string]script.Held{}, nil
	if err := s.read(ctx, keys); err != nil {
		return nil, err
	}
	return newGraph(w, common(before, s.held)).circle(ctx)
}

// search is one search.
type search struct {
	look   Look
	waiter *Waiter
	glance script.Glance
	keys   []string               // that were read
	held   map[string]script.Held // by key
}

// explore reads what may be part of a circle, and returns the circle that this shows.
func (s *search) explore(ctx context.Context) ([]Arrow, error) {
	own := script.Unique(s.ownKeys())
	if err := s.read(ctx, own[:min(len(own), maxOwn)]); err != nil {
		return nil, err
	}
	for {
		g := newGraph(s.waiter, s.held)
		if len(g.members) == 1 && !s.wantsOwn() { // nobody waits for what its caller holds
			return nil, nil
		}
		more := s.unread(g)
		if found, err := g.circle(ctx); found != nil || err != nil {
			return found, err
		}
		if len(more) == 0 || len(s.keys) == maxKeys {
			return nil, nil
		}
		if err := s.read(ctx, more); err != nil {
			return nil, err
		}
	}
}

// note returns what the waiter notes for those who wait for what its caller holds.
func (w *Waiter) note() *script.Note {
	n := &script.Note{Wants: slices.Sorted(maps.Keys(w.Limits)), Tokens: map[string]string{}}
	for _, lock := range w.Holds {
		for _, key := range lock.Keys {
			n.Tokens[key] = lock.Token
		}
	}
	return n
}

// ownKeys returns the keys that the caller holds.
func (s *search) ownKeys() (keys []string) {
	for _, lock := range s.waiter.Holds {
		keys = append(keys, lock.Keys...)
	}
	return keys
}

// wantsOwn reports whether the waiter wants a key that its caller holds.
func (s *search) wantsOwn() bool {
	return slices.ContainsFunc(s.ownKeys(), func(key string) bool {
		_, wants := s.waiter.Limits[key]
		return wants
	})
}

// unread returns the keys that matter to the members of a graph and were not read: those that the waiter wants, those that
// others hold, and those that others want.
func (s *search) unread(g *graph) (keys []string) {
	keys = append(keys, g.self.keys...)
	others := slices.SortedFunc(maps.Values(g.members), func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
	})
	for _, m := range others {
		for _, lock := range m.Holds {
			keys = append(keys, lock.Keys...)
		}
	}
	for _, m := range others {
		keys = append(keys, m.Wants...)
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		_, read := s.held[key]
		return read
	})
}

// read reads keys, as far as a search may.
func (s *search) read(ctx context.Context, keys []string) error {
	keys = script.Unique(keys)
	keys = keys[:min(len(keys), maxKeys-len(s.keys))]
	if len(keys) == 0 {
		return nil
	}
	found, err := s.look(ctx, keys, s.glance)
	if err != nil {
		return err
	}
	for i, key := range keys {
		s.held[key] = found[i]
	}
	s.keys = append(s.keys, keys...)
	return nil
}
