package tree

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

// bounds say how much of the trees is shown; 0 is all.
type bounds struct {
	waiters int // of each lock
	depth   int // locks below each other
	lines   int
}

// drawing is trees as text.
type drawing struct {
	*survey.Finding

	screen term.Screen
	bounds bounds
	glyphs glyphs

	lines []line
	cut   bool // there are more lines

	circles map[*tree.Lock]int // the number of a circle that a lock is in, from 1
	locks   map[*tree.Lock]bool
	keys    map[*tree.Key]bool // whose lines are shown
	waiters map[*tree.Waiter]bool
}

// glyphs draw the branches of a tree.
type glyphs struct{ branch, last, through, none string }

var (
	boxes = glyphs{"├─ ", "└─ ", "│  ", "   "}
	ascii = glyphs{"|- ", "`- ", "|  ", "   "}
)

// draw draws the circles, and then the trees.
func draw(found *survey.Finding, screen term.Screen, b bounds) *drawing {
	d := &drawing{
		Finding: found, screen: screen, bounds: b, glyphs: boxes, circles: map[*tree.Lock]int{},
		locks: map[*tree.Lock]bool{}, keys: map[*tree.Key]bool{}, waiters: map[*tree.Waiter]bool{},
	}
	if screen.ASCII {
		d.glyphs = ascii
	}
	for i, c := range found.Tree.Circles {
		d.circle(i+1, c)
	}
	for _, l := range found.Tree.Roots {
		if !d.locks[l] { // else it was below another root
			d.lock(l, "", "", 1)
		}
	}
	for _, k := range found.Tree.Unheld {
		d.unheld(k)
	}
	return d
}

// line is one line of a drawing.
type line struct {
	key   string // for which somebody waits or that somebody holds; "" for a line that is about none
	state string // token of that holder or waiter; the rest of the line changes with the time
	cells []term.Cell
}

// full reports whether there are enough lines. It is asked before each one.
func (d *drawing) full() bool {
	d.cut = d.cut || d.bounds.lines > 0 && len(d.lines) == d.bounds.lines
	return d.cut
}

// line adds a line, if there is room for it.
func (d *drawing) line(prefix string, cells ...term.Cell) { d.about("", "", prefix, cells...) }

// about adds a line that is about a key.
func (d *drawing) about(key, state, prefix string, cells ...term.Cell) {
	if d.full() {
		return
	}
	cells = append([]term.Cell{{Text: prefix, Colour: term.Faint}}, cells...)
	if d.screen.ASCII {
		for i := range cells {
			cells[i].Text = strings.ReplaceAll(cells[i].Text, "…", "~") // as wide
		}
	}
	d.lines = append(d.lines, line{key, state, cells})
}

