package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// list is the rows as the user looks through them: which of them match the filter, which is selected, and which is on top.
type list struct {
	rows   Rows
	marks  []rune // what the last look has changed: one for each row, isNew, isChanged or ' '
	news   string // the same in words
	filter string

	shown         []int  // the indices of the rows that match
	selected, top int    // indices in shown
	wanted        string // the key that was selected before the filter

	lines []string // of the table with these rows, laid out for fit; nil if something has changed
	head  string
	fit   term.Screen
}

const (
	isNew      = '+'
	isChanged  = '*'
	isSelected = '>'
	margin     = 2 // columns for these marks
)

// update replaces the rows. The selection stays at the key, or else at its line.
func (l *list) update(rows *Rows) {
	key, before := l.key(), map[string]string{}
	for _, row := range l.rows.All {
		before[row.Key] = row.State
	}
	first := l.marks == nil
	l.rows, l.marks, l.news = *rows, make([]rune, len(rows.All)), ""
	created, changed, gone := 0, 0, len(before)
	met := map[string]bool{}
	for i, row := range rows.All {
		state, known := before[row.Key]
		if known && !met[row.Key] {
			gone--
		}
		met[row.Key] = true
		switch l.marks[i] = ' '; {
		case first:
		case !known:
			l.marks[i] = isNew
			created++
		case state != row.State:
			l.marks[i] = isChanged
			changed++
		}
	}
	for _, n := range []struct {
		count int
		what  string
	}{{created, "new"}, {changed, "changed"}, {gone, "gone"}} {
		if n.count > 0 && !first {
			l.news += fmt.Sprintf(", %d %s", n.count, n.what)
		}
	}
	l.match()
	l.find(key)
}

// find selects the row of a key that is next to the selection, if there is one.
func (l *list) find(key string) {
	best := -1
	for at, i := range l.shown {
		if l.rows.All[i].Key == key && (best < 0 || abs(at-l.selected) < abs(best-l.selected)) {
			best = at
		}
	}
	if best >= 0 {
		l.top += best - l.selected // it stays where it is on the screen
		l.selected = best
	}
}

func abs(n int) int { return max(n, -n) }

// remember keeps the selected key for narrow.
func (l *list) remember() { l.wanted = cmp.Or(l.key(), l.wanted) }

// narrow shows only rows that have the text somewhere, in upper or lower case. It selects the key that was remembered, or
// else the first row.
func (l *list) narrow(filter string) {
	l.filter = filter
	l.match()
	l.selected, l.top = 0, 0
	l.find(l.wanted)
}

func (l *list) match() {
	l.shown, l.lines = l.shown[:0], nil
	wanted := strings.ToLower(l.filter)
	for i, row := range l.rows.All {
		if wanted == "" || slices.ContainsFunc(row.Cells, func(c term.Cell) bool {
			return strings.Contains(strings.ToLower(c.Text), wanted)
		}) {
			l.shown = append(l.shown, i)
		}
	}
	l.selected = min(l.selected, max(0, len(l.shown)-1))
}

// key returns the key of the selected row; "" if there is none.
func (l *list) key() string {
	if l.selected >= len(l.shown) {
		return ""
	}
	return l.rows.All[l.shown[l.selected]].Key
}

// draw returns the lines for a part of the screen with so much room. It lays the table out only after a change.
func (l *list) draw(s term.Screen, room int) []string {
	if s.Columns -= margin; l.lines == nil || l.fit != s {
		table := term.Table{Columns: l.rows.Columns}
		for _, i := range l.shown {
			table.Rows = append(table.Rows, l.rows.All[i].Cells)
		}
		l.lines, l.fit = table.Lines(s, true), s
		l.head, l.lines = l.lines[0], l.lines[1:]
	}
	var lines []string
	if l.rows.Head && room > 1 {
		lines = append(lines, strings.Repeat(" ", margin)+l.head)
		room--
	}
	l.top = max(0, min(l.top, l.selected, len(l.lines)-room)) // no line stays empty without need
	l.top = max(l.top, l.selected-room+1)
	for at := l.top; at < min(l.top+room, len(l.lines)); at++ {
		mark := string(l.marks[l.shown[at]])
		if at == l.selected {
			lines = append(lines, selected(s, string(isSelected)+mark+l.lines[at]))
			continue
		}
		lines = append(lines, " "+s.Paint(term.Yellow, mark)+l.lines[at])
	}
	return lines
}

// selected returns a line in reverse, as wide as the screen. A terminal without colours shows only the mark.
func selected(s term.Screen, line string) string {
	if !s.Coloured {
		return line
	}
	pad := strings.Repeat(" ", max(0, s.Columns+margin-term.Width(colours.ReplaceAllString(line, ""))))
	return inReverse + strings.ReplaceAll(line, reset, reset+inReverse) + pad + reset
}

// moved returns the index to which a key moves, among so many, of which a page has some.
func moved(k key, at, page, all int) (to int, moves bool) {
	switch k {
	case keyUp, 'k':
		at--
	case keyDown, 'j':
		at++
	case keyPageUp:
		at -= page
	case keyPageDown, ' ':
		at += page
	case keyHome, 'g':
		at = 0
	case keyEnd, 'G':
		at = all - 1
	default:
		return at, false
	}
	return max(0, min(at, all-1)), true
}
