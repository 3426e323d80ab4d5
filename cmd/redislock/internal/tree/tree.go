// Package tree is the command that shows who waits for whom. Package tree of the library makes the trees and finds the
// circles; this one looks for what is in line, and draws them.
package tree

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
)

//go:embed help.txt
var help string

type treeOptions struct {
	token     string
	meta      []string
	limit     int
	json, dot bool
	watch     time.Duration
	bounds    bounds
}

// New returns the command "tree".
func New(target *connect.Target) *cobra.Command {
	var opt treeOptions
	cmd := cli.Describe(help, &cobra.Command{
		Use: "tree [KEY...]", Short: "Show who waits for whom, and who waits in a circle",
		ValidArgsFunction: scan.CompleteKeys(target),
		Args: func(cmd *cobra.Command, keys []string) error {
			if len(keys) > 0 {
				if err := cli.KeysWanted(cmd, keys); err != nil {
					return err
				}
			}
			return opt.check(cmd, keys)
		},
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, keys []string) error {
			return run(ctx, target, keys, opt)
		}),
	})
	flags := cmd.Flags()
	flags.StringVar(&opt.token, "token", "", "show only the trees with `TOKEN`, or with tokens that begin like it")
	flags.StringArrayVar(&opt.meta, "meta", nil,
		"show only the trees with metadata that has the field `NAME=VALUE`, or this text; may be repeated")
	flags.IntVar(&opt.bounds.waiters, "waiters", 10, "show the first `N` waiters of each lock, and as many of those behind "+
		"them who hold locks themselves; 0 for all")
	flags.IntVar(&opt.bounds.depth, "depth", 10, "show at most `N` locks below each other; 0 for all")
	flags.IntVar(&opt.bounds.lines, "lines", 1000, "print at most `N` lines; 0 for all")
	flags.IntVar(&opt.limit, "limit", 50000, "look at about `N` waiters at most; 0 for all, whatever memory that takes")
	flags.BoolVar(&opt.json, "json", false, "print JSON, one object a line")
	flags.BoolVar(&opt.dot, "dot", false, "print a graph for Graphviz")
	cli.DurationVar(flags, &opt.watch, "watch", "w", 0, "look again every `INTERVAL`; on a terminal, on a screen")
	flags.Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

// check returns an error if the flags cannot be used.
func (opt *treeOptions) check(cmd *cobra.Command, keys []string) error {
	for _, name := range []string{"waiters", "depth", "lines", "limit"} {
		if n, _ := cmd.Flags().GetInt(name); n < 0 {
			return cli.Usagef("--%s %d is below 0", name, n)
		}
	}
	if opt.json && opt.dot {
		return cli.Usagef("--json and --dot exclude each other")
	}
	if !cmd.Flags().Changed("watch") {
		return nil
	}
	if opt.watch < 100*time.Millisecond {
		return cli.Usagef("--watch=%v is too short; use 100ms or more", opt.watch)
	}
	if opt.dot {
		return cli.Usagef("--dot prints one graph; leave out --watch")
	}
	for _, key := range keys {
		if _, err := cli.ParseDuration(key); err == nil {
			return cli.Usagef("%q would be a KEY; write the interval with =, as in --watch=%[1]s", key)
		}
	}
	return nil
}

// shower shows trees.
type shower struct {
	*connect.Session

	opt  treeOptions
	keys []string // none for all trees
}

func run(ctx context.Context, target *connect.Target, keys []string, opt treeOptions) error {
	session, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	s := &shower{session, opt, keys}
	if opt.watch > 0 {
		return s.watch(ctx)
	}
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	cut, err := s.print(found, "")
	if err != nil {
		return err
	}
	s.complain(found, cut)
	return nil
}

// print prints trees in their format, and reports whether it has left out lines. JSON contains the time at, which may be "".
func (s *shower) print(found *survey.Finding, at string) (cut bool, err error) {
	switch {
	case s.opt.json:
		out := bufio.NewWriter(s.Stdout)
		if err := writeJSON(out, found, at); err != nil {
			return false, err
		}
		return false, out.Flush()
	case s.opt.dot:
		return false, writeDot(s.Stdout, found, s.opt.bounds)
	}
	d := draw(found, s.Screen(), s.opt.bounds)
	_, err = s.Stdout.Write(d.text())
	return d.cut, err
}

// complain says what the output does not show.
func (s *shower) complain(found *survey.Finding, cut bool) {
	if len(found.Tree.Roots)+len(found.Tree.Unheld) == 0 {
		if s.narrowed() {
			s.Complain(errors.New("nobody waits in a line there"))
		} else {
			s.Complain(errors.New(`nobody waits in a line; "redislock ls" lists the locks`))
		}
	}
	if cut {
		s.Complain(fmt.Errorf("stopped after %d lines; name KEYs, or raise --lines", s.opt.bounds.lines))
	}
	if found.Tree.MoreCircles {
		s.Complain(fmt.Errorf("there are more circles; only %d are shown", len(found.Tree.Circles)))
	}
	if found.Cut {
		s.Complain(fmt.Errorf("looked at %d waiters only, so that trees and circles may be missing; raise --limit", found.Waiters))
	}
	if found.Unreadable > 0 {
		s.Complain(fmt.Errorf("%d keys could not be read: %w", found.Unreadable, found.Why))
	}
}

// look finds who waits for whom.
func (s *shower) look(ctx context.Context) (*survey.Finding, error) {
	p := newProgress(s)
	trees := survey.Trees{Redis: s.Survey(), Keys: s.keys, Limit: s.opt.limit, Progress: p.update}
	found, err := trees.Find(ctx)
	p.end()
	switch {
	case err == nil:
		s.narrow(found.Tree)
		return found, nil
	case ctx.Err() != nil:
		return nil, err
	}
	if explained := s.Explain(err); explained != err {
		return nil, explained
	}
	return nil, s.Refusal(err)
}

func (s *shower) narrowed() bool { return len(s.keys) > 0 || s.opt.token != "" || len(s.opt.meta) > 0 }

// narrow leaves out the trees that are not wanted.
func (s *shower) narrow(t *tree.Tree) {
	if len(s.keys) > 0 {
		t.Narrow(slices.DeleteFunc(slices.Clone(t.Keys), func(k *tree.Key) bool { return !slices.Contains(s.keys, k.Key) }))
	}
	if s.opt.token == "" && len(s.opt.meta) == 0 {
		return
	}
	wanted := func(token, metadata string) bool {
		return strings.HasPrefix(token, s.opt.token) &&
			!slices.ContainsFunc(s.opt.meta, func(part string) bool { return !survey.HasMeta(metadata, part) })
	}
	var keys []*tree.Key
	for _, l := range t.Locks {
		if wanted(l.Token, l.Metadata) {
			keys = append(keys, l.Keys[0].Key)
		}
	}
	for _, w := range t.Waiters {
		if wanted(w.Token, w.Metadata) {
			for _, p := range w.Places {
				keys = append(keys, p.Key)
			}
		}
	}
	t.Narrow(keys)
}
