// Package ls is the command that lists locks. Package scan finds them.
package ls

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/survey"
)

//go:embed help.txt
var help string

type lsOptions struct {
	filter               survey.Filter
	sort                 string // "" for the first that are found, by key
	limit                int
	limited              bool // by the user
	output               string
	json, wide, noHeader bool
	watch                time.Duration

	format   format
	template string
}

// New returns the command "ls".
func New(target *connect.Target) *cobra.Command {
	var opt lsOptions
	cmd := cli.Describe(help, &cobra.Command{
		Use: "ls [PATTERN]", Aliases: []string{"list"},
		Short: "List the locks, who holds them and how many wait", ValidArgsFunction: scan.CompleteKeys(target),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("ls takes one PATTERN; put it into quotes, or the shell expands it")
			}
			return opt.check(cmd, args)
		},
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return runLs(ctx, target, strings.Join(args, ""), opt)
		}),
	})
	flags := cmd.Flags()
	flags.BoolVarP(&opt.filter.All, "all", "a", false, "list every string, not only what looks like a lock")
	flags.StringVar(&opt.filter.Token, "token", "", "list only what `TOKEN` holds, or tokens that begin like it")
	flags.StringArrayVar(&opt.filter.Meta, "meta", nil,
		"list only metadata with the field `NAME=VALUE`, or with this text; may be repeated")
	flags.BoolVar(&opt.filter.Waiting, "waiting", false, "list only locks that somebody waits for")
	flags.StringVar(&opt.sort, "sort", "",
		"sort by `WHAT`: key, age (oldest first), ttl (shortest first), line (longest first), holder, "+
			"or none; -WHAT reverses it (default: the first that are found, by key)")
	flags.IntVar(&opt.limit, "limit", 10000, "list at most `N`; 0 for all, whatever memory that takes")
	flags.StringVarP(&opt.output, "output", "o", "table", "print in FORMAT `F`: table, json, jsonl, name or template=TEXT; "+
		"with --sort none, the last three print each lock at once")
	flags.BoolVar(&opt.json, "json", false, "print JSON, one object a line")
	flags.BoolVar(&opt.wide, "wide", false, "print TOKEN and METADATA too, and cut nothing")
	flags.BoolVar(&opt.noHeader, "no-header", false, "print no head above the table")
	cli.DurationVar(flags, &opt.watch, "watch", "w", 0, "look again every `INTERVAL`, until q or Ctrl-C")
	flags.Lookup("watch").NoOptDefVal = "2s"
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(slices.Sorted(maps.Keys(orders)),
		cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "jsonl", "name", "template="},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check returns an error if the flags cannot be used, and reads --output.
func (opt *lsOptions) check(cmd *cobra.Command, args []string) (err error) {
	opt.limited = cmd.Flags().Changed("limit")
	if _, known := orderOf(opt.sort); !known {
		return cli.Usagef("--sort %q is not known; use key, age, ttl, line, holder or none, with - in front to reverse", opt.sort)
	}
	if opt.limit < 0 {
		return cli.Usagef("--limit %d is below 0", opt.limit)
	}
	if opt.json {
		if cmd.Flags().Changed("output") && opt.output != "jsonl" {
			return cli.Usagef("--json and -o %s exclude each other", opt.output)
		}
		opt.output = "jsonl"
	}
	if opt.format, opt.template, err = parseOutput(opt.output); err != nil {
		return err
	}
	if opt.wide && opt.format != asTable {
		return cli.Usagef("--wide is for tables; leave out -o")
	}
	if cmd.Flags().Changed("watch") {
		if opt.watch < 100*time.Millisecond {
			return cli.Usagef("--watch=%v is too short; use 100ms or more", opt.watch)
		}
		if opt.format == asJSON {
			return cli.Usagef("-o json is one document; with --watch, use -o jsonl")
		}
		if len(args) == 1 {
			if _, err := cli.ParseDuration(args[0]); err == nil {
				return cli.Usagef("%q would be a PATTERN; write the interval with =, as in --watch=%[1]s", args[0])
			}
		}
	}
	return nil
}

type lister struct {
	*connect.Session

	opt  lsOptions
	scan survey.Scan
}

func runLs(ctx context.Context, target *connect.Target, pattern string, opt lsOptions) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	l := &lister{Session: s, opt: opt, scan: survey.Scan{Redis: s.Survey(), Pattern: pattern, Filter: opt.filter}}
	if opt.watch > 0 {
		return l.watch(ctx)
	}
	shown, left, err := l.once(ctx)
	hint := "; --all also lists strings that do not look like locks"
	if opt.filter.All {
		hint = ""
	}
	switch {
	case err != nil:
		return err
	case shown == 0 && pattern != "":
		l.Complain(fmt.Errorf("no lock matches %q%s", pattern, hint))
	case shown == 0:
		l.Complain(errors.New("no lock found" + hint))
	case left > 0:
		l.Complain(fmt.Errorf("%d more are not listed; narrow them with a PATTERN, or raise --limit", left))
	case opt.limit > 0 && shown == opt.limit && opt.sort == "" && !opt.limited:
		l.Complain(fmt.Errorf("stopped after %d locks; narrow them with a PATTERN, or raise --limit", shown))
	}
	if n := l.scan.Unreadable; n > 0 {
		l.Complain(fmt.Errorf("%d keys could not be read: %w", n, l.scan.Why))
	}
	return nil
}

