// Command bench runs this library beside other Redis locks for Go, and beside the least that their clients can do, all on
// the same redis-servers, in turns within one run. From the repository's root:
//
//	go -C bench run .
//
// It prints medians with their quartiles, and ratios. It takes each ratio within one round, because the speed of a
// machine changes while the program runs. benchstat cannot do that: it compares two samples as wholes. The program also
// writes the figures to results/results.md, with a chart for each kind of work. It needs redis-server on PATH, and a
// Unix. For the cells that need only one server, it can use one of yours, and keys under "redislock-bench" there.
//
// --only and --against run a part. For example, compare this library with bsm/redislock where few callers call at a
// time, once as the machine is, and once with two cores kept busy by other processes:
//
//	go -C bench run . --only 'goroutines=(1|2|4|8|16)$' --against bsm
//	go -C bench run . --only 'goroutines=(1|2|4|8|16)$' --against bsm --busy 2
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case slices.Equal(args, []string{workerArgument}):
		err = work(os.Stdin, os.Stdout)
	case slices.Equal(args, []string{busyArgument}):
		err = keepBusy(os.Stdin)
	default:
		err = run(args)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// defaultOut is the directory for the results of a whole run, relative to this one.
const defaultOut = "results"

// run parses the arguments, and runs and reports the selected cells.
func run(args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	addr := flags.String("redis", "",
		"`host:port` of a redis-server that nobody else uses, for the cells that need one; one is started if empty")
	rounds := flags.Int("rounds", 0, "`n` rounds of every cell in place of its own number")
	short := flags.Bool("short", false, "a run of a few seconds, to see that all cells work; its figures mean nothing")
	only := flags.String("only", "", "run only the cells whose name matches this `regexp`, such as ^parallel/")
	against := flags.String("against", "", "compare only with the contestants whose name matches this `regexp`, such as bsm")
	busy := flags.Uint("busy", 0, "keep `n` cores busy with other processes while the cells run")
	out := flags.String("out", "",
		"`directory` for the results; by default "+defaultOut+" for a whole run, and none if a flag changes what is run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	selected, err := newSelection(*only, *against)
	if err != nil {
		return err
	}
	p := fullPlan()
	if *short {
		p = shortPlan()
	}
	if *rounds > 0 {
		p.few.rounds, p.many.rounds, p.contendRounds, p.keptRounds = *rounds, *rounds, *rounds, *rounds
	}
	if *out == "" && !*short && selected.everything() && *busy == 0 {
		*out = defaultOut
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := open(*addr, &p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	cores, err := startBusyCores(*busy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cores.close()) }()
	extent := "all cells"
	if *only != "" {
		extent = "only the cells that match " + *only
	}
	if *against != "" {
		extent += ", only against " + *against
	}
	if *short {
		extent += ", shortened by --short: the figures say nothing"
	}
	r := report{
		circumstances: append(b.circumstances(ctx),
			fact{"Extent", extent}, fact{"Cores kept busy by --busy", whole(float64(*busy))}),
		settings: b.settings(),
	}
	for _, group := range b.groups() {
		done, err := group.run(ctx, &selected)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		} else if err != nil {
			return err
		}
		if len(done.tables) > 0 {
			r.groups = append(r.groups, done)
		}
	}
	if len(r.groups) == 0 {
		return fmt.Errorf("--only %s matches no cell", *only)
	}
	if *out != "" {
		if err := r.write(*out); err != nil {
			return err
		}
	}
	_, err = os.Stdout.WriteString(r.markdown())
	return err
}
