package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/torture/internal/control"
	"github.com/redislock/redislock/torture/internal/report"
	"github.com/redislock/redislock/torture/internal/round"
)

// within is the time in which a control must be noticed.
const within = time.Minute

// runControls switches off one protection after the other, and runs workers until a check notices that.
func (s *settings) runControls(ctx context.Context) error {
	root, err := control.Root(ctx)
	if err != nil {
		return err
	}
	chosen, err := s.chosen()
	if err != nil {
		return err
	}
	var rows []report.Control
	missed := 0
	for _, c := range chosen {
		row, err := s.runControl(ctx, c, root)
		if err != nil {
			return err
		}
		rows = append(rows, row)
		if row.Check == "" {
			missed++
			fmt.Printf("%-30s NOT NOTICED within %v: %s\n", c.Name, within, c.Off)
		} else {
			fmt.Printf("%-30s noticed after %4.1f s by %s: %s\n", c.Name, row.After.Seconds(), row.Check, row.What)
		}
		if err := report.WriteControls(s.out, rows); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d controls were not noticed", missed, len(chosen))
	}
	return nil
}

func (s *settings) runControl(ctx context.Context, c control.Control, root string) (row report.Control, err error) {
	row = report.Control{Name: c.Name, Off: c.Off, Topology: c.Topology}
	program, err := c.Build(ctx, root, filepath.Join(s.out, "controls"))
	if err != nil {
		return row, err
	}
	defer os.Remove(program)
	noticed := func(events []history.Event) *check.Violation {
		result := check.Run(events)
		i := slices.IndexFunc(result.Violations, func(v check.Violation) bool { return slices.Contains(c.Checks, v.Check) })
		if i < 0 {
			return nil
		}
		return &result.Violations[i]
	}
	start := time.Now()
	for n := 0; row.Check == "" && time.Since(start) < within; n++ {
		o := s.options(c.Topology, n, program)
		o.Aim, o.Scene = c.Aim, c.Scene
		o.Pause *= time.Duration(max(c.Rarer, 1))
		o.Length = min(o.Length, within-time.Since(start))
		if o.Dir, err = round.MakeDir(filepath.Join(s.out, "controls", c.Name), n); err != nil {
			return row, err
		}
		o.Enough = func(events []history.Event) bool { return noticed(events) != nil }
		events, err := round.Run(ctx, o, new(round.Progress))
		if err != nil {
			return row, err
		}
		row.After = time.Since(start)
		// What the run has noticed, a fault may excuse that had not ended by then.
		if found := noticed(events); found != nil {
			row.Check, row.What = found.Check, found.What
		}
		if err := os.RemoveAll(o.Dir); err != nil {
			return row, err
		}
	}
	return row, nil
}
