// Package wait is the command that waits until locks are free, without taking them.
package wait

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

//go:embed help.txt
var help string

// New returns the command "wait".
func New(target *connect.Target) *cobra.Command {
	p, limits := new(locking.Patience), new(locking.Limits)
	cmd := cli.Describe(help, &cobra.Command{
		Use: "wait KEY...", Short: "Wait until locks are free, without taking them", Args: cli.AnyKeys,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: cli.UntilSignal(func(ctx context.Context, cmd *cobra.Command, keys []string) error {
			if len(keys) == 0 && !limits.Any() {
				return cli.NoKey(cmd)
			}
			if err := cmp.Or(p.Check(cmd.Flags()), limits.Check(keys, target.IsQuorum())); err != nil {
				return err
			}
			target.Guarded = true
			return wait(ctx, target, limits.With(keys), limits, p)
		}),
	})
	limits.AddFlags(cmd.Flags())
	limits.Complete(cmd, scan.CompleteKeys(target))
	p.AddFlags(cmd.Flags(), "wait for at most `D` (default: for ever; 0: only look)",
		"print nothing if the keys are not free in time")
	return cmd
}

const (
	firstWait  = 10 * time.Millisecond
	longestGap = time.Second            // the longest time between two looks
	bearable   = 10 * time.Second       // the longest time without an answer, if the wait has no limit
	lastLook   = 200 * time.Millisecond // how long the last look may take, when the limit is over
)

func wait(
	ctx context.Context, target *connect.Target, keys []string, limits *locking.Limits, p *locking.Patience,
) error {
	limited, cancel := p.Context(ctx)
	defer cancel()
	s, err := p.Open(limited, target)
	if err != nil {
		return err
	}
	defer s.Close()
	teller := p.NewTeller(target)
	defer teller.End(false)
	gap, answered := firstWait, time.Now()
	var why *redislock.RefusedError
	for late := p.NoWait(); ; {
		looking, looked := limited, context.CancelFunc(func() {})
		if late && !p.NoWait() { // the last look may be a second old
			looking, looked = context.WithTimeout(ctx, lastLook)
		}
		asked := time.Now()
		found, err := look(looking, s, keys, limits)
		looked()
		if err == nil {
			if len(found) == 0 {
				return nil
			}
			why, answered = found[0], time.Now()
			teller.See(locking.Obstacles{Blocked: found, Asked: asked})
		} else if !late {
			teller.Miss(err)
		}
		switch {
		case err != nil && (!connect.IsAway(err) || late || p.Limit == 0 && time.Since(answered) > bearable):
			return p.Unreachable(limited, target, err)
		case late && p.Quiet:
			return cli.Exit(cli.No)
		case late && p.NoWait():
			return fmt.Errorf("not free: %s", words(why))
		case late:
			return fmt.Errorf("not free within %v: %s", p.Limit, words(why))
		}
		select {
		case <-time.After(gap):
		case <-limited.Done():
			if !errors.Is(limited.Err(), context.DeadlineExceeded) {
				return limited.Err()
			}
			late = true
		}
		gap = min(gap*2, longestGap)
	}
}

// look returns why the keys are not free within the limits; nil if they are. While the guard is closed, Redis may have
// forgotten holders. All who wait in line are ahead of somebody who joins no line.
func look(
	ctx context.Context, s *connect.Session, keys []string, limits *locking.Limits,
) (why []*redislock.RefusedError, err error) {
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, status := range statuses {
		if status.Waiters > 0 || !limits.Fits(status) {
			e := locking.RefusedBy(status)
			e.Ahead = status.Waiters
			why = append(why, e)
		}
	}
	if len(why) == 0 {
		if left := locking.Notice(ctx, s, keys); left > 0 {
			why = append(why, &redislock.RefusedError{Closed: left})
		}
	}
	return why, nil
}

func words(why *redislock.RefusedError) string {
	if why.Closed > 0 {
		return show.InTheWay(why)
	}
	return fmt.Sprintf("%q is %s", why.Key, show.InTheWay(why))
}
