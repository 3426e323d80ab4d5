package tree

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

// graph is trees in the language of Graphviz: locks are boxes, waiters are ellipses, and keys without a lock are plain text.
// Arrows lead from who waits to what it waits for. A dashed one leads from a lock to the waiter of its caller.
type graph struct {
	bounds  bounds
	now     time.Time
	out     bytes.Buffer
	waiters map[*tree.Waiter]bool
	red     map[redEdge]bool
}

// redEdge is a part of a circle: a place, and what blocks it.
type redEdge struct {
	place *tree.Place
	lock  *tree.Lock // nil for one to the waiter ahead
}

// writeDot prints a graph. It has the first waiters of each key, as the bounds say, and all in circles.
func writeDot(out io.Writer, found *survey.Finding, b bounds) error {
	g := &graph{bounds: b, now: found.Now, waiters: map[*tree.Waiter]bool{}, red: map[redEdge]bool{}}
	t := found.Tree
	for _, c := range t.Circles {
		for _, s := range c.Steps {
			g.red[redEdge{s.Place, s.Lock}] = true
			g.waiters[s.Place.Waiter] = true
		}
	}
	for _, k := range t.Keys {
		for i, p := range k.Places {
			if b.waiters == 0 || i < b.waiters {
				g.waiters[p.Waiter] = true
			}
		}
	}
	g.out.WriteString("digraph redislock {\n\trankdir=RL\n\tnode [fontname=\"sans-serif\"]\n\tedge [fontname=\"sans-serif\"]\n")
	for _, l := range t.Locks {
		g.lock(l)
	}
	for _, w := range t.Waiters {
		if g.waiters[w] {
			g.waiter(w)
		}
	}
	for i, k := range t.Keys {
		g.key(fmt.Sprintf("key%d", i+1), k)
	}
	for _, c := range t.Circles {
		for i, s := range c.Steps {
			if s.Lock == nil {
				next := c.Steps[(i+1)%len(c.Steps)].Place.Waiter
				g.edge(waiterID(s.Place.Waiter), waiterID(next), quote("behind, "+words.Escape(s.Place.Key.Key)), ", color=red")
			}
		}
	}
	g.out.WriteString("}\n")
	_, err := out.Write(g.out.Bytes())
	return err
}

func lockID(l *tree.Lock) string     { return fmt.Sprintf("lock%d", l.ID) }
func waiterID(w *tree.Waiter) string { return fmt.Sprintf("waiter%d", w.ID) }

func (g *graph) lock(l *tree.Lock) {
	var keys strings.Builder
	for _, c := range names(keysOf(l), " and ") {
		keys.WriteString(c.Text)
	}
	fmt.Fprintf(&g.out, "\t%s [shape=box, label=%s]\n", lockID(l), quote(who(l)+"\nholds "+keys.String()))
	for _, w := range l.Waits {
		if g.waiters[w] {
			g.edge(lockID(l), waiterID(w), quote("its caller"), ", style=dashed"+g.colourOfWait(l))
		}
	}
}

// colourOfWait is red if a lock is in a circle.
func (g *graph) colourOfWait(l *tree.Lock) string {
	for _, h := range l.Keys {
		for _, p := range h.Key.Places {
			if g.red[redEdge{p, l}] {
				return ", color=red"
			}
		}
	}
	return ""
}

func (g *graph) waiter(w *tree.Waiter) {
	label := waiterName(w) + "\nwaits for " + words.Duration(max(g.now.Sub(w.Since), 0))
	fmt.Fprintf(&g.out, "\t%s [label=%s]\n", waiterID(w), quote(label))
}

// key prints arrows from the waiters in a line to the holders of the key, or to the key if no lock is known to hold it.
func (g *graph) key(id string, k *tree.Key) {
	label := words.Escape(k.Key)
	if len(k.Holders) == 0 {
		what := "nobody holds it"
		if split := show.Split(k.Status); split != "" {
			what = split
		} else if k.TTL != 0 {
			what = "taken by something that is not a lock"
		}
		fmt.Fprintf(&g.out, "\t%s [shape=plaintext, label=%s]\n", id, quote(label+"\n"+what))
	}
	more := k.Waiters
	for _, p := range k.Places {
		if !g.waiters[p.Waiter] {
			continue
		}
		more--
		g.toHolders(waiterID(p.Waiter), id, k, quote(label), func(l *tree.Lock) string {
			if g.red[redEdge{p, l}] {
				return ", color=red"
			}
			return ""
		})
	}
	if more > 0 {
		fmt.Fprintf(&g.out, "\t%smore [shape=plaintext, label=%s]\n", id, quote(fmt.Sprintf("%d more", more)))
		g.toHolders(id+"more", id, k, quote(label), func(*tree.Lock) string { return "" })
	}
}

func (g *graph) toHolders(from, id string, k *tree.Key, label string, colour func(*tree.Lock) string) {
	for _, h := range k.Holders {
		g.edge(from, lockID(h.Lock), label, colour(h.Lock))
	}
	if len(k.Holders) == 0 {
		g.edge(from, id, label, "")
	}
}

func (g *graph) edge(from, to, label, more string) {
	fmt.Fprintf(&g.out, "\t%s -> %s [label=%s%s]\n", from, to, label, more)
}

// quote writes a label. Its parts have been through words.Escape, which leaves backslashes; Graphviz would read those.
func quote(label string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(label) + `"`
}
