package term

import (
	"io"
	"math"
	"slices"
	"strings"
)

// Column is a column of a table.
type Column struct {
	Name  string
	Right bool // aligned to the right, as numbers are
	Fit   Fit  // how its cells get narrower when the table is too wide for the terminal
	Drop  int  // if that is not enough, the column with the highest Drop is left out; those with 0 never are
}

// Fit says how the cells of a column get narrower.
type Fit int

// The ways to get narrower.
const (
	Whole     Fit = iota // they do not
	CutEnd               // an ellipsis replaces the end
	CutMiddle            // an ellipsis replaces the middle: names that begin alike often differ at their ends
	Wrap                 // they go on below, broken between words; for the last column only
)

// Cell is one line of text in a table. Whatever in it comes from outside has been through Escape.
type Cell struct{ Text, Colour string }

// Table is rows of cells under a head, aligned.
type Table struct {
	Columns []Column
	Rows    [][]Cell
	Natural bool // every column is as wide as its cells; if that is too wide, only the ends of the lines are cut
}

const (
	columnGap = 2

	// leastColumn is the narrowest that a column is cut to, and leastWrapped the narrowest that one is broken to.
	leastColumn, leastWrapped = 9, 20

	// mostAligned is the widest that a column becomes in a file. A longer text is not cut there, but pushes the rest of its
	// line to the right, so that one long name does not widen every line.
	mostAligned = 60

	dropped = -1 // the width of a column that is left out
)

// Write prints the table, with a head if head is set. On a terminal no line is wider than the screen.
func (t *Table) Write(w io.Writer, s Screen, head bool) error {
	widths := t.widths(s, head)
	var out strings.Builder
	if head {
		cells := make([]Cell, len(t.Columns))
		for i, c := range t.Columns {
			cells[i] = Cell{c.Name, Faint}
		}
		t.line(&out, s, widths, cells)
	}
	for _, cells := range t.Rows {
		t.line(&out, s, widths, cells)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// widths returns the width of each column: that of its widest cell, or less on a terminal, so that a line fits.
func (t *Table) widths(s Screen, head bool) []int {
	natural := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		if head {
			natural[i] = Width(c.Name)
		}
		for _, cells := range t.Rows {
			natural[i] = max(natural[i], Width(cells[i].Text))
		}
		if s.Columns == 0 {
			natural[i] = min(natural[i], mostAligned)
		}
	}
	if s.Columns == 0 || t.Natural {
		return natural
	}
	for {
		widths, excess := t.cut(natural, s.Columns)
		first := -1
		for i, c := range t.Columns {
			if excess > 0 && c.Drop > 0 && natural[i] != dropped && (first < 0 || c.Drop > t.Columns[first].Drop) {
				first = i
			}
		}
		if first < 0 {
			return widths
		}
		natural[first] = dropped
	}
}

// cut makes the widest columns narrower until a line fits, as far as they may be. It returns by how much the line is still
// too wide.
func (t *Table) cut(natural []int, columns int) (widths []int, excess int) {
	widths = slices.Clone(natural)
	excess = -columnGap - columns
	for _, width := range widths {
		if width != dropped {
			excess += width + columnGap
		}
	}
	for ; excess > 0; excess-- {
		widest := -1
		for i, c := range t.Columns {
			least := map[Fit]int{Whole: math.MaxInt, CutEnd: leastColumn, CutMiddle: leastColumn, Wrap: leastWrapped}[c.Fit]
			if widths[i] > least && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths, excess
}

// line writes the cells of one row.
func (t *Table) line(out *strings.Builder, s Screen, widths []int, cells []Cell) {
	room := s.Columns // what is left of the screen's line
	if room == 0 {
		room = math.MaxInt
	}
	last := len(cells) - 1
	for last > 0 && (cells[last].Text == "" || widths[last] == dropped) { // no padding at the end of a line
		last--
	}
	var below Cell // the rest of a text that goes on in the next line
	for i, c := range cells[:last+1] {
		if widths[i] == dropped {
			continue
		}
		text := c.Text
		if s.Columns > 0 && !t.Natural {
			switch t.Columns[i].Fit {
			case CutEnd:
				text = Shorten(text, widths[i])
			case CutMiddle:
				text = shortenMiddle(text, widths[i])
			case Wrap:
				text, below.Text = breakWords(text, widths[i])
				below.Colour = c.Colour
			}
		}
		text = Shorten(text, room)
		pad := strings.Repeat(" ", min(max(0, widths[i]-Width(text)), room-Width(text)))
		room -= Width(text) + len(pad)
		switch {
		case t.Columns[i].Right:
			out.WriteString(pad + s.Paint(c.Colour, text))
		case i == last:
			out.WriteString(s.Paint(c.Colour, text))
		default:
			out.WriteString(s.Paint(c.Colour, text) + pad)
		}
		if i < last {
			gap := min(columnGap, room)
			out.WriteString(strings.Repeat(" ", gap))
			room -= gap
		}
	}
	out.WriteByte('\n')
	if below.Text != "" {
		next := make([]Cell, len(cells))
		next[last] = below
		t.line(out, s, widths, next)
	}
}

// Add appends a row of plain texts.
func (t *Table) Add(texts ...string) {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	t.Rows = append(t.Rows, row)
}
