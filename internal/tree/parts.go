package tree

import "slices"

// parts returns the strongly connected parts of the graph that have circles, by Tarjan's algorithm (Depth-First Search and
// Linear Graph Algorithms, 1972). It does not call itself, because a chain of waiters may be long.
func (g *graph) parts() (found [][]int) {
	const unseen = 0
	var (
		order  = make([]int, len(g.nodes)) // when a node was first seen, from 1
		low    = make([]int, len(g.nodes)) // the earliest node of its part that it is known to reach
		next   = make([]int, len(g.nodes)) // its next edge to follow
		open   []int                       // nodes whose part is not complete
		isOpen = make([]bool, len(g.nodes))
		path   []int
		count  int
	)
	g.part = make([]int, len(g.nodes))
	enter := func(n int) {
		count++
		order[n], low[n], isOpen[n] = count, count, true
		open, path = append(open, n), append(path, n)
	}
	for start := range g.nodes {
		if order[start] == unseen {
			enter(start)
		}
		for len(path) > 0 {
			n := path[len(path)-1]
			if next[n] < len(g.nodes[n].edges) {
				to := g.nodes[n].edges[next[n]].to
				next[n]++
				switch {
				case order[to] == unseen:
					enter(to)
				case isOpen[to]:
					low[n] = min(low[n], order[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				above := path[len(path)-1]
				low[above] = min(low[above], low[n])
			}
			if low[n] < order[n] {
				continue
			}
			at := len(open) - 1
			for open[at] != n {
				at--
			}
			part := append([]int(nil), open[at:]...)
			open = open[:at]
			for _, member := range part {
				isOpen[member], g.part[member] = false, n
			}
			slices.Sort(part)
			if len(part) > 1 { // no node leads to itself
				found = append(found, part)
			}
		}
	}
	return found
}
