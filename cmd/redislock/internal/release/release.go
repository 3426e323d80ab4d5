// Package release is the command that releases locks by their token, or by force.
package release

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

//go:embed help.txt
var help string

// New returns the command "release".
func New(target *connect.Target) *cobra.Command {
	var token string
	var force, lax, yes bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "release KEY... (--token T | --force)", Short: "Release a lock by its token, or one that is stuck",
		Args: cli.KeysWanted, ValidArgsFunction: scan.CompleteKeys(target),
		RunE: cli.UntilSignal(func(ctx context.Context, cmd *cobra.Command, keys []string) error {
			target.Guarded = true
			hasToken := cmd.Flags().Changed("token")
			switch {
			case hasToken && force:
				return cli.Usagef("--token and --force exclude each other")
			case hasToken && token == "":
				return cli.Usagef("--token is empty; is a variable unset?")
			case yes && !force:
				return cli.Usagef("--yes is for --force")
			case lax && !force:
				return cli.Usagef("--any is for --force")
			case force && !yes && !term.Is(target.Stdin):
				return cli.Usagef("--force asks first, and stdin is not a terminal; add --yes if you are sure")
			case force:
				return releaseByForce(ctx, target, keys, lax, yes)
			case hasToken:
				return releaseByToken(ctx, target, keys, token)
			}
			return cli.Usagef("name the holder with --token T, or release from any holder with --force")
		}),
	})
	cmd.Flags().StringVar(&token, "token", "", "release the keys if the token `T` holds them")
	cmd.Flags().BoolVar(&force, "force", false, "release the keys from any holder")
	cmd.Flags().BoolVar(&lax, "any", false, "with --force, also delete strings that do not look like a lock")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

var patience = locking.ReleasePatience()

func releaseByToken(ctx context.Context, target *connect.Target, keys []string, token string) (err error) {
	ctx, cancel := patience.Context(ctx)
	defer cancel()
	s, err := patience.Open(ctx, target)
	if err != nil && cli.CodeOf(err) == cli.Unavailable {
		return cli.Unavailablef("%w", &locking.UnreleasedError{Keys: keys, Err: err})
	} else if err != nil {
		return err
	}
	defer func() { closeAfter(s, err) }()
	err = locking.ExplainRelease(s, locking.Release(ctx, s, keys, token, s.Complain))
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return locking.NotHeld(ctx, s, "not released", keys, token, err)
	}
	return err
}

// closeAfter ends a session. If keys could not be released, it does not wait until the library has tried that once more.
func closeAfter(s *connect.Session, err error) {
	if err == nil || cli.CodeOf(err) != cli.Unavailable {
		s.Close()
	}
}

func releaseByForce(ctx context.Context, target *connect.Target, keys []string, lax, yes bool) (err error) {
	opening, cancel := patience.Context(ctx)
	defer cancel()
	s, err := patience.Open(opening, target)
	if err != nil {
		return err
	}
	defer func() { closeAfter(s, err) }()
	force, err := locking.PrepareForce(opening, s, keys, lax)
	if force != nil {
		for _, line := range force.Done {
			fmt.Fprintln(target.Stdout, line)
		}
	}
	if err != nil || len(force.Held) == 0 {
		return err
	}
	if !yes && !agreed(ctx, target, force) {
		return cmp.Or(context.Cause(ctx), locking.ErrNothingReleased)
	}
	releasing, cancel := patience.Context(ctx)
	defer cancel()
	var failed error
	for i := range force.Held {
		done, err := force.Release(releasing, i)
		if err != nil {
			failed = err
			target.Complain(err)
			continue
		}
		fmt.Fprintln(target.Stdout, done)
	}
	if failed != nil {
		return cli.Exit(cli.CodeOf(failed))
	}
	return nil
}

func agreed(ctx context.Context, target *connect.Target, force *locking.Force) bool {
	for _, line := range force.Facts() {
		fmt.Fprintln(target.Stderr, line)
	}
	return target.Agrees(ctx, locking.ForceQuestion)
}
