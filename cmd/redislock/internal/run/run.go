// Package run is the command that runs a command under locks. It knows nothing of process groups and terminals, which
// package job handles.
package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
)

const runHelp = `Acquires the locks on all KEYs or on none, keeps them while COMMAND runs, and releases
them. It ends with the exit code of COMMAND, which gets stdin, stdout and stderr;
redislock itself prints only errors, to stderr.

Waiting. While a KEY is taken, redislock waits in line: first come, first served, across
machines. Like flock(1), it waits for ever. --wait sets a limit; --no-wait does not wait
at all. Once in line, it keeps waiting if Redis goes away for a while.

Signals. COMMAND runs in a process group of its own, which gets the signals that redislock
gets. While redislock still waits, a signal ends it. At a terminal, Ctrl-C and Ctrl-Z
reach COMMAND. Ctrl-Z stops redislock as well: if it is stopped for longer than the ttl,
it loses the lock.

Loss. redislock renews the locks every third of the ttl. If they are lost, or cannot be
renewed in time, it sends SIGTERM to the process group of COMMAND, and SIGKILL after the
grace period. The grace period ends before the locks do, so COMMAND is gone before anybody
else can acquire them, unless redislock itself or its machine is stopped. If redislock is
killed, COMMAND is killed as well.

redislock releases the locks as soon as COMMAND itself has ended, even if COMMAND has left
processes in the background: COMMAND should wait for the processes that it starts.

Environment of COMMAND:
  REDISLOCK_KEYS   the KEYs, one per line
  REDISLOCK_TOKEN  the token that holds the KEYs
  REDISLOCK_FENCE  the fencing token, with --fence-key
  REDISLOCK_UNTIL  how long the locks were valid when COMMAND started, in RFC 3339

Nesting. With --token "$REDISLOCK_TOKEN", COMMAND may call redislock run for KEYs that its
caller holds already. The inner run watches those KEYs, but does not renew, shorten or
release them; it acquires and releases only the others. If its caller holds all KEYs,
--fence-key has no effect.

Anybody who can read the Redis sees the user and the command line that hold a lock. Use
--meta to leave another text.`

const runExample = `  redislock run -k nightly -- ./backup.sh
  redislock run -k order:7 -k stock:42 --wait 10m -- ./ship 7
  redislock run -k nightly --no-wait -E 75 --quiet -- ./backup.sh   # cron: skip if it runs
  redislock run -k deploy -- sh -c 'make && make install'
  redislock run -k disk -k tape --token "$REDISLOCK_TOKEN" -- ./inner.sh   # inside another run`

// runFlags are what the command line says.
type runFlags struct {
	keys     []string
	ttl      time.Duration
	wait     time.Duration // 0: for ever
	noWait   bool
	fenceKey string
	meta     string
	hasMeta  bool
	token    string
	hasToken bool
	grace    time.Duration
	hasGrace bool

	conflictCode, lostCode, unavailableCode int

	quiet bool

	command []string
}

