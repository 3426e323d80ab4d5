package screen

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[J" // the alternate screen, empty, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	clearRest   = "\x1b[K"
	reset       = "\x1b[0m"
	inReverse   = "\x1b[7m"
)

// colours matches what sets a colour.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// canvas writes to a terminal only those lines that have changed, because the terminal may be far away.
type canvas struct {
	out   io.Writer
	shown []string // what the terminal shows; nil if that is not known
}

// draw makes the terminal show these lines. They fit it.
func (c *canvas) draw(lines []string) error {
	var out strings.Builder
	if c.shown == nil || len(c.shown) != len(lines) { // terminals move lines when their height changes
		out.WriteString("\x1b[H\x1b[J")
		c.shown = make([]string, len(lines))
	}
	out.WriteString(c.scroll(lines))
	for i, line := range lines {
		if line != c.shown[i] {
			fmt.Fprintf(&out, "\x1b[%dH%s%s", i+1, clearRest, line) // after a line as wide as the screen, it would clear its end
		}
	}
	c.shown = lines
	if out.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(c.out, out.String())
	return err
}

// scroll lets the terminal move lines up or down by one, if that spares most of them. The last line of the screen stays.
func (c *canvas) scroll(lines []string) string {
	first, last := -1, -1 // that have changed
	for i := range len(lines) - 1 {
		if lines[i] != c.shown[i] {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if last-first < 3 {
		return ""
	}
	before := c.shown[first : last+1]
	up := slices.Concat(before[1:], []string{""})
	down := slices.Concat([]string{""}, before[:len(before)-1])
	const region, move, whole = "\x1b[%d;%dr", "\x1b[%d;1H%s", "\x1b[r"
	for _, by := range []struct {
		after []string
		from  int
		text  string
	}{{up, last, "\n"}, {down, first, "\x1bM"}} {
		spared := 0
		for i, line := range by.after {
			if line == lines[first+i] {
				spared++
			}
		}
		if spared > len(before)/2 {
			copy(c.shown[first:], by.after)
			return fmt.Sprintf(region+move+whole, first+1, last+1, by.from+1, by.text)
		}
	}
	return ""
}
