package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
)

// thisLibrary is the name of the contestant with which the others are compared.
const thisLibrary = "redislock (this)"

// group is a kind of work, with its cells.
type group struct {
	name  string // also of its chart
	title string
	about string
	cells []cell
	// across says what x of the cells counts, if the chart has a line for each contestant. Without it, the chart has bars.
	across string
	// summed are the metrics that a table at the head of the group compares for all cells. Less is better for each.
	summed []metric
}

// cell is one piece of work that every contestant does in every round.
type cell struct {
	name    string // within its group
	title   string
	x       float64 // on the axis of a chart of lines
	rounds  int
	columns []metric
	drawn   []metric
	// contestants[0] is the one with which the others are compared.
	contestants []contestant
	// open, if it is set, starts servers for this cell only. It returns the contestants, and a function that ends both.
	open func() (_ []contestant, end func() error, err error)
}

// contestant does the work of a cell in its own way.
type contestant struct {
	name  string
	round func(context.Context) (figures, error)
}

// measuredGroup is the results of a group.
type measuredGroup struct {
	name, title, about string
	across             string
	summed             []metric
	tables             []table
}

// run runs the selected cells. It returns an error as soon as a contestant does, or when ctx has ended.
func (g *group) run(ctx context.Context, selected *selection) (measuredGroup, error) {
	done := measuredGroup{name: g.name, title: g.title, about: g.about, across: g.across, summed: g.summed}
	for i := range g.cells {
		c := &g.cells[i]
		name := g.name + "/" + c.name
		if !selected.cell(name) {
			continue
		}
		measured, err := c.runSelected(ctx, name, selected)
		if err != nil {
			return measuredGroup{}, fmt.Errorf("%s: %w", name, err)
		}
		done.tables = append(done.tables, measured)
	}
	return done, nil
}

// runSelected runs the selected contestants, on the cell's own servers if it has open.
func (c *cell) runSelected(ctx context.Context, name string, selected *selection) (_ table, err error) {
	if c.open != nil {
		opened, end, failed := c.open()
		if failed != nil {
			return table{}, failed
		}
		defer func() { err = errors.Join(err, end()) }()
		c.contestants = opened
	}
	c.contestants = selected.contestants(c.contestants)
	fmt.Fprintf(os.Stderr, "%s: %d contestants, %d rounds\n", name, len(c.contestants), c.rounds)
	return c.run(ctx)
}

// run lets the contestants take turns, in a random order each round.
func (c *cell) run(ctx context.Context) (table, error) {
	t := table{title: c.title, x: c.x, columns: c.columns, drawn: c.drawn, rows: make([]row, len(c.contestants))}
	for i := range t.rows {
		t.rows[i].name = c.contestants[i].name
	}
	for range c.rounds {
		for _, i := range rand.Perm(len(c.contestants)) {
			if ctx.Err() != nil {
				return table{}, ctx.Err()
			}
			f, err := c.contestants[i].round(ctx)
			if err != nil {
				return table{}, fmt.Errorf("%s: %w", c.contestants[i].name, err)
			}
			t.rows[i].rounds = append(t.rows[i].rounds, f)
		}
	}
	return t, nil
}
