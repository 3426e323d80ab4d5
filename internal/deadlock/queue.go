package deadlock

import (
	"cmp"
	"math"
	"slices"

	"github.com/redislock/redislock/internal/script"
)

// queue is the members that wait for one key, and those that hold it. Many may wait for many there. So a queue stands for
// the arrows between them, which would be the square of their number.
type queue struct {
	key     string
	owned   []owned   // the holds whose owners are members
	count   int       // how many holds that are
	least   int       // the least of their limits
	line    []*member // in order, without the partial ones and the waiter that searches
	partial []*member
	waiting []waiting // in the order of draw, and then those first who wait for most of the line

	passed bool // a search along the arrows has been at owned
	low    int  // and at the line from here on, or up to here
	next   int  // in waiting
}

// owned is a hold and a member that owns it.
type owned struct {
	script.Holder

	by *member
}

// wait says for whom a member waits in a queue.
type wait struct {
	at      *queue
	ahead   int       // for the first of the line, so many
	partial []*member // for these as well
	holders bool      // for those who hold the key, except for its own token
	holds   bool      // that token is among them
}

// waiting is a member and a wait of it.
type waiting struct {
	wait

	by *member
}

// draw makes the queues of all keys. It takes out members that want only one of them, and that nobody blocks there: those
// behind them cannot count on them. So one draw empties a long line of which only the first few can go on at a time.
func (g *graph) draw() {
	g.queues = g.queues[:0]
	for _, m := range g.members {
		m.waits = nil
	}
	for _, key := range g.read {
		q := &queue{key: key}
		q.owned, q.count, q.least = g.ownedBut(key, "")
		d := drawing{graph: g, queue: q, same: map[int]int{}}
		for i := range g.held[key].Line {
			if m := g.members[nameOf(&g.held[key].Line[i])]; m != nil {
				d.next(m)
			}
		}
		if _, wants := g.self.limits[key]; wants {
			d.next(g.self)
		}
		if len(q.waiting) > 0 {
			g.queues = append(g.queues, q)
		}
	}
}

// ownedBut returns the holds of a key, except those of one token, whose owners are members.
func (g *graph) ownedBut(key, token string) (all []owned, count, least int) {
	least = math.MaxInt
	for _, h := range holders(g.held[key]) {
		before := len(all)
		for _, o := range g.owners[h.Token] {
			if (token == "" || h.Token != token) && g.has(o.member) && o.has(key) {
				all = append(all, owned{h, o.member})
			}
		}
		if len(all) > before {
			count, least = count+1, min(least, limitOf(h.Limit))
		}
	}
	return all, count, least
}

// drawing draws the queue of one key, in the order of the line.
type drawing struct {
	*graph
	*queue

	same  map[int]int // by limit: how many came so far
	last  int         // the limit of the last of them
	begin int         // where in the line those with this limit begin, behind all others
}

// next adds the next member: it waits for those before whom it cannot have the key, even if all others leave.
//
// Who wants the key alone waits for all who are ahead. Others wait for those who want it with another limit, and for all who
// are before these. Those ahead who want the key with the same limit count as holders.
func (d *drawing) next(m *member) {
	limit := m.limits[d.key]
	w := wait{at: d.queue}
	count, least := d.count, d.least
	if m.partial {
		w.holds = slices.ContainsFunc(d.owned, func(o owned) bool { return o.Token == m.Token })
		_, count, least = d.ownedBut(d.key, m.Token)
	} else {
		count += d.same[limit]
	}
	blocked := count >= min(limitOf(limit), least)
	w.holders = blocked && len(d.owned) > 0
	if !m.partial {
		switch {
		case limit == 1 || blocked:
			w.ahead = len(d.line)
		case limit == d.last:
			w.ahead = d.begin
		default:
			w.ahead = len(d.line)
		}
		for _, other := range d.partial {
			if limit == 1 || blocked || limit != other.limits[d.key] {
				w.partial = append(w.partial, other)
			}
		}
	}
	if w.ahead > 0 || w.holders || w.partial != nil {
		m.waits = append(m.waits, w)
		d.waiting = append(d.waiting, waiting{w, m})
	} else if m != d.self && len(m.keys) == 1 {
		delete(d.members, nameOf(&m.Waiter))
		return
	}
	switch {
	case m == d.self:
		return
	case m.partial:
		d.queue.partial = append(d.queue.partial, m)
	default:
		if limit != d.last || len(d.line) == 0 {
			d.last, d.begin = limit, len(d.line)
		}
		d.line = append(d.line, m)
	}
	d.same[limit]++
}

