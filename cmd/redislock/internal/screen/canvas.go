package screen

import (
	"fmt"
	"io"
	"regexp"
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
