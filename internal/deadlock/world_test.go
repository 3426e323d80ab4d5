package deadlock_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/redislock/redislock/internal/deadlock"
	"github.com/redislock/redislock/internal/script"
)

// world is a Redis with some callers who hold locks and wait for others inside them. It grants as obtain.lua does.
type world struct {
	random  *rand.Rand
	keys    []string
	callers []*caller
	ticket  int64
	tokens  int
	held    map[string][]hold // by key
}

type hold struct {
	script.Holder

	by *caller
}

// caller holds locks, and waits for at most one more.
type caller struct {
	locks  []lock
	limits map[string]int // by key that it waits for; nil if it does not wait
	ticket int64
}

type lock struct {
	token string
	keys  []string
}

func newWorld(random *rand.Rand, keys, callers int) *world {
	w := &world{random: random, held: map[string][]hold{}}
	for i := range keys {
		w.keys = append(w.keys, fmt.Sprint("k", i))
	}
	for range callers {
		w.callers = append(w.callers, &caller{})
	}
	return w
}

func (c *caller) waits() bool { return c.limits != nil }

func (c *caller) holdings() (holds []script.Holding) {
	for _, l := range c.locks {
		holds = append(holds, script.Holding{Token: l.token, Keys: l.keys})
	}
	return holds
}

// step lets some caller that does not wait obtain or release something.
func (w *world) step(limits []int) {
	c := w.callers[w.random.IntN(len(w.callers))]
	switch {
	case c.waits():
	case len(c.locks) > 0 && w.random.IntN(4) == 0:
		w.release(c, w.random.IntN(len(c.locks)))
		w.grant()
	default:
		c.limits = map[string]int{}
		for range 1 + w.random.IntN(3)/2 {
			c.limits[w.keys[w.random.IntN(len(w.keys))]] = limits[w.random.IntN(len(limits))]
		}
		w.ticket++
		c.ticket = w.ticket
		w.grant()
	}
}

func (w *world) release(c *caller, at int) {
	for _, key := range c.locks[at].keys {
		w.held[key] = slices.DeleteFunc(w.held[key], func(h hold) bool { return h.Token == c.locks[at].token })
	}
	c.locks = slices.Delete(c.locks, at, at+1)
}

// giveUp ends what a caller waits for, and all that it holds.
func (w *world) giveUp(c *caller) {
	c.limits = nil
	for len(c.locks) > 0 {
		w.release(c, 0)
	}
	w.grant()
}

// grant serves those who wait, in the order of their tickets, until nobody can be served.
func (w *world) grant() (served bool) {
	for again := true; again; {
		again = false
		for _, c := range w.waiting() {
			if w.canHave(c) {
				w.tokens++
				l := lock{token: fmt.Sprint("t", w.tokens)}
				for key, limit := range c.limits {
					l.keys = append(l.keys, key)
					w.held[key] = append(w.held[key], hold{script.Holder{Token: l.token, Limit: limit}, c})
				}
				c.locks, c.limits = append(c.locks, l), nil
				again, served = true, true
			}
		}
	}
	return served
}

// waiting returns those who wait, in the order of their tickets.
func (w *world) waiting() (all []*caller) {
	for _, c := range w.callers {
		if c.waits() {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *caller) int { return int(a.ticket - b.ticket) })
	return all
}

func (w *world) canHave(c *caller) bool {
	for key, limit := range c.limits {
		count, least := len(w.held[key]), most(limit)
		for _, h := range w.held[key] {
			least = min(least, most(h.Limit))
		}
		for _, other := range w.waiting() {
			theirs, wants := other.limits[key]
			if !wants || other.ticket >= c.ticket {
				continue
			}
			if limit == 1 || limit != theirs {
				return false
			}
			count++
		}
		if count >= least {
			return false
		}
	}
	return true
}

func most(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// look is what Redis says of keys.
func (w *world) look(_ context.Context, keys []string, g script.Glance) ([]script.Held, error) {
	all := make([]script.Held, len(keys))
	for i, key := range keys {
		for _, h := range w.held[key] {
			all[i].Token, all[i].Count = h.Token, len(w.held[key])
			if h.Limit != 1 {
				all[i].Holders = append(all[i].Holders, h.Holder)
			}
		}
		shared := all[i].Holders != nil
		for _, c := range w.waiting() {
			limit, wants := c.limits[key]
			names := len(c.limits) > 1 || len(c.locks) > 0
			if !wants || c.ticket >= g.Below {
				continue
			}
			for _, l := range c.limits {
				shared = shared || l != 1
			}
			if !names && !shared { // see inspect.lua
				continue
			}
			waiter := script.Waiter{Token: fmt.Sprint("of ", c.ticket), Ticket: c.ticket, Limit: limit}
			waiter.Holds = c.holdings()
			for wanted := range c.limits {
				waiter.Wants = append(waiter.Wants, wanted)
			}
			all[i].Line = append(all[i].Line, waiter)
		}
	}
	return all, nil
}

// searcher returns how a caller that waits looks for a circle.
func (c *caller) searcher() *deadlock.Waiter {
	return &deadlock.Waiter{Limits: c.limits, Holds: c.holdings()}
}

// isStuck reports whether a caller would wait for ever, although all who do not wait release all that they hold.
func (w *world) isStuck(c *caller) bool {
	w, c = w.clone(c)
	for again := true; again; {
		for _, c := range w.callers {
			for !c.waits() && len(c.locks) > 0 {
				w.release(c, 0)
			}
		}
		again = w.grant()
	}
	return c.waits()
}

// clone returns a copy of the world, and of a caller in it.
func (w *world) clone(of *caller) (other *world, copied *caller) {
	other = &world{random: w.random, keys: w.keys, ticket: w.ticket, tokens: w.tokens, held: map[string][]hold{}}
	copies := map[*caller]*caller{}
	for _, c := range w.callers {
		one := *c
		one.locks = slices.Clone(c.locks)
		copies[c] = &one
		other.callers = append(other.callers, &one)
	}
	for key, holds := range w.held {
		for _, h := range holds {
			other.held[key] = append(other.held[key], hold{h.Holder, copies[h.by]})
		}
	}
	return other, copies[of]
}
