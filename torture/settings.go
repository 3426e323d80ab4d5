package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/torture/internal/control"
	"github.com/redislock/redislock/torture/internal/round"
	"github.com/redislock/redislock/torture/internal/topology"
	"github.com/redislock/redislock/torture/internal/worker"
)

// settings are the values of the flags.
type settings struct {
	minutes    float64
	topology   string
	client     string
	seed       uint64
	controls   bool
	only       string
	out        string
	workers    int
	goroutines int
	round      time.Duration
	pause      time.Duration
}

func parse(args []string) (*settings, error) {
	s := new(settings)
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.Float64Var(&s.minutes, "minutes", 5, "how long to run")
	flags.StringVar(&s.topology, "topology", "all", strings.Join(topology.Names, ", ")+", all, or several with commas")
	flags.StringVar(&s.client, "client", worker.Clients[0],
		strings.Join(worker.Clients, ", ")+", or mixed: the workers take turns")
	flags.Uint64Var(&s.seed, "seed", 0, "repeat the plans of faults of this seed (default random)")
	flags.BoolVar(&s.controls, "controls", false, "switch protections off, one at a time, and see whether that is noticed")
	flags.StringVar(&s.only, "only", "", "with --controls: the names of some, with commas (default all)")
	flags.StringVar(&s.out, "out", "", "a new directory for the report and the histories (default a temporary one)")
	flags.IntVar(&s.workers, "workers", 6, "how many worker processes")
	flags.IntVar(&s.goroutines, "goroutines", 8, "how many goroutines in each")
	flags.DurationVar(&s.round, "round", 40*time.Second, "how long the workers of a round work")
	flags.DurationVar(&s.pause, "pause", 600*time.Millisecond, "how much time between two faults, on average")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, name := range s.topologies() {
		if !slices.Contains(topology.Names, name) {
			return nil, fmt.Errorf("there is no topology %q", name)
		}
	}
	if s.client != mixed && !slices.Contains(worker.Clients, s.client) {
		return nil, fmt.Errorf("there is no client %q", s.client)
	}
	if s.workers < 1 || s.goroutines < 1 || s.round < time.Second || s.pause <= 0 {
		return nil, fmt.Errorf("at least one worker, one goroutine, rounds of a second and some pause are needed")
	}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	return s, nil
}

// mixed is the value of --client that gives each worker another client.
const mixed = "mixed"

// clients returns the clients of the workers, in turn.
func (s *settings) clients() []string {
	if s.client == mixed {
		return worker.Clients
	}
	return []string{s.client}
}

// topologies returns the topologies to run on, one after the other.
func (s *settings) topologies() []string {
	if s.topology == "all" {
		return topology.Names
	}
	return strings.Split(s.topology, ",")
}

// chosen returns the controls to run.
func (s *settings) chosen() ([]control.Control, error) {
	if s.only == "" {
		return control.All, nil
	}
	var all []control.Control
	for name := range strings.SplitSeq(s.only, ",") {
		i := slices.IndexFunc(control.All, func(c control.Control) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no control %q", name)
		}
		all = append(all, control.All[i])
	}
	return all, nil
}

// options returns the options of a round.
func (s *settings) options(topology string, n int, program string) round.Options {
	return round.Options{
		Topology: topology, Seed: s.seed + uint64(n), Length: s.round, Pause: s.pause, Workers: s.workers,
		Goroutines: s.goroutines, Program: program, Clients: s.clients(),
	}
}

// repeat returns the command that repeats the plan of a round.
func (s *settings) repeat(o round.Options) string {
	command := fmt.Sprintf("go run ./torture --topology %s --seed %d --minutes %.2f --round %v", o.Topology, o.Seed,
		o.Length.Minutes(), o.Length)
	if s.pause != 600*time.Millisecond {
		command += fmt.Sprintf(" --pause %v", s.pause)
	}
	if s.client != worker.Clients[0] {
		command += " --client " + s.client
	}
	if s.workers != 6 || s.goroutines != 8 {
		command += fmt.Sprintf(" --workers %d --goroutines %d", s.workers, s.goroutines)
	}
	return command
}
