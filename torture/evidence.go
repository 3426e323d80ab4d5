package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// show prints a violation: the events of its calls, the faults around it, and the command that repeats the plan.
func show(w io.Writer, events []history.Event, v check.Violation, repeat string) {
	fmt.Fprintf(w, "\n%s: %s\n", v.Check, v.What)
	fmt.Fprintf(w, "  repeat the plan with: %s\n", repeat)
	fmt.Fprintln(w, "  times in s from the violation; times within a line are ns of CLOCK_MONOTONIC")
	const most = 60
	found := check.Evidence(events, v, int64(2*time.Second), int64(time.Second))
	for i, e := range found {
		if i == most {
			fmt.Fprintf(w, "  and %d more\n", len(found)-most)
			break
		}
		fmt.Fprintf(w, "  %+.4f %s\n", float64(e.At-v.At)/1e9, e.String())
	}
}

// recheck runs the checks again on the histories that a round has left in a directory.
func recheck(w io.Writer, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	var events []history.Event
	for _, name := range files {
		base := filepath.Base(name)
		if base != "torture" && base != "last" && (!strings.HasPrefix(base, "w") || strings.HasSuffix(base, ".json") ||
			strings.HasSuffix(base, ".log")) {
			continue
		}
		r, err := history.Open(name)
		if err != nil {
			return err
		}
		more, err := r.Read()
		_ = r.Close()
		if err != nil {
			return err
		}
		events = append(events, more...)
	}
	result := check.Run(events)
	fmt.Fprintf(w, "%d events, %d violations, %d excused; checked %v\n", len(events), len(result.Violations),
		len(result.Excused), result.Checked)
	for _, v := range append(result.Violations, result.Excused...) {
		show(w, events, v, "-")
	}
	if len(result.Violations) > 0 {
		return errBroken
	}
	return nil
}
