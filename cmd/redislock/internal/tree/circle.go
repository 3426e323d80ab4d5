package tree

import (
	"fmt"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/tree"
)

// maxSteps is how many callers of a circle are named.
const maxSteps = 10

// circle prints who waits in a circle, and the way out.
func (d *drawing) circle(number int, c *tree.Circle) {
	for _, s := range c.Steps {
		if s.Lock != nil && d.circles[s.Lock] == 0 {
			d.circles[s.Lock] = number
		}
	}
	head := fmt.Sprintf("circle %d: %d wait for each other, and none can go on", number, len(c.Steps))
	if len(c.Steps) == 1 {
		head = fmt.Sprintf("circle %d: a caller waits for a lock that it holds itself", number)
	}
	d.line("", term.Cell{Text: head, Colour: term.Red})
	for i, s := range c.Steps {
		if i == maxSteps && len(c.Steps) > maxSteps {
			d.line("  ", term.Cell{Text: fmt.Sprintf("… and %d more", len(c.Steps)-maxSteps)})
			break
		}
		before := c.Steps[(i+len(c.Steps)-1)%len(c.Steps)]
		cells := []term.Cell{{Text: waiterName(s.Place.Waiter)}}
		if before.Lock != nil {
			cells = append(cells, term.Cell{Text: " holds "}, name(before.Place.Key.Key))
		} else {
			cells = append(cells, term.Cell{Text: " is ahead in the line of "}, name(before.Place.Key.Key))
		}
		cells = append(cells, term.Cell{Text: " and" + wish(s.Place.Limit)}, name(s.Place.Key.Key))
		d.line("  ", cells...)
	}
	d.line("  ", d.wayOut(c)...)
	d.line("")
}

func (d *drawing) wayOut(c *tree.Circle) []term.Cell {
	var keys []string
	for _, k := range c.WayOut() {
		keys = append(keys, k.Key)
	}
	cells := []term.Cell{{Text: "way out: "}}
	if len(keys) == 0 {
		return append(cells, term.Cell{Text: "end one of these callers"})
	}
	cells = append(cells, term.Cell{Text: "release "})
	cells = append(cells, names(keys, " or ")...)
	return append(cells, term.Cell{Text: " (redislock release --force KEY), or end one of these callers"})
}
