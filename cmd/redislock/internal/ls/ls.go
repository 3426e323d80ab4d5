// Package ls is the command that lists locks. It finds them by the beginning of their values, and asks the library for the
// rest; it knows nothing of how the library stores who waits.
package ls

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const lsHelp = `Shows all locks, or those whose keys match PATTERN: the key, the token of its holder,
the remaining time, how many wait in line, and the holder's metadata. In a PATTERN, *
stands for any characters, ? for one, [ab] for a or b, and \ for the next character.

ls looks through all keys with SCAN, 500 at a time, so that even a server with millions
of keys keeps serving others. It looks up a PATTERN without *, ? and [ directly. On a
Cluster it asks all masters.

A lock is a string with a time to live that begins like a token of this library: with
22 letters, digits, - and _. --all shows every string: also locks with custom tokens,
and values without expiry, which block a lock as well. A value over 4 KiB is cut, and
its waiters are unknown ("?").

--json prints one object a line: key, token, metadata (a string), fields (the metadata
if it is an object), ttl_ms (null without expiry), waiters (null if unknown) and
waiting_since; key_base64, token_base64 and metadata_base64 for bytes that are not
UTF-8; metadata_cut; and at, with --watch.

The exit code is 0 even if there is no lock; see "redislock help exit-codes" for others.`

const lsExample = `  redislock ls                            # all locks
  redislock ls 'order:*' --sort ttl       # the first to expire comes first; -ttl: last
  redislock ls --meta host=api-3          # what does that machine hold?
  redislock ls --waiting --watch          # where do clients wait? again every 2 s
  redislock ls --json | jq -r .key`

// lsOptions are the flags of ls.
type lsOptions struct {
	filter   lsFilter
	sort     string
	limit    int
	json     bool
	noHeader bool
	watch    time.Duration
}

// defaultLimit bounds the memory that ls needs, whatever is in the database.
const defaultLimit = 10000