// text returns the lines. On a terminal it cuts them.
func (d *drawing) text() []byte {
	var out bytes.Buffer
	for _, l := range d.lines {
		room := d.screen.Columns
		for _, c := range l.cells {
			text := c.Text
			if d.screen.Columns > 0 {
				text = term.Shorten(text, room)
				room -= term.Width(text)
			}
			if d.screen.ASCII {
				text = strings.ReplaceAll(text, "…", "~")
			}
			out.WriteString(d.screen.Paint(c.Colour, text))
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// lock prints a lock and what is below it. first begins its line, and prefix those below. depth counts locks from the root.
func (d *drawing) lock(l *tree.Lock, first, prefix string, depth int) {
	if d.full() {
		return
	}
	d.locks[l] = true
	var cells []term.Cell
	if depth == 1 { // else it is below the waiter of its caller
		cells = append(cells, term.Cell{Text: who(l) + " "})
	}
	cells = append(cells, term.Cell{Text: "holds "})
	cells = append(cells, names(keysOf(l), " and ")...)
	cells = append(cells, term.Cell{Text: d.holding(l)}, d.mark(l))
	var open []*tree.Key
	for _, h := range l.Keys {
		switch k := h.Key; {
		case k.Waiters == 0:
		case d.keys[k]: // another holder
			cells = append(cells, term.Cell{Text: ", see above for "}, name(k.Key))
		default:
			d.keys[k] = true
			open = append(open, k)
		}
	}
	d.about(l.Keys[0].Key.Key, l.Token, first, cells...)
	d.below(open, prefix, depth)
}

// unheld prints a key that no lock is known to hold, and its waiters.
func (d *drawing) unheld(k *tree.Key) {
	split := show.Split(k.Status)
	switch {
	case split != "":
		d.about(k.Key, split, "", name(k.Key), term.Cell{Text: " has " + split + "; " + waiting(k.Waiters)})
	case k.TTL != 0:
		cell := term.Cell{Text: " is taken by something that is not a lock; " + waiting(k.Waiters)}
		d.about(k.Key, "taken", "", name(k.Key), cell)
	default:
		d.about(k.Key, "", "", term.Cell{Text: "nobody holds "}, name(k.Key), term.Cell{Text: "; " + waiting(k.Waiters)})
	}
	d.keys[k] = true
	d.below([]*tree.Key{k}, "", 1)
}

// below prints the waiters for keys, in the order in which they came, and what is below them.
func (d *drawing) below(keys []*tree.Key, prefix string, depth int) {
	items, more := tree.Below(keys, d.bounds.waiters)
	for i, item := range items {
		first, rest := prefix+d.glyphs.branch, prefix+d.glyphs.through
		if i == len(items)-1 && more == 0 {
			first, rest = prefix+d.glyphs.last, prefix+d.glyphs.none
		}
		if item.Skipped > 0 {
			d.line(prefix+d.glyphs.branch, term.Cell{Text: fmt.Sprintf("… %d more", item.Skipped)})
		}
		d.waiter(item, first, rest, depth)
	}
	if more > 0 {
		d.line(prefix+d.glyphs.last, term.Cell{Text: fmt.Sprintf("… and %d more", more)})
	}
}

// waiter prints a waiter, and the locks that its caller holds.
func (d *drawing) waiter(one tree.Branch, first, prefix string, depth int) {
	if d.full() {
		return
	}
	w := one.Waiter
	cells := []term.Cell{{Text: waiterName(w) + wish(one.Places[0].Limit)}}
	here, others := one.Keys()
	cells = append(cells, names(here, " and ")...)
	cells = append(cells, term.Cell{Text: " for " + words.Duration(max(d.Now.Sub(w.Since), 0))})
	if w.Late {
		cells = append(cells, term.Cell{Text: ", late", Colour: term.Yellow})
	}
	if w.Wants == nil {
		cells = append(cells, term.Cell{Text: ", among more keys"})
	}
	if len(others) > 0 {
		cells = append(cells, term.Cell{Text: ", also wants "})
		cells = append(cells, names(others, " and ")...)
	}
	again := d.waiters[w]
	d.waiters[w] = true
	deep := d.bounds.depth > 0 && depth == d.bounds.depth
	var nested []*tree.Lock
	for _, held := range w.Holds {
		l := w.Lock(held.Token)
		if l != nil && !deep && !d.locks[l] && l.Waiting() > 0 {
			nested = append(nested, l)
			continue
		}
		if again {
			continue
		}
		cells = append(cells, term.Cell{Text: "; holds "})
		cells = append(cells, names(held.Keys, " and ")...)
		if held.More {
			cells = append(cells, term.Cell{Text: " and more"})
		}
		if l != nil {
			cells = append(cells, d.reference(l, deep))
		}
	}
	if w.HoldsMore {
		cells = append(cells, term.Cell{Text: "; holds more"})
	}
	d.about(here[0], w.Token, first, cells...)
	for i, l := range nested {
		if i == len(nested)-1 {
			d.lock(l, prefix+d.glyphs.last, prefix+d.glyphs.none, depth+1)
		} else {
			d.lock(l, prefix+d.glyphs.branch, prefix+d.glyphs.through, depth+1)
		}
	}
}

// reference says of a lock that is not shown here where it is.
func (d *drawing) reference(l *tree.Lock, deep bool) term.Cell {
	switch {
	case d.circles[l] > 0:
		return d.mark(l)
	case l.Waiting() == 0:
		return term.Cell{}
	case d.locks[l]:
		return term.Cell{Text: " (see above)"}
	case deep:
		return term.Cell{Text: fmt.Sprintf(" (%s; raise --depth)", waiting(l.Waiting()))}
	}
	return term.Cell{}
}

// mark names the circle that a lock is in.
func (d *drawing) mark(l *tree.Lock) term.Cell {
	if n := d.circles[l]; n > 0 {
		return term.Cell{Text: fmt.Sprintf(" (circle %d)", n), Colour: term.Red}
	}
	return term.Cell{}
}

// holding says for how long a lock has been held and lasts, and how many wait for it.
func (d *drawing) holding(l *tree.Lock) string {
	text := ""
	if since := show.OwnerOf(l.Metadata).Since; !since.IsZero() {
		text = " for " + words.Duration(max(time.Since(since), 0))
	}
	if ttl := l.TTL(); ttl >= 0 {
		text += ", " + words.Duration(ttl) + " left"
	} else {
		text += ", without an expiry"
	}
	for _, h := range l.Keys {
		if count := show.Count(h.Key.Status); h.Key.HolderCount > 1 {
			text += fmt.Sprintf(", %s has %s", words.Escape(h.Key.Key), count)
		}
	}
	return text + "; " + waiting(l.Waiting())
}
