package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/report"
	"github.com/redislock/redislock/torture/internal/round"
)

var errBroken = errors.New("promises were broken: see above")

// run does what the flags say.
func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if err := redistest.Available(); err != nil {
		return err
	}
	// Everything ends with ctx, so that Ctrl-C leaves nothing behind. After a SIGKILL, the leashes end the processes.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if s.out == "" {
		s.out, err = os.MkdirTemp("", "torture-")
	} else {
		err = os.MkdirAll(s.out, 0o755)
	}
	if err != nil {
		return err
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return err
	}
	if s.controls {
		return s.runControls(ctx)
	}
	return s.runRounds(ctx)
}

// runRounds runs rounds until the time is over, on one topology after the other, each with the next seed.
func (s *settings) runRounds(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	start := time.Now()
	end := start.Add(time.Duration(s.minutes * float64(time.Minute)))
	fmt.Printf("torture: seed %d, %v in rounds of %v, files in %s\n", s.seed, end.Sub(start), s.round, s.out)
	p := showProgress(end)
	defer p.stop()
	totals := report.New(start, s.seed, s.workers, s.goroutines, s.client)
	broken := false
	names := s.topologies()
	for n := 0; n == 0 || time.Now().Add(s.round*3/4).Before(end); n++ {
		o := s.options(names[n%len(names)], n, program)
		if o.Dir, err = round.MakeDir(s.out, n); err != nil {
			return err
		}
		begun := time.Now()
		events, err := round.Run(ctx, o, p.begin(fmt.Sprintf("round %d on %s", n+1, o.Topology)))
		if err != nil {
			return err
		}
		result := check.Run(events)
		p.finish(len(result.Violations))
		totals.Add(o.Topology, begun, events, result)
		for i, v := range result.Violations {
			if i == 10 {
				fmt.Printf("\nand %d more violations\n", len(result.Violations)-i)
				break
			}
			show(os.Stdout, events, v, s.repeat(o))
		}
		broken = broken || len(result.Violations) > 0
		if err := totals.Write(s.out); err != nil {
			return err
		}
		if len(result.Violations) == 0 {
			if err := os.RemoveAll(o.Dir); err != nil {
				return err
			}
		}
	}
	fmt.Print(totals.Summary())
	fmt.Println("report:", filepath.Join(s.out, report.File))
	if broken {
		return errBroken
	}
	return nil
}
