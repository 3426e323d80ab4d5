package term

import (
	"cmp"
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

// How cells get narrower.
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
}

const (
	columnGap = 2

	// leastColumn is the narrowest that a column is cut to, and leastWrapped the narrowest that one is broken to.
	leastColumn, leastWrapped = 9, 20

	// mostAligned is the widest that a column becomes in a file. A longer text is not cut there, but pushes the rest of its
	// line to the right, so that one long name does not widen every line.
	mostAligned = 60

	dropped = -columnGap // the width of a column that is left out, with its gap
)

// Add appends a row of plain texts.
func (t *Table) Add(texts ...string) {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	t.Rows = append(t.Rows, row)
}

// Write prints the table, with a head if head is set. On a terminal no line is wider than the screen.
func (t *Table) Write(w io.Writer, s Screen, head bool) error {
	_, err := io.WriteString(w, t.text(s, head))
	return err
}

// Lines returns the lines that Write prints.
func (t *Table) Lines(s Screen, head bool) []string {
	lines := strings.Split(t.text(s, head), "\n")
	return lines[:len(lines)-1]
}

func (t *Table) text(s Screen, head bool) string {
	rows := t.Rows
	if head {
		names := make([]Cell, len(t.Columns))
		for i, c := range t.Columns {
			names[i] = Cell{c.Name, Faint}
		}
		rows = slices.Insert(slices.Clone(rows), 0, names)
	}
	widths := t.widths(s, rows)
	var out strings.Builder
	for _, cells := range rows {
		t.line(&out, s, widths, cells)
	}
	return out.String()
}

// widths returns the width of each column: that of its widest cell, or less on a terminal, so that a line fits.
func (t *Table) widths(s Screen, rows [][]Cell) []int {
	natural := make([]int, len(t.Columns))
	for i := range t.Columns {
		for _, cells := range rows {
			natural[i] = max(natural[i], Width(cells[i].Text))
		}
		if s.Columns == 0 {
			natural[i] = min(natural[i], mostAligned)
		}
	}
	if s.Columns == 0 {
		return natural
	}
	for {
		widths, fits := t.cut(natural, s.Columns)
		first := 0 // to leave out
		for i, c := range t.Columns {
			if natural[i] != dropped && (natural[first] == dropped || c.Drop > t.Columns[first].Drop) {
				first = i
			}
		}
		if fits || t.Columns[first].Drop == 0 {
			return widths
		}
		natural[first] = dropped
	}
}

// cut makes the widest columns narrower until a line fits, as far as they may be.
func (t *Table) cut(natural []int, columns int) (widths []int, fits bool) {
	widths = slices.Clone(natural)
	excess := -columnGap - columns
	for _, width := range widths {
		excess += width + columnGap
	}
	least := map[Fit]int{Whole: math.MaxInt, CutEnd: leastColumn, CutMiddle: leastColumn, Wrap: leastWrapped}
	for ; excess > 0; excess-- {
		widest := -1
		for i, c := range t.Columns {
			if widths[i] > least[c.Fit] && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths, false
		}
		widths[widest]--
	}
	return widths, true
}

func (t *Table) line(out *strings.Builder, s Screen, widths []int, cells []Cell) {
	room := cmp.Or(s.Columns, math.MaxInt) // what is left of the screen's line
	var line strings.Builder
	below := make([]Cell, len(cells)) // the rest of a text that goes on in the next line
	for i, c := range cells {
		if widths[i] == dropped {
			continue
		}
		text := c.Text
		if s.Columns > 0 {
			switch t.Columns[i].Fit {
			case CutEnd:
				text = Shorten(text, widths[i])
			case CutMiddle:
				text = shortenMiddle(text, widths[i])
			case Wrap:
				text, below[i].Text = breakWords(text, widths[i])
			}
		}
		text = Shorten(text, room)
		pad := strings.Repeat(" ", max(0, min(widths[i], room)-Width(text)))
		room -= Width(text) + len(pad)
		gap := strings.Repeat(" ", min(columnGap, room))
		room -= len(gap)
		if text = s.Paint(c.Colour, text); t.Columns[i].Right {
			line.WriteString(pad + text + gap)
		} else {
			line.WriteString(text + pad + gap)
		}
	}
	out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	if slices.ContainsFunc(below, func(c Cell) bool { return c.Text != "" }) {
		t.line(out, s, widths, below)
	}
}
