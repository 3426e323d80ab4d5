// Command bench runs this library beside other Redis locks for Go, and beside the least that their clients can do, all on
// one redis-server, in turns within one run. From the repository's root:
//
//	go -C bench run .
//
// It prints medians with their spread, and ratios taken round by round, since a machine's speed changes while the program
// runs; and it writes them to results/results.md, with a chart for each kind of work. It needs redis-server on PATH, or the
// address of one, whose keys under "redislock-bench" it uses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	var err error
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		err = work(os.Stdin, os.Stdout)
	} else {
		err = run(os.Args[1:])
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// defaultOut is where a whole run is written, as seen from this directory.
const defaultOut = "results"

// run parses the arguments, runs the cells that they ask for and reports them.
func run(args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	addr := flags.String("redis", "", "`host:port` of a redis-server that nobody else uses; one is started if empty")
	rounds := flags.Int("rounds", 0, "`n` rounds of every cell in place of its own number")
	short := flags.Bool("short", false, "a pass of a few seconds that shows that all works; its figures say nothing")
	pattern := flags.String("only", "", "run only the cells whose name matches this `regexp`, such as ^parallel/")
	out := flags.String("out", "", "`directory` for the results; by default "+defaultOut+", and none with --short or --only")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	only, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	p := fullPlan()
	if *short {
		p = shortPlan()
	}
	if *rounds > 0 {
		p.rounds, p.serialRounds, p.contendRounds, p.keptRounds = *rounds, *rounds, *rounds, *rounds
	}
	if *out == "" && !*short && *pattern == "" {
		*out = defaultOut
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := open(*addr, &p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	extent := fact{"Extent", "all cells"}
	if *pattern != "" {
		extent.value = "only the cells that match " + *pattern
	}
	if *short {
		extent.value += ", shortened by --short: the figures say nothing"
	}
	r := report{circumstances: append(b.circumstances(ctx), extent), settings: b.settings()}
	for _, group := range b.groups() {
		done, err := group.run(ctx, only)
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
		return fmt.Errorf("--only %s matches no cell", *pattern)
	}
	if *out != "" {
		if err := r.write(*out); err != nil {
			return err
		}
	}
	_, err = os.Stdout.WriteString(r.markdown())
	return err
}
