package deadlock

import (
	"maps"
	"math"
	"slices"

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

	next name // of the next member
}

// isSame reports whether two arrows differ at most in metadata.
func isSame(a, b Arrow) bool { return a.Key == b.Key && a.Holder == b.Holder && a.next == b.next }

// name tells waiters apart, also those that want locks with the same token. A waiter has one ticket in all lines.
type name struct {
	token  string
	ticket int64
}

// member is a waiter that may be in a circle.
type member struct {
	script.Waiter

	limits  map[string]int // by key in whose line it stands
	keys    []string       // of limits, in order
	partial bool           // it has one of its keys, and so waits for nobody ahead in line
	arrows  []arrow
}

func (m *member) name() name { return name{m.Token, m.Ticket} }

type arrow struct {
	Arrow

	to *member
}

// graph is what some readings say of those who wait for each other.
type graph struct {
	self    *member
	members map[name]*member
	held    map[string]script.Held // by key
	read    []string               // the keys, in order
	owners  map[string][]*member   // by the token of a lock that they hold
}

// newGraph returns the graph of what the keys hold.
func newGraph(w *Waiter, held map[string]script.Held) *graph {
	g := &graph{members: map[name]*member{}, held: held, owners: map[string][]*member{}}
	g.self = &member{limits: w.Limits, keys: slices.Sorted(maps.Keys(w.Limits))}
	g.self.Token, g.self.Holds, g.self.Ticket = w.Token, w.Holds, math.MaxInt64
	g.add(g.self)
	g.read = slices.Sorted(maps.Keys(held))
	for _, key := range g.read {
		for _, found := range held[key].Line {
			if found.Token == w.Token || found.Late { // its process may be gone
				continue
			}
			m := g.members[name{found.Token, found.Ticket}]
			if m == nil {
				m = &member{Waiter: found, limits: map[string]int{}}
				g.add(m)
			}
			m.limits[key] = found.Limit
			m.keys = append(m.keys, key)
		}
	}
	for _, m := range g.members {
		m.partial = slices.ContainsFunc(m.keys, func(key string) bool {
			return slices.ContainsFunc(g.holders(key), func(h script.Holder) bool { return m.Token != "" && h.Token == m.Token })
		})
	}
	return g
}

func (g *graph) add(m *member) {
	g.members[m.name()] = m
	for _, lock := range m.Holds {
		g.owners[lock.Token] = append(g.owners[lock.Token], m)
	}
}

// has reports whether a waiter is still among the members.
func (g *graph) has(m *member) bool { return g.members[m.name()] != nil }

// holders returns who holds a key.
func (g *graph) holders(key string) []script.Holder {
	held := g.held[key]
	if held.Holders == nil && held.Token != "" {
		return []script.Holder{{Token: held.Token, Metadata: held.Metadata, Limit: 1}}
	}
	return held.Holders
}

// circle returns the shortest circle of the waiter that searches; nil if there is none. The first arrow is its own.
//
// Whether somebody is blocked depends on whether others are, so circle begins with all members, and takes out those who are
// not blocked by the rest, or whom no path of arrows leads to or back from, until nobody is left to take out.
func (g *graph) circle() []Arrow {
	for {
		g.draw()
		from, to := reach(g.self, g.forward()), reach(g.self, g.backward())
		count := len(g.members)
		maps.DeleteFunc(g.members, func(_ name, m *member) bool { return m != g.self && !(from[m] && to[m]) })
		if len(g.members) == count {
			return g.shortest()
		}
	}
}

// draw sets the arrows of all members.
func (g *graph) draw() {
	for _, m := range g.members {
		m.arrows = nil
	}
	for _, key := range g.read {
		d := drawing{graph: g, key: key}
		for _, found := range g.held[key].Line {
			if m := g.members[name{found.Token, found.Ticket}]; m != nil {
				d.next(m)
			}
		}
		if _, wants := g.self.limits[key]; wants {
			d.next(g.self)
		}
	}
}

// drawing draws the arrows of those who wait for one key, in the order of the line.
type drawing struct {
	*graph

	key   string
	ahead []*member // the nearest who waits for the key alone, and those behind that one
}

// next draws the arrows of the next member: to those before whom it cannot have the key, even if all others leave.
//
// Who wants the key alone waits for all who are ahead, so an arrow to the nearest such member stands for arrows to all
// before that. Those ahead who want the key with the same limit count as holders.
func (d *drawing) next(m *member) {
	limit := m.limits[d.key]
	var ahead, beside []*member
	if !m.partial {
		for _, other := range d.ahead {
			if limit != 1 && limit == other.limits[d.key] {
				beside = append(beside, other)
			} else {
				ahead = append(ahead, other)
			}
		}
	}
	holders, least := d.members(m)
	if len(holders)+len(beside) >= min(limitOf(limit), least) {
		for _, h := range holders {
			for _, owner := range d.owners[h.Token] {
				if d.has(owner) {
					m.arrows = append(m.arrows, arrow{Arrow{Key: d.key, Holder: h.Token, Metadata: h.Metadata, next: owner.name()}, owner})
				}
			}
		}
		ahead = append(ahead, beside...)
	}
	for _, other := range ahead {
		m.arrows = append(m.arrows, arrow{Arrow{Key: d.key, Metadata: other.Metadata, next: other.name()}, other})
	}
	if limit == 1 && !m.partial {
		d.ahead = nil
	}
	d.ahead = append(d.ahead, m)
}

// members returns the holders of the key whose owners are members, but not m itself, and the least of their limits.
func (d *drawing) members(m *member) (holders []script.Holder, least int) {
	least = math.MaxInt
	for _, h := range d.holders(d.key) {
		if h.Token != m.Token && slices.ContainsFunc(d.owners[h.Token], d.has) {
			holders = append(holders, h)
			least = min(least, limitOf(h.Limit))
		}
	}
	return holders, least
}

// limitOf returns how many holders a limit allows.
func limitOf(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// forward returns the members to which the arrows of each member lead.
func (g *graph) forward() map[*member][]*member {
	next := map[*member][]*member{}
	for _, m := range g.members {
		for _, a := range m.arrows {
			next[m] = append(next[m], a.to)
		}
	}
	return next
}

// backward returns the members from which an arrow leads to each member.
func (g *graph) backward() map[*member][]*member {
	next := map[*member][]*member{}
	for _, m := range g.members {
		for _, a := range m.arrows {
			next[a.to] = append(next[a.to], m)
		}
	}
	return next
}

// reach returns the members that can be reached from one in one step or more.
func reach(from *member, next map[*member][]*member) map[*member]bool {
	reached := map[*member]bool{}
	for todo := next[from]; len(todo) > 0; todo = todo[1:] {
		if m := todo[0]; !reached[m] {
			reached[m] = true
			todo = append(slices.Clip(todo), next[m]...)
		}
	}
	return reached
}

// shortest returns the shortest way of arrows from the waiter that searches back to it; nil if there is none.
func (g *graph) shortest() []Arrow {
	type way struct {
		at    *member
		taken []Arrow
	}
	seen := map[*member]bool{}
	for todo := []way{{at: g.self}}; len(todo) > 0; todo = todo[1:] {
		for _, a := range todo[0].at.arrows {
			taken := append(slices.Clone(todo[0].taken), a.Arrow)
			if a.to == g.self {
				return taken
			}
			if !seen[a.to] {
				seen[a.to] = true
				todo = append(todo, way{a.to, taken})
			}
		}
	}
	return nil
}
