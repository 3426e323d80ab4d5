// Package acquire is the command that acquires locks for a script, which releases them by their token.
package acquire

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

//go:embed help.txt
var help string

// New returns the command "acquire".
func New(target *connect.Target) *cobra.Command {
	f := new(locking.Flags)
	var asJSON bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "acquire KEY... --ttl D", Short: "Acquire a lock for a script; run is safer", Args: cli.AnyKeys,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: func(cmd *cobra.Command, keys []string) error {
			f.Keys = keys
			if len(keys) == 0 && !f.Limits.Any() {
				return cli.NoKey(cmd)
			}
			if !cmd.Flags().Changed("ttl") {
				return cli.Usagef("acquire needs --ttl D, longer than the work can take: nothing renews the locks")
			}
			if err := f.Check(cmd.Flags(), target); err != nil {
				return err
			}
			target.Guarded, target.Longest = true, f.TTL
			return f.WithCode(acquire(cmd.Context(), target, f, asJSON))
		},
	})
	f.AddFlags(cmd.Flags(), 0, "how long the locks are held if nobody renews them")
	f.Limits.Complete(cmd, scan.CompleteKeys(target))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: keys, token, until and fence")
	return cmd
}

func acquire(ctx context.Context, target *connect.Target, f *locking.Flags, asJSON bool) error {
	signals := job.Listen()
	ctx, end := signals.Ending(ctx)
	defer end()
	waiting, cancel := f.Context(ctx)
	defer cancel()
	s, err := f.Open(waiting, target)
	if err != nil {
		return job.Interrupted(ctx, err)
	}
	defer func() { f.Close(s, err) }()
	lock, err := obtain(waiting, s, f)
	if err == nil {
		if err = ctx.Err(); err == nil {
			err = printLock(target, lock, asJSON)
		}
		if err != nil { // nobody knows the token
			end() // the next signal is for giving the lock back
			giveBack(s, f, lock, signals)
		}
	}
	return job.Interrupted(ctx, err)
}

func obtain(ctx context.Context, s *connect.Session, f *locking.Flags) (*redislock.Lock, error) {
	if len(locking.OuterTokens(s.Env)) > 0 {
		statuses, err := s.Inspect(ctx, f.Keys)
		if err == nil {
			err = f.CheckNesting(s.Env, statuses, "")
		}
		if err != nil {
			return nil, err
		}
	}
	return f.Acquire(ctx, s, f.Keys, "")
}

func printLock(target *connect.Target, lock *redislock.Lock, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintln(target.Stdout, lock.Token())
		return err
	}
	return show.WriteJSON(target.Stdout, struct {
		Keys  []string  `json:"keys"`
		Token string    `json:"token"`
		Until time.Time `json:"until"`
		Fence int64     `json:"fence,omitempty"`
	}{lock.Keys(), lock.Token(), lock.Until().UTC(), lock.FenceToken()})
}

func giveBack(s *connect.Session, f *locking.Flags, lock *redislock.Lock, signals *job.Signals) {
	ctx, end := signals.Ending(context.Background())
	defer end()
	ctx, cancel := context.WithTimeout(ctx, min(f.TTL, locking.ReleaseLimit))
	defer cancel()
	if err := locking.GiveUp(ctx, s, lock, time.Now().Add(f.TTL), s.Complain); err != nil {
		s.Complain(err)
	}
}
