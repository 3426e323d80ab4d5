package term

import (
	"io"
	"slices"
	"strings"
)

// Column is a column of a table.
type Column struct {
	Name   string
	Right  bool // aligned to the right, as numbers are
	Shrink bool // may be cut if the terminal is too narrow
}

// Cell is one line of text in a table. Whatever in it comes from outside has been through Escape.
type Cell struct{ Text, Colour string }

// Table is rows of cells under a head, aligned.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

const (
	columnGap = 2

	// leastColumn is the narrowest that a column is cut to. If the table is still too wide then, the terminal wraps its lines.
	leastColumn = 8

	// mostAligned is the widest that a column becomes in a file. A longer text is not cut there, but pushes the rest of its
	// line to the right, so that one long name does not widen every line.
	mostAligned = 60
)

// Write prints the table, with a head if head is set.
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
	widths := make([]int, len(t.Columns))
	total := columnGap * (len(t.Columns) - 1)
	for i, c := range t.Columns {
		if head {
			widths[i] = Width(c.Name)
		}
		for _, cells := range t.Rows {
			widths[i] = max(widths[i], Width(cells[i].Text))
		}
		if s.Columns == 0 {
			widths[i] = min(widths[i], mostAligned)
		}
		total += widths[i]
	}
	for s.Columns > 0 && total > s.Columns {
		widest := -1
		for i, c := range t.Columns {
			if c.Shrink && widths[i] > leastColumn && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

func (t *Table) line(out *strings.Builder, s Screen, widths []int, cells []Cell) {
	last := len(cells) - 1
	for last > 0 && cells[last].Text == "" { // no padding at the end of a line
		last--
	}
	for i, c := range cells[:last+1] {
		text := c.Text
		if t.Columns[i].Shrink && s.Columns > 0 {
			text = Shorten(text, widths[i])
		}
		pad := strings.Repeat(" ", max(0, widths[i]-Width(text)))
		switch {
		case t.Columns[i].Right:
			out.WriteString(pad + s.Paint(c.Colour, text))
		case i == last:
			out.WriteString(s.Paint(c.Colour, text))
		default:
			out.WriteString(s.Paint(c.Colour, text) + pad)
		}
		if i < last {
			out.WriteString(strings.Repeat(" ", columnGap))
		}
	}
	out.WriteByte('\n')
}

// Add appends a row of plain texts.
func (t *Table) Add(texts ...string) {
	row := make([]Cell, 0, len(t.Columns))
	for _, text := range texts {
		row = append(row, Cell{Text: text})
	}
	t.Rows = append(t.Rows, slices.Clip(row))
}
