package tree

import "slices"

// Circle is callers who wait for each other, and of whom none can go on.
type Circle struct {
	Steps []Step // each waits for the next one, and the last one for the first
}

// Step is a waiter of a circle, and what it waits for.
type Step struct {
	Place *Place // of the waiter
	Lock  *Lock  // holds the key of Place, and the next waiter's caller holds Lock; nil if the next waiter is ahead in line
}

// WayOut returns the keys of which one must be released, so that those of the circle can go on; none if no lock is in it. If
// several hold the key, those who belong to the circle must release it.
func (c *Circle) WayOut() (keys []*Key) {
	for _, s := range c.Steps {
		if s.Lock != nil && !slices.Contains(keys, s.Place.Key) {
			keys = append(keys, s.Place.Key)
		}
	}
	return keys
}

// maxCircles bounds the circles of a tree, because each takes a search among all that is stuck.
const maxCircles = 100

// findCircles returns circles, so that each stuck lock in a circle is in one of them, up to maxCircles.
func findCircles(waiters []*Waiter) (circles []*Circle, more bool) {
	g := newGraph(waiters)
	for _, part := range g.parts() {
		covered := map[*Lock]bool{}
		starts := slices.DeleteFunc(slices.Clone(part), func(n int) bool { return g.nodes[n].lock == nil })
		if len(starts) == 0 { // lines that cross
			starts = part[:1]
		}
		for _, start := range starts {
			if l := g.nodes[start].lock; l != nil && covered[l] {
				continue
			}
			if len(circles) == maxCircles {
				return circles, true
			}
			c := g.shortest(start)
			circles = append(circles, c)
			for _, s := range c.Steps {
				covered[s.Lock] = true
			}
		}
	}
	return circles, false
}

// graph has the stuck waiters and the stuck locks as nodes. It leads from a waiter to what blocks it, and from a lock to the
// waiters of its caller.
type graph struct {
	nodes   []node
	waiters map[*Waiter]int
	locks   map[*Lock]int
	part    []int // for each node, its strongly connected part; set by parts
}

// node is a waiter or a lock.
type node struct {
	waiter *Waiter
	lock   *Lock
	edges  []edge
}

type edge struct {
	to    int
	place *Place // of a waiter, at which the other node blocks it; nil for an edge from a lock
}

func newGraph(waiters []*Waiter) *graph {
	g := &graph{waiters: map[*Waiter]int{}, locks: map[*Lock]int{}}
	for _, w := range waiters {
		if w.stuck {
			g.waiters[w] = len(g.nodes)
			g.nodes = append(g.nodes, node{waiter: w})
		}
	}
	for _, w := range waiters {
		for _, l := range w.Locks {
			if _, known := g.locks[l]; !known && l.stuck {
				g.locks[l] = len(g.nodes)
				g.nodes = append(g.nodes, node{lock: l})
			}
		}
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.lock != nil {
			for _, w := range n.lock.Waits {
				if w.stuck {
					n.edges = append(n.edges, edge{to: g.waiters[w]})
				}
			}
			continue
		}
		for _, p := range n.waiter.Places {
			if p.blocked {
				n.edges = append(n.edges, g.blockers(p)...)
			}
		}
	}
	return g
}

// blockers returns edges to what blocks a place: the stuck waiters ahead, and the stuck holders. It goes no further than one
// ahead that is blocked there by all of those itself. So a line has about as many edges as waiters.
func (g *graph) blockers(p *Place) (edges []edge) {
	from := p.Index
	if p.Limit == 0 {
		from = p.group // those who share without a limit do not block each other
	}
	for _, ahead := range slices.Backward(p.Key.Places[:from]) {
		if !ahead.Waiter.stuck {
			continue
		}
		edges = append(edges, edge{g.waiters[ahead.Waiter], p})
		if ahead.blocked && ahead.Limit > 0 {
			return edges
		}
	}
	for _, h := range p.Key.Holders {
		if h.blocks(p) {
			edges = append(edges, edge{g.locks[h.Lock], p})
		}
	}
	return edges
}

// shortest returns a shortest circle through a node of a part with circles.
func (g *graph) shortest(start int) *Circle {
	type arrival struct {
		from int
		by   edge
	}
	arrived := map[int]arrival{}
	due := []int{start}
	for len(due) > 0 {
		n := due[0]
		due = due[1:]
		for _, e := range g.nodes[n].edges {
			if _, seen := arrived[e.to]; seen || g.part[e.to] != g.part[start] {
				continue
			}
			arrived[e.to] = arrival{n, e}
			due = append(due, e.to)
		}
		if _, back := arrived[start]; back {
			break
		}
	}
	var steps []Step // backwards
	for n := start; ; {
		a := arrived[n]
		if a.by.place != nil {
			steps = append(steps, Step{a.by.place, g.nodes[n].lock})
		}
		if n = a.from; n == start {
			break
		}
	}
	slices.Reverse(steps)
	return &Circle{straighten(steps)}
}

// straighten leaves out those who only stand between two others in a line.
func straighten(steps []Step) []Step {
	for i := 0; i < len(steps) && len(steps) > 1; {
		next := (i + 1) % len(steps)
		this, between := steps[i], steps[next]
		if this.Lock != nil || this.Place.Limit == 0 || between.Place.Key != this.Place.Key {
			i++
			continue
		}
		steps[i].Lock = between.Lock
		steps = slices.Delete(steps, next, next+1)
		if next < i {
			i--
		}
	}
	return steps
}