// once prints the locks, and returns how many it has printed, and how many more it has seen.
func (l *lister) once(ctx context.Context) (shown, left int, err error) {
	if l.opt.sort == "none" && l.opt.format != asTable && l.opt.format != asJSON {
		return l.stream(ctx)
	}
	all, err := l.look(ctx, l.opt.sort)
	if err != nil {
		return 0, 0, err
	}
	screen := l.Screen()
	if l.opt.wide {
		screen.Columns = 0 // the terminal may wrap its lines
	}
	return len(all.kept), all.dropped, l.print(l.Stdout, screen, all.kept, "")
}

func (l *lister) stream(ctx context.Context) (shown, left int, err error) {
	err = l.search(ctx, func(s survey.Status) error {
		if err := l.print(l.Stdout, term.Screen{}, []survey.Status{s}, ""); err != nil {
			return err
		}
		if shown++; shown == l.opt.limit {
			return survey.ErrEnough
		}
		return nil
	})
	return shown, 0, err
}

// look finds the locks, and sorts them as --sort does with that name.
func (l *lister) look(ctx context.Context, name string) (*collection, error) {
	order, _ := orderOf(name)
	all := &collection{order: order, limit: l.opt.limit, seen: map[string]bool{}}
	all.first = name == "" || name == "none"
	err := l.search(ctx, all.add)
	all.settle()
	return all, err
}

// search runs the scan, and calls found for each lock.
func (l *lister) search(ctx context.Context, found func(survey.Status) error) error {
	var unshown error
	l.scan.Unreadable, l.scan.Why = 0, nil
	l.scan.Found = func(s survey.Status) error {
		unshown = found(s)
		return unshown
	}
	err := l.scan.Run(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && unshown == nil: // Redis is not to blame for an output that fails
		return l.Explain(err)
	}
	return err
}

// orders are the ways to sort. A lock that does not say what it is sorted by comes last.
var orders = map[string]func(a, b survey.Status) int{
	"key": byKey,
	"ttl": func(a, b survey.Status) int {
		return cmp.Or(last(a.TTL < 0, b.TTL < 0), cmp.Compare(a.TTL, b.TTL), byKey(a, b))
	},
	"age": func(a, b survey.Status) int {
		since, since2 := show.OwnerOf(a.Metadata).Since, show.OwnerOf(b.Metadata).Since
		return cmp.Or(last(since.IsZero(), since2.IsZero()), since.Compare(since2), byKey(a, b))
	},
	"line": func(a, b survey.Status) int { return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), byKey(a, b)) },
	"holder": func(a, b survey.Status) int {
		who, who2 := show.OwnerOf(a.Metadata).Who, show.OwnerOf(b.Metadata).Who
		return cmp.Or(last(who == "", who2 == ""), strings.Compare(who, who2), byKey(a, b))
	},
	"none": nil,
}

// orderOf returns the order of a name in orders, or its reverse if a minus precedes the name. "none" has no reverse.
func orderOf(name string) (order func(a, b survey.Status) int, known bool) {
	name, reversed := strings.CutPrefix(cmp.Or(name, "key"), "-")
	forward, known := orders[name]
	if !reversed {
		return forward, known
	}
	if forward == nil {
		return nil, false
	}
	return func(a, b survey.Status) int { return forward(b, a) }, true
}

func byKey(a, b survey.Status) int { return strings.Compare(a.Key, b.Key) }

// last compares so that what is true comes last.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// collection keeps the first few of any number of statuses, in an order.
type collection struct {
	order func(a, b survey.Status) int // nil for the order in which they came
	limit int                          // 0 for none
	first bool                         // the first that come are enough

	kept    []survey.Status
	seen    map[string]bool // keys that are kept: SCAN may return a key twice
	dropped int             // how many more there were
}

// add keeps a status. It returns survey.ErrEnough if no more are needed.
func (c *collection) add(s survey.Status) error {
	if c.seen[s.Key] {
		return nil
	}
	c.seen[s.Key] = true
	c.kept = append(c.kept, s)
	switch {
	case c.limit > 0 && c.first && len(c.kept) == c.limit:
		return survey.ErrEnough
	case c.limit > 0 && len(c.kept) >= 2*c.limit+100:
		c.settle()
	}
	return nil
}

func (c *collection) settle() {
	if c.order == nil {
		return
	}
	slices.SortFunc(c.kept, c.order)
	if c.limit > 0 && len(c.kept) > c.limit {
		for _, s := range c.kept[c.limit:] {
			delete(c.seen, s.Key) // if it comes again, it is dropped again, and counted twice
		}
		c.dropped += len(c.kept) - c.limit
		clear(c.kept[c.limit:])
		c.kept = c.kept[:c.limit]
	}
}
