package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/redislock/redislock/torture/internal/check"
	"github.com/redislock/redislock/torture/internal/history"
	"github.com/redislock/redislock/torture/internal/round"
	"github.com/redislock/redislock/torture/internal/topology"
)

// settings are what the flags say.
type settings struct {
	minutes    float64
	topology   string
	seed       uint64
	controls   bool
	out        string
	workers    int
	goroutines int
	round      time.Duration
	pause      time.Duration
	keep       bool
}

func parse(args []string) (*settings, error) {
	s := new(settings)
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.Float64Var(&s.minutes, "minutes", 5, "how long to run")
	flags.StringVar(&s.topology, "topology", "all", "one, memory, sentinel, cluster, quorum or all")
	flags.Uint64Var(&s.seed, "seed", 0, "repeat the plans of faults of this seed (default random)")
	flags.BoolVar(&s.controls, "controls", false, "switch protections off, one after the other, and see whether that is noticed")
	flags.StringVar(&s.out, "out", "", "where to write histories and the report (default a temporary directory)")
	flags.IntVar(&s.workers, "workers", 6, "how many worker processes")
	flags.IntVar(&s.goroutines, "goroutines", 8, "how many goroutines in each")
	flags.DurationVar(&s.round, "round", 40*time.Second, "how long a round works; each has servers and a seed of its own")
	flags.DurationVar(&s.pause, "pause", 350*time.Millisecond, "how much time between two faults, on average")
	flags.BoolVar(&s.keep, "keep", false, "keep the histories of rounds without a violation")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("what is %q?", flags.Arg(0))
	}
	if s.topology != "all" && !slices.Contains(topology.Names, s.topology) {
		return nil, fmt.Errorf("there is no topology %q", s.topology)
	}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	return s, nil
}

// topologies returns those to run on, one after the other.
func (s *settings) topologies() []string {
	if s.topology != "all" {
		return []string{s.topology}
	}
	return topology.Names
}

func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if s.out == "" {
		if s.out, err = os.MkdirTemp("", "torture-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(s.minutes * float64(time.Minute)))
	violations := 0
	for n := 0; n == 0 || time.Now().Add(s.round/2).Before(end); n++ {
		names := s.topologies()
		o := round.Options{
			Topology: names[n%len(names)], Seed: s.seed + uint64(n), Length: s.round, Pause: s.pause,
			Workers: s.workers, Goroutines: s.goroutines, Program: program,
		}
		if o.Dir, err = round.MakeDir(s.out, n); err != nil {
			return err
		}
		var p round.Progress
		events, err := round.Run(ctx, o, &p)
		if err != nil {
			return err
		}
		result := check.Run(events)
		fmt.Printf("%s seed %d: %d grants, %d faults, %d violations, %d excused; checked %v\n", o.Topology, o.Seed,
			p.Grants.Load(), p.Faults.Load(), len(result.Violations), len(result.Excused), result.Checked)
		violations += len(result.Violations)
		for i, v := range result.Violations {
			if i < 5 {
				show(events, v)
			}
		}
	}
	if violations > 0 {
		return errors.New("promises were broken")
	}
	return nil
}

func show(events []history.Event, v check.Violation) {
	fmt.Printf("\nVIOLATION %s: %s\n", v.Check, v.What)
	for _, e := range check.Evidence(events, v, 2e9, 1e9) {
		fmt.Printf("  %+.4f %s\n", float64(e.At-v.At)/1e9, e.String())
	}
}
