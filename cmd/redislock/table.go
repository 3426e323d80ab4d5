package main

import (
	"io"
	"slices"
	"strings"
)

// screen is how results look: like a terminal of a certain size, or like a file.
type screen struct {
	columns, lines int  // 0: without limit, as in a file
	coloured       bool // ANSI colours may be used
}

// The colours: ANSI codes that read well on dark and on light.
const (
	plain  = ""
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	pink   = "35"
	cyan   = "36"
)

// paint colours a text, where that is wanted.
func (s screen) paint(colour, text string) string {
	if !s.coloured || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// column is one of a table.
type column struct {
	name   string
	right  bool // aligned to the right, as numbers are
	shrink bool // may be cut where the terminal is too narrow
}

// cell is a text in a table. It is one line, and everything in it that comes from outside has been through escape.
type cell struct{ text, colour string }

// table is rows of cells under a head, aligned.
type table struct {
	columns []column
	rows    [][]cell
}

const (
	columnGap = 2
	// leastColumn is how far a column is cut; beyond that the lines of the terminal wrap.
	leastColumn = 8
	// mostAligned is the widest that a column is made in a file. A longer text is not cut there, but pushes the rest of its
	// line to the right: one long name should not blow up all lines.
	mostAligned = 60
)

// write prints the table, with its head unless that is not wanted.
func (t *table) write(w io.Writer, s screen, head bool) error {
	widths := t.widths(s, head)
	var out strings.Builder
	if head {
		cells := make([]cell, len(t.columns))
		for i, c := range t.columns {
			cells[i] = cell{c.name, faint}
		}
		t.line(&out, s, widths, cells)
	}
	for _, cells := range t.rows {
		t.line(&out, s, widths, cells)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// widths returns the width of each column: of its widest cell, or on a terminal so much less that a line fits.
func (t *table) widths(s screen, head bool) []int {
	widths := make([]int, len(t.columns))
	total := columnGap * (len(t.columns) - 1)
	for i, c := range t.columns {
		if head {
			widths[i] = columnsOf(c.name)
		}
		for _, cells := range t.rows {
			widths[i] = max(widths[i], columnsOf(cells[i].text))
		}
		if s.columns == 0 {
			widths[i] = min(widths[i], mostAligned)
		}
		total += widths[i]
	}
	for s.columns > 0 && total > s.columns {
		widest := -1
		for i, c := range t.columns {
			if c.shrink && widths[i] > leastColumn && (widest < 0 || widths[i] >= widths[widest]) {
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

func (t *table) line(out *strings.Builder, s screen, widths []int, cells []cell) {
	last := len(cells) - 1
	for last > 0 && cells[last].text == "" { // nothing is padded at the end of a line
		last--
	}
	for i, c := range cells[:last+1] {
		text := c.text
		if t.columns[i].shrink && s.columns > 0 {
			text = shorten(text, widths[i])
		}
		pad := strings.Repeat(" ", max(0, widths[i]-columnsOf(text)))
		switch {
		case t.columns[i].right:
			out.WriteString(pad + s.paint(c.colour, text))
		case i == last:
			out.WriteString(s.paint(c.colour, text))
		default:
			out.WriteString(s.paint(c.colour, text) + pad)
		}
		if i < last {
			out.WriteString(strings.Repeat(" ", columnGap))
		}
	}
	out.WriteByte('\n')
}

// add appends a row of plain texts.
func (t *table) add(texts ...string) {
	row := make([]cell, 0, len(t.columns))
	for _, text := range texts {
		row = append(row, cell{text: text})
	}
	t.rows = append(t.rows, slices.Clip(row))
}
