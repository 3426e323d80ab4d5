// Package run is the command that runs a command under locks. It knows nothing of process groups and terminals, which
// package job handles.
package run

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
)

//go:embed help.txt
var help string

type runFlags struct {
	locking.Flags

	token                    string
	hasToken, share, reenter bool
	grace                    time.Duration
	hasGrace                 bool
	atLeast                  time.Duration // 0 for no such limit; likewise maxHold
	maxHold                  time.Duration
	lostCode                 int
	format                   string

	log *log // nil: text
}

// New returns the command "run".
func New(target *connect.Target) *cobra.Command {
	f := new(runFlags)
	cmd := cli.Describe(help, &cobra.Command{
		Use: "run -k KEY... [flags] -- COMMAND...", Short: "Run a command under locks",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Command = args
			if err := f.check(cmd, target); err != nil {
				return err
			}
			if f.hasToken && target.IsQuorum() { // the token is put into the keys behind the library's back, on one server
				return cli.Usagef("--token does not work on a quorum of servers")
			}
			target.Guarded, target.Longest = true, max(f.TTL, f.atLeast)
			return f.WithCode(f.run(cmd.Context(), target))
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	})
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows COMMAND belongs to it
	flags.StringArrayVarP(&f.Keys, "key", "k", nil, "`KEY` to lock; may be repeated")
	f.AddFlags(flags, 30*time.Second, "how long the locks outlive a redislock that dies")
	flags.Lookup("long").Usage = "allow a --ttl or an --at-least above 24h"
	cli.DurationVar(flags, &f.grace, "grace", "", 0,
		"time `D` between SIGTERM and SIGKILL when COMMAND is ended (default 5s, or ttl/3 if that is less)")
	cli.DurationVar(flags, &f.atLeast, "at-least", "", 0,
		"keep the locks for at least `D`, even if COMMAND ends sooner (default: no limit)")
	cli.DurationVar(flags, &f.maxHold, "max-hold", "", 0, "end COMMAND when it has held the locks for `D` (default: no limit)")
	flags.BoolVar(&f.reenter, "reenter", false, "share the KEYs that the run around this one holds, by $"+locking.TokenVariable)
	flags.StringVar(&f.token, "token", "", "hold the locks with the token `T` instead of a random one")
	flags.BoolVar(&f.share, "share", false, "share the KEYs that the token of --token already holds")
	flags.IntVar(&f.lostCode, "lost-exit-code", cli.Lost, "exit code `N` if the locks were lost while COMMAND ran")
	flags.StringVar(&f.format, "log-format", "text", "`FORMAT` of messages: text, or json with what happens to the locks")
	_ = cmd.RegisterFlagCompletionFunc("key", scan.CompleteKeys(target))
	f.Limits.Complete(cmd, scan.CompleteKeys(target))
	return cmd
}

// check returns a usage error if the flags cannot be used, and fills in the defaults.
func (f *runFlags) check(cmd *cobra.Command, target *connect.Target) error {
	set := cmd.Flags().Changed
	f.hasToken, f.hasGrace = set("token"), set("grace")
	switch {
	case len(f.Keys) == 0 && !f.Limits.Any():
		return cli.Usagef("no KEY to lock; name it with -k KEY")
	case len(f.Command) == 0:
		return cli.Usagef("no COMMAND to run; write it after the flags: redislock run -k KEY -- COMMAND")
	case f.format != "text" && f.format != "json":
		return cli.Usagef("--log-format %q is unknown; write text or json", f.format)
	}
	if err := cmp.Or(f.Check(cmd.Flags(), target), f.checkToken(), f.CheckLong("at-least", f.atLeast),
		locking.CheckCode("lost-exit-code", f.lostCode)); err != nil {
		return err
	}
	if !f.hasGrace {
		f.grace = min(5*time.Second, f.TTL/3)
	}
	switch {
	case set("at-least") && f.atLeast <= 0:
		return cli.Usagef("--at-least %v is not more than 0", f.atLeast)
	case set("max-hold") && f.maxHold <= 0:
		return cli.Usagef("--max-hold %v is not more than 0", f.maxHold)
	case f.grace < 0:
		return cli.Usagef("--grace %v is negative", f.grace)
	case f.grace > f.TTL/2:
		return cli.Usagef("--grace %v is more than half of --ttl %v; choose a longer --ttl", f.grace, f.TTL)
	}
	return nil
}

// run acquires the locks, runs the command and releases them.
func (f *runFlags) run(ctx context.Context, target *connect.Target) error {
	if f.format == "json" {
		f.log = newLog(target.Env)
		f.Say = func(e *redislock.RefusedError) { f.log.Info("waiting", blocker(e)) }
	}
	path, err := exec.LookPath(f.Command[0]) // as a shell does, before anything is locked
	if err != nil {
		return startError(f.Command[0], err)
	}
	signals := job.Listen()
	h, err := f.obtain(ctx, target, signals)
	if err != nil {
		return err
	}
	defer h.close()
	if err := f.fitGrace(h); err != nil {
		f.abandon(h, signals)
		return err
	}
	s := &supervisor{flags: f, Target: target, hold: h, signals: signals}
	s.child, err = job.Start(job.Command{
		Path: path, Args: f.Command, Env: h.environ(f.Keys),
		Stdin: target.Stdin, Stdout: target.Stdout, Stderr: target.Stderr, Complain: s.report,
	})
	if err != nil {
		f.abandon(h, signals) // at once: a job that never ran need not keep others from running it
		return startError(f.Command[0], err)
	}
	return s.supervise()
}

// fitGrace makes the grace period fit into the remaining time of locks that somebody else renews.
func (f *runFlags) fitGrace(h *hold) error {
	if h.watched == nil {
		return nil
	}
	left := time.Until(h.watched.validUntil())
	switch {
	case !f.hasGrace:
		f.grace = min(f.grace, max(left/3, 0))
	case f.grace > left/2:
		return cli.Usagef("--grace %v is more than half of the %v that remain of the locks to re-enter",
			f.grace, left.Round(time.Millisecond))
	}
	return nil
}

func startError(name string, err error) error {
	switch why := errors.Unwrap(err); { // an *exec.Error or *fs.PathError repeats the name
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &cli.Error{Code: cli.NotFound, Err: fmt.Errorf("cannot find the command %q; is it on PATH?", name)}
	case errors.Is(err, syscall.E2BIG): // without REDISLOCK_KEYS, the environment was short enough for this program
		err = errors.New("the KEYs are too long for the environment variable REDISLOCK_KEYS; use fewer or shorter KEYs")
	case why != nil:
		err = why
	}
	return &cli.Error{Code: cli.NotRunnable, Err: fmt.Errorf("cannot run %q: %w", name, err)}
}