// New returns the command.
func New(target *connect.Target) *cobra.Command {
	f := new(runFlags)
	cmd := &cobra.Command{
		Use:     "run -k KEY... [flags] -- COMMAND...",
		Short:   "Run a command under locks",
		Long:    runHelp,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.command = args
			if err := f.check(cmd); err != nil {
				return err
			}
			err := f.run(cmd.Context(), target)
			if own, ok := errors.AsType[*cli.Error](err); ok && own.Code == cli.Unavailable {
				return &cli.Error{Code: f.unavailableCode, Err: own.Err}
			}
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows COMMAND belongs to it
	flags.StringArrayVarP(&f.keys, "key", "k", nil, "`KEY` to lock; may be repeated")
	flags.DurationVar(&f.ttl, "ttl", 30*time.Second,
		"how long the locks outlive a redislock that dies; `D` is like 90s or 10m")
	flags.DurationVar(&f.wait, "wait", 0, "wait in line for at most `D` (default: for ever)")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait if a lock is taken")
	flags.StringVar(&f.fenceKey, "fence-key", "", "mint a fencing token from the counter `K`")
	flags.StringVar(&f.meta, "meta", "", "`TEXT` to store in the locks instead of host, pid, user and COMMAND")
	flags.DurationVar(&f.grace, "grace", 0,
		"time `D` between SIGTERM and SIGKILL when the locks are lost (default 5s, or ttl/3 if that is less)")
	flags.StringVar(&f.token, "token", "", "hold the locks with the token `T`, and re-enter locks that it already holds")
	flags.IntVarP(&f.conflictCode, "conflict-exit-code", "E", cli.No, "exit code `N` if the locks could not be acquired")
	flags.IntVar(&f.lostCode, "lost-exit-code", cli.Lost, "exit code `N` if the locks were lost while COMMAND ran")
	flags.IntVar(&f.unavailableCode, "unavailable-exit-code", cli.Unavailable, "exit code `N` if Redis could not be used")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing if the locks could not be acquired")
	_ = cmd.RegisterFlagCompletionFunc("key", scan.CompleteKeys(target))
	return cmd
}

// leastTTL is the shortest ttl that leaves time to renew the locks and to end a command.
const leastTTL = 100 * time.Millisecond

// check returns a usage error if the flags cannot be used, and fills in the defaults.
func (f *runFlags) check(cmd *cobra.Command) error {
	set := cmd.Flags().Changed
	f.hasMeta, f.hasToken, f.hasGrace = set("meta"), set("token"), set("grace")
	switch {
	case len(f.keys) == 0:
		return cli.Usagef("which lock? Name it with -k KEY")
	case len(f.command) == 0:
		return cli.Usagef("no COMMAND to run; write it after the flags: redislock run -k KEY -- COMMAND")
	case f.ttl < leastTTL:
		return cli.Usagef("--ttl %v is under %v", f.ttl, leastTTL)
	case set("wait") && f.noWait:
		return cli.Usagef("--wait and --no-wait exclude each other")
	case set("wait") && f.wait <= 0:
		return cli.Usagef("--wait %v is not a time to wait; for none, say --no-wait", f.wait)
	case f.hasToken && f.token == "":
		return cli.Usagef("--token is empty; without --token, redislock makes up a new one")
	case strings.ContainsFunc(f.token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return cli.Usagef("--token %q holds white space or a control character", f.token)
	case f.grace < 0:
		return cli.Usagef("--grace %v is negative", f.grace)
	case f.grace > f.ttl/2:
		return cli.Usagef("--grace %v is more than half of --ttl %v; choose a longer --ttl", f.grace, f.ttl)
	}
	for i, key := range f.keys {
		if key == "" {
			return cli.Usagef("KEY %d of %d is empty; is a variable unset?", i+1, len(f.keys))
		}
	}
	for name, code := range map[string]int{
		"conflict-exit-code": f.conflictCode, "lost-exit-code": f.lostCode, "unavailable-exit-code": f.unavailableCode,
	} {
		if code < 0 || code > 255 {
			return cli.Usagef("--%s %d is not an exit code; choose one from 0 to 255", name, code)
		}
	}
	if !f.hasGrace {
		f.grace = min(5*time.Second, f.ttl/3)
	}
	return nil
}

// run acquires the locks, runs the command and releases them.
func (f *runFlags) run(ctx context.Context, target *connect.Target) error {
	path, err := lookCommand(f.command[0])
	if err != nil {
		return err
	}
	signals := job.Listen()
	h, err := f.obtain(ctx, target, signals)
	if err != nil {
		return err
	}
	defer h.close()
	if err := f.fitGrace(h); err != nil {
		_ = h.release()
		return err
	}
	c, err := job.Start(job.Command{
		Path: path, Args: f.command, Env: f.variables(h),
		Stdin: target.Stdin, Stdout: target.Stdout, Stderr: target.Stderr, Complain: target.Complain,
	})
	if err != nil {
		_ = h.release()
		return startError(f.command[0], err)
	}
	s := &supervisor{flags: f, Target: target, hold: h, child: c, signals: signals}
	return s.supervise()
}

// fitGrace makes the grace period fit into the remaining time of locks that somebody else renews. While that goes on, at
// least two thirds of their ttl remain.
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

// lookCommand finds the command as a shell does, and fails as a shell does, before anything is locked.
func lookCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", startError(name, err)
	}
	return path, nil
}

func startError(name string, err error) error {
	if why, ok := errors.AsType[*exec.Error](err); ok {
		err = why.Err
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &cli.Error{Code: cli.NotFound, Err: fmt.Errorf("cannot find the command %q; is it on PATH?", name)}
	}
	if errors.Is(err, syscall.E2BIG) { // without REDISLOCK_KEYS, the environment was short enough for this program
		err = fmt.Errorf("the system allows no environment with so many KEYs in %s; take fewer, or shorter ones", keysVariable)
	}
	return &cli.Error{Code: cli.NotRunnable, Err: fmt.Errorf("cannot run %q: %w", name, err)}
}

// variables returns the environment of the command.
func (f *runFlags) variables(h *hold) []string {
	own := h.variables(f.keys)
	var all []string
	for _, variable := range os.Environ() {
		if !h.replaces(variable) {
			all = append(all, variable)
		}
	}
	return append(all, own...)
}
