// Package wait is the command that waits until locks are free, without taking them.
package wait

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

const waitHelp = `Waits until all KEYs are free at the same time and nobody waits in line for them. It
acquires no lock and joins no line, so the KEYs may be taken again by the time it ends:
to do something under the locks, use run.

It looks again after 10 ms, then after twice as long each time, up to a second. It gives
up after ten seconds without an answer from Redis.

The exit code is 0 if all KEYs are free, and 1 if some are not when --timeout is over.`

const waitExample = `  redislock wait nightly
  redislock wait order:7 stock:42 --timeout 30s || echo "still busy"`

// New returns the command.
func New(target *connect.Target) *cobra.Command {
	var timeout time.Duration
	var quiet bool
	cmd := &cobra.Command{
		Use:               "wait KEY...",
		Short:             "Wait until locks are free, without taking them",
		Long:              waitHelp,
		Example:           waitExample,
		Args:              cli.KeysWanted,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: func(cmd *cobra.Command, keys []string) error {
			if cmd.Flags().Changed("timeout") && timeout <= 0 {
				return cli.Usagef("--timeout %v is not a time to wait", timeout)
			}
			return wait(cmd.Context(), target, keys, timeout, quiet)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait for `D` at most (default: for ever)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing if the keys are not free in time")
	return cmd
}

const (
	firstWait  = 10 * time.Millisecond
	longestGap = time.Second      // the longest time between two looks
	bearable   = 10 * time.Second // the longest time without an answer
)

func wait(ctx context.Context, target *connect.Target, keys []string, timeout time.Duration, quiet bool) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	var over <-chan time.Time
	if timeout > 0 {
		over = time.After(timeout)
	}
	gap, answered, last := firstWait, time.Time{}, redislock.Status{}
	for late := false; ; {
		statuses, err := s.Inspect(ctx, keys)
		if err != nil && (cli.CodeOf(err) != cli.Unavailable || time.Since(answered) > bearable) {
			return err
		}
		if err == nil {
			answered = time.Now()
			busy := slices.IndexFunc(statuses, func(s redislock.Status) bool { return !isFree(s) })
			if busy < 0 {
				return nil
			}
			last = statuses[busy]
		}
		switch {
		case late && err != nil:
			return err
		case late && quiet:
			return cli.Exit(cli.No)
		case late:
			return errors.New(stillTaken(last, timeout))
		}
		select {
		case <-time.After(gap):
		case <-over:
			late = true // look once more: the last look may be a second old
		}
		gap = min(gap*2, longestGap)
	}
}

func stillTaken(s redislock.Status, timeout time.Duration) string {
	if s.TTL == 0 {
		return fmt.Sprintf("not free within %v: %q has %d in line", timeout, s.Key, s.Waiters)
	}
	return fmt.Sprintf("not free within %v: %q is held by %s", timeout, s.Key, show.Holder(s))
}

// isFree reports whether anybody could acquire a key now. If there is a line, only its first waiter can.
func isFree(s redislock.Status) bool { return s.TTL == 0 && s.Waiters == 0 }