// New returns the command.
func New(target *connect.Target) *cobra.Command {
	var opt lsOptions
	cmd := &cobra.Command{
		Use:     "ls [PATTERN]",
		Aliases: []string{"list"},
		Short:   "Show the locks, who holds them and how many wait",
		Long:    lsHelp,
		Example: lsExample,

		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("ls takes one PATTERN; put it into quotes, or the shell expands it")
			}
			return opt.check(cmd, args)
		},
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return runLs(ctx, target, strings.Join(args, ""), opt)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&opt.filter.all, "all", "a", false, "show every string, not only what looks like a lock")
	flags.StringVar(&opt.filter.holder, "holder", "", "show only what `TOKEN` holds, or tokens that begin like it")
	flags.StringArrayVar(&opt.filter.meta, "meta", nil,
		"show only metadata with the field `NAME=VALUE`, or with this text; may be repeated")
	flags.BoolVar(&opt.filter.waiting, "waiting", false, "show only locks that somebody waits for")
	flags.StringVar(&opt.sort, "sort", "key",
		"sort by `WHAT`: key, ttl (shortest first), waiters (most first), holder, none; -WHAT reverses it")
	flags.IntVar(&opt.limit, "limit", defaultLimit, "show only the first `N`; 0 for all, whatever memory that takes")
	flags.BoolVar(&opt.json, "json", false, "print JSON, one object a line; with --sort none, each as soon as it is found")
	flags.BoolVar(&opt.noHeader, "no-header", false, "print no head above the table")
	flags.DurationVarP(&opt.watch, "watch", "w", 0, "look again every `INTERVAL`, until Ctrl-C")
	flags.Lookup("watch").NoOptDefVal = "2s"
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(slices.Sorted(maps.Keys(orders)),
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check returns an error if the flags cannot be used.
func (opt *lsOptions) check(cmd *cobra.Command, args []string) error {
	if _, known := orderOf(opt.sort); !known {
		return cli.Usagef("--sort %q is not known; use key, ttl, waiters, holder or none, with - in front to reverse", opt.sort)
	}
	if opt.limit < 0 {
		return cli.Usagef("--limit %d is below 0", opt.limit)
	}
	if cmd.Flags().Changed("watch") {
		if opt.watch < 100*time.Millisecond {
			return cli.Usagef("--watch=%v is too short; use 100ms or more", opt.watch)
		}
		if len(args) == 1 {
			if _, err := time.ParseDuration(args[0]); err == nil {
				return cli.Usagef("%q would be a PATTERN; write the interval with =, as in --watch=%[1]s", args[0])
			}
		}
	}
	return nil
}

// lister prints locks.
type lister struct {
	*connect.Target

	opt     lsOptions
	pattern string
	scan    scan
}

func runLs(ctx context.Context, target *connect.Target, pattern string, opt lsOptions) error {
	client, err := target.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	l := &lister{Target: target, opt: opt, pattern: pattern, scan: scan{
		client: client, locks: redislock.New(client), pattern: pattern, filter: opt.filter,
	}}
	if opt.watch > 0 {
		return l.watch(ctx)
	}
	return l.once(ctx)
}

// once prints the locks and ends.
func (l *lister) once(ctx context.Context) error {
	if l.opt.json && l.opt.sort == "none" {
		return l.stream(ctx)
	}
	all, err := l.look(ctx)
	if err != nil {
		return err
	}
	if err := l.print(l.Stdout, l.Screen(), all.kept, ""); err != nil {
		return err
	}
	l.tellLeftOut(all.dropped)
	return nil
}

// stream prints locks as they are found.
func (l *lister) stream(ctx context.Context) error {
	left := l.opt.limit
	dropped := 0
	err := l.search(ctx, func(s show.Status) error {
		if l.opt.limit > 0 && left == 0 {
			dropped++
			return nil
		}
		left--
		return show.WriteJSON(l.Stdout, s.JSON())
	})
	if err == nil {
		l.tellLeftOut(dropped)
	}
	return err
}

// look finds the locks, in their order.
func (l *lister) look(ctx context.Context) (*collection, error) {
	order, _ := orderOf(l.opt.sort)
	all := &collection{order: order, limit: l.opt.limit}
	err := l.search(ctx, func(s show.Status) error {
		all.add(s)
		return nil
	})
	all.settle()
	return all, err
}

// search runs the scan, and calls found for each lock.
func (l *lister) search(ctx context.Context, found func(show.Status) error) error {
	var unshown error
	l.scan.unreadable, l.scan.why = 0, nil
	l.scan.found = func(s show.Status) error {
		unshown = found(s)
		return unshown
	}
	err := l.scan.run(ctx)
	if err != nil && unshown == nil { // Redis is not to blame for an output that fails
		return l.Explain(err)
	}
	return err
}

// tellLeftOut says on stderr what stdout does not show.
func (l *lister) tellLeftOut(dropped int) {
	if dropped > 0 {
		l.Complain(fmt.Errorf("%d more are not shown; narrow them by a PATTERN, or raise --limit", dropped))
	}
	if n := l.scan.unreadable; n > 0 {
		l.Complain(fmt.Errorf("%d keys could not be read: %w", n, l.scan.why))
	}
}

// print prints locks as a table, or as JSON with the time at, which may be "".
func (l *lister) print(out io.Writer, s term.Screen, all []show.Status, at string) error {
	if l.opt.json {
		for _, status := range all {
			line := status.JSON()
			line.At = at
			if err := show.WriteJSON(out, line); err != nil {
				return err
			}
		}
		return nil
	}
	return lsTable(all).Write(out, s, !l.opt.noHeader)
}

// lsTable puts locks into a table.
func lsTable(all []show.Status) *term.Table {
	t := &term.Table{Columns: []term.Column{
		{Name: "KEY", Shrink: true}, {Name: "HOLDER", Shrink: true}, {Name: "TTL", Right: true},
		{Name: "WAITERS", Right: true}, {Name: "METADATA", Shrink: true},
	}}
	for _, s := range all {
		ttl := term.Cell{Text: show.TTL(s.TTL)}
		if s.TTL < 0 {
			ttl.Colour = term.Red
		}
		waiters := term.Cell{Text: fmt.Sprint(s.Waiters)}
		token, metadata := term.Escape(s.Token), show.Metadata(s.Metadata)
		switch {
		case s.Cut && metadata == "":
			waiters.Text = "?"
			token += "…"
		case s.Cut:
			waiters.Text = "?"
			metadata += "…"
		case s.Waiters > 0:
			waiters.Colour = term.Yellow
		}
		t.Rows = append(t.Rows, []term.Cell{
			{Text: term.Escape(s.Key), Colour: term.Bold}, {Text: token}, ttl, waiters, {Text: metadata, Colour: term.Faint},
		})
	}
	return t
}
