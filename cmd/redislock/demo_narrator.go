package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// narrator tells a story on a terminal: scenes, lines with the time and the name of who speaks, tables, bars.
// It belongs to one goroutine.
type narrator struct {
	out      io.Writer
	coloured bool
	start    time.Time
	number   int   // of the scene
	err      error // the first failure to write
}

func newNarrator(out io.Writer, coloured bool) *narrator {
	return &narrator{out: out, coloured: coloured, start: time.Now()}
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

// colourOf is the colour of whoever speaks.
func colourOf(who string) string {
	switch who {
	case checkout:
		return cyan
	case restock:
		return yellow
	case shop:
		return pink
	}
	return plain
}

func (n *narrator) paint(colour, text string) string {
	if !n.coloured || colour == plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (n *narrator) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(n.out, format, args...); err != nil && n.err == nil {
		n.err = err
	}
}

// title opens the story.
func (n *narrator) title(text, where string) {
	n.printf("\n%s\n%s\n", n.paint(bold, text), n.paint(faint, where))
}

// scene opens the next part, with a line on what is to be seen in it.
func (n *narrator) scene(title, text string) {
	n.number++
	n.printf("\n%s\n   %s\n\n", n.paint(bold, fmt.Sprintf("%d  %s", n.number, title)), n.paint(faint, text))
}

// says, gets and fails are a line each: a plain one, one of success and one of refusal.
func (n *narrator) says(who, format string, args ...any) { n.line(who, plain, " ", format, args...) }

func (n *narrator) gets(who, format string, args ...any) { n.line(who, green, "✓", format, args...) }

func (n *narrator) fails(who, format string, args ...any) { n.line(who, red, "✗", format, args...) }

func (n *narrator) line(who, colour, mark, format string, args ...any) {
	n.printf("%s  %s %s %s\n",
		n.paint(faint, fmt.Sprintf("%7.2f s", n.at(time.Now()))),
		n.paint(colourOf(who), fmt.Sprintf("%-8s", who)),
		n.paint(colour, mark), fmt.Sprintf(format, args...))
}

// at returns t in the time of the story.
func (n *narrator) at(t time.Time) float64 { return t.Sub(n.start).Seconds() }

// seconds returns d in seconds, without zeros at the end.
func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }

// barWidth is that of a whole bar, in characters.
const barWidth = 25

// bar draws how much of whole is left.
func (n *narrator) bar(left, whole time.Duration) string {
	full := min(max(int(float64(barWidth)*left.Seconds()/whole.Seconds()+0.5), 0), barWidth)
	return n.paint(green, strings.Repeat("█", full)) + n.paint(faint, strings.Repeat("░", barWidth-full))
}

// row is a line of a table.
type row struct {
	colour string
	cells  []string
}

// table prints rows under a head, aligned.
func (n *narrator) table(head []string, rows []row) {
	widths := make([]int, len(head))
	for _, r := range append(rows, row{cells: head}) {
		for i, cell := range r.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	aligned := func(cells []string) string {
		var line strings.Builder
		for i, cell := range cells {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		return strings.TrimRight(line.String(), " ")
	}
	n.printf("   %s\n", n.paint(faint, aligned(head)))
	for _, r := range rows {
		n.printf("   %s\n", n.paint(r.colour, aligned(r.cells)))
	}
}