// limitOf returns how many holders a limit allows.
func limitOf(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// forward returns the members to which arrows lead from the waiter that searches, and the shortest way back to it; nil if
// there is none.
func (g *graph) forward() (reached map[*member]bool, circle []Arrow) {
	type step struct {
		from *member
		Arrow
	}
	for _, q := range g.queues {
		q.passed, q.low = false, 0
	}
	reached = map[*member]bool{}
	came := map[*member]step{}
	var todo []*member
	visit := func(m *member, s step) {
		if !reached[m] {
			reached[m], came[m] = true, s
			todo = append(todo, m)
		}
	}
	for m := g.self; m != nil; {
		for _, w := range m.waits {
			q := w.at
			if w.holders && !q.passed {
				q.passed = !w.holds
				for _, o := range q.owned {
					if !w.holds || o.Token != m.Token {
						visit(o.by, step{m, Arrow{Key: q.key, Holder: o.Token, Metadata: o.Metadata}})
					}
				}
			}
			for ; q.low < w.ahead; q.low++ {
				visit(q.line[q.low], step{m, Arrow{Key: q.key, Metadata: q.line[q.low].Metadata}})
			}
			for _, other := range w.partial {
				visit(other, step{m, Arrow{Key: q.key, Metadata: other.Metadata}})
			}
		}
		m = nil
		if len(todo) > 0 {
			m, todo = todo[0], todo[1:]
		}
	}
	for m := g.self; reached[g.self]; {
		s := came[m]
		circle = append(circle, s.Arrow)
		if m = s.from; m == g.self {
			slices.Reverse(circle)
			break
		}
	}
	return reached, circle
}

// backward returns the members from which arrows lead to the waiter that searches.
func (g *graph) backward() (reached map[*member]bool) {
	type spot struct {
		at    *queue
		index int // in the line; -1 for a holder, -2 for a partial one
	}
	spots := map[*member][]spot{}
	for _, q := range g.queues {
		q.passed, q.low, q.next = false, len(q.line), 0
		slices.SortFunc(q.waiting, func(a, b waiting) int { return cmp.Compare(b.ahead, a.ahead) })
		for i, m := range q.line {
			spots[m] = append(spots[m], spot{q, i})
		}
		for _, o := range q.owned {
			spots[o.by] = append(spots[o.by], spot{q, -1})
		}
		for _, m := range q.partial {
			spots[m] = append(spots[m], spot{q, -2})
		}
	}
	reached = map[*member]bool{}
	var todo []*member
	visit := func(m *member) {
		if !reached[m] {
			reached[m] = true
			todo = append(todo, m)
		}
	}
	for m := g.self; m != nil; {
		for _, s := range spots[m] {
			q := s.at
			switch {
			case s.index >= 0:
				q.low = min(q.low, s.index)
				for ; q.next < len(q.waiting) && q.waiting[q.next].ahead > q.low; q.next++ {
					visit(q.waiting[q.next].by)
				}
			case s.index == -1 && !q.passed:
				q.passed = true
				for _, w := range q.waiting {
					if !w.holders {
						continue
					}
					if w.holds && !slices.ContainsFunc(q.owned, func(o owned) bool { return o.by == m && o.Token != w.by.Token }) {
						q.passed = false
						continue
					}
					visit(w.by)
				}
			case s.index == -2:
				for _, w := range q.waiting {
					if slices.Contains(w.wait.partial, m) {
						visit(w.by)
					}
				}
			}
		}
		m = nil
		if len(todo) > 0 {
			m, todo = todo[0], todo[1:]
		}
	}
	return reached
}
