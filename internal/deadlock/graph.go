package deadlock

import (
	"context"
	"encoding/base64"
	"maps"
	"math"
	"slices"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
)

// Waiter is the waiter that searches.
type Waiter struct {
	Token  string         // of the lock that it wants, if the caller chose it; else ""
	Limits map[string]int // the keys that it wants, and how many holders it would let each have; 0 for no limit
	Holds  []script.Holding
}

// Arrow says for whom a member of a circle waits: for the next member, and the last one for the first.
type Arrow struct {
	Key      string // for which it waits
	Holder   string // the token of the lock of the next member that has the key; "" if the next member is ahead in line
	Metadata string // of that lock, or of the one for which the next member waits
}

// name tells waiters apart, also those that want locks with the same token. A waiter has one ticket in all lines.
type name struct {
	token  string
	ticket int64
}

func nameOf(w *script.Waiter) name { return name{w.Token, w.Ticket} }

// member is a waiter that may be in a circle.
type member struct {
	script.Waiter

	limits  map[string]int // by key in whose line it stands
	keys    []string       // of limits, in order
	partial bool           // it has one of its keys, and so waits for nobody ahead in line
	waits   []wait
}

// graph is what some readings say of those who wait for each other.
type graph struct {
	self    *member
	members map[name]*member
	held    map[string]script.Held // by key
	read    []string               // the keys, in order
	owners  map[string][]owner     // by the token of a lock that they hold
	tokens  map[string][]*member   // by the token of the lock that they want
	queues  []*queue
}

// owner is a member that holds a lock.
type owner struct {
	*member

	lock *script.Holding
}

// has reports whether the lock is known to have a key. Callers may choose one token for locks on different keys, so the
// token alone says nothing about a key, unless the library has made it.
func (o owner) has(key string) bool {
	return slices.Contains(o.lock.Keys, key) || o.lock.More && isRandom(o.lock.Token)
}

// isRandom reports whether a token looks like one that the library makes.
func isRandom(token string) bool {
	random, err := base64.RawURLEncoding.Strict().DecodeString(token)
	return err == nil && len(random) == keyname.TokenBytes
}

// newGraph returns the graph of what the keys hold.
func newGraph(w *Waiter, held map[string]script.Held) *graph {
	g := &graph{members: map[name]*member{}, held: held, owners: map[string][]owner{}, tokens: map[string][]*member{}}
	g.self = &member{limits: w.Limits, keys: slices.Sorted(maps.Keys(w.Limits))}
	g.self.Token, g.self.Holds, g.self.Ticket = w.Token, w.Holds, math.MaxInt64
	g.add(g.self)
	g.read = slices.Sorted(maps.Keys(held))
	for _, key := range g.read {
		for _, found := range held[key].Line {
			if found.Token == w.Token || found.Late { // its process may be gone
				continue
			}
			m := g.members[nameOf(&found)]
			if m == nil {
				m = &member{Waiter: found, limits: map[string]int{}}
				g.add(m)
			}
			m.limits[key] = found.Limit
			m.keys = append(m.keys, key)
		}
	}
	for _, key := range g.read {
		for _, h := range holders(g.held[key]) {
			g.note(key, h.Token)
		}
	}
	return g
}

func (g *graph) add(m *member) {
	g.members[nameOf(&m.Waiter)] = m
	if m.Token != "" {
		g.tokens[m.Token] = append(g.tokens[m.Token], m)
	}
	for i := range m.Holds {
		lock := &m.Holds[i]
		g.owners[lock.Token] = append(g.owners[lock.Token], owner{m, lock})
	}
}

// note notes the members that wait for a key although their token has it: those with tokens that their callers chose.
func (g *graph) note(key, token string) {
	for _, m := range g.tokens[token] {
		_, wants := m.limits[key]
		m.partial = m.partial || wants
	}
}

// has reports whether a waiter is still among the members.
func (g *graph) has(m *member) bool { return g.members[nameOf(&m.Waiter)] == m }

// holders returns who holds a key.
func holders(held script.Held) []script.Holder {
	if held.Holders == nil && held.Token != "" {
		return []script.Holder{{Token: held.Token, Metadata: held.Metadata, Limit: 1}}
	}
	return held.Holders
}

// common returns what two readings of the same keys have in common: the locks that had their keys all the time between the
// two, and the waiters that waited all the time.
func common(before, after map[string]script.Held) map[string]script.Held {
	type hold struct {
		token string
		limit int
	}
	both := make(map[string]script.Held, len(after))
	for key, now := range after {
		held, waited := map[hold]bool{}, map[name]int{}
		for _, h := range holders(before[key]) {
			held[hold{h.Token, h.Limit}] = true
		}
		for _, w := range before[key].Line {
			waited[nameOf(&w)] = w.Limit
		}
		now.Holders = slices.DeleteFunc(slices.Clone(holders(now)), func(h script.Holder) bool {
			return !held[hold{h.Token, h.Limit}]
		})
		now.Token = ""
		now.Line = slices.DeleteFunc(slices.Clone(now.Line), func(w script.Waiter) bool {
			limit, did := waited[nameOf(&w)]
			return !did || limit != w.Limit
		})
		both[key] = now
	}
	return both
}

// circle returns the shortest circle of the waiter that searches; nil if there is none. The first arrow is its own.
//
// Whether somebody is blocked depends on whether others are, so circle begins with all members, and takes out those who are
// not blocked by the rest, or whom no path of arrows leads to or back from, until nobody is left to take out. It returns
// the error of ctx if that ends first.
func (g *graph) circle(ctx context.Context) ([]Arrow, error) {
	for ctx.Err() == nil {
		count := len(g.members)
		g.draw()
		to := g.backward()
		from, found := g.forward()
		maps.DeleteFunc(g.members, func(_ name, m *member) bool { return m != g.self && !(from[m] && to[m]) })
		switch {
		case found == nil:
			return nil, nil
		case len(g.members) == count:
			return found, nil
		}
	}
	return nil, ctx.Err()
}
