// Package release is the command that releases locks by their token, or by force.
package release

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/claim"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/keyname"
)

const releaseHelp = `Releases the locks on KEYs. The first waiter in line can acquire them then.

--token releases them only if that token holds all of them, and nothing otherwise. Use it
for a lock of "redislock acquire", or for one whose holder cannot release it any more: a
run gives its token to its command as REDISLOCK_TOKEN.

--force releases them from any holder. At a terminal it shows the holders and asks
first; elsewhere, or to skip the question, add --yes. If a KEY has a new holder by
then, it leaves that KEY alone. The old holder may not notice for up to a third of the
ttl: end it first if you can.

--force refuses strings that do not look like a lock: those without expiry, and those that
do not begin with a random token. --any releases them as well, for locks with custom
tokens: be sure that they are locks, because it deletes the keys.

The exit code is 0 if all KEYs were released, or with --force are free. It is 1 if that
token does not hold them, if a KEY is not a lock or has a new holder, or if the answer
was no.`

const releaseExample = `  redislock release order:7 stock:42 --token q83vEjRWeJCrze8SNFZ4kA
  redislock release nightly --force
  redislock release nightly --force --yes   # in a script`

// New returns the command.
func New(target *connect.Target) *cobra.Command {
	var token string
	var force, lax, yes bool
	cmd := &cobra.Command{
		Use:               "release KEY... (--token T | --force)",
		Short:             "Release a lock by its token, or one that is stuck",
		Long:              releaseHelp,
		Example:           releaseExample,
		Args:              cli.KeysWanted,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: func(cmd *cobra.Command, keys []string) error {
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
			case hasToken:
				return releaseByToken(cmd.Context(), target, keys, token)
			case force:
				return releaseByForce(cmd.Context(), target, keys, lax, yes)
			}
			return cli.Usagef("name the holder with --token T, or release from any holder with --force")
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "release the keys if the token `T` holds them")
	cmd.Flags().BoolVar(&force, "force", false, "release the keys from any holder")
	cmd.Flags().BoolVar(&lax, "any", false, "with --force, also delete strings that do not look like a lock")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func releaseByToken(ctx context.Context, target *connect.Target, keys []string, token string) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Release(ctx, keys, token); err != nil {
		return claim.NotHeld(ctx, s, "not released", keys, token, err)
	}
	return nil
}

func releaseByForce(ctx context.Context, target *connect.Target, keys []string, lax, yes bool) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	statuses, err := s.Inspect(ctx, withoutRepeats(keys))
	if err != nil {
		return err
	}
	var held []redislock.Status
	for _, status := range statuses {
		switch {
		case status.TTL == 0:
			fmt.Fprintf(target.Stdout, "%s is free\n", term.Escape(status.Key))
		case status.Token == "":
			return fmt.Errorf("nothing was released: %q holds something that is not a lock; look at it with redis-cli", status.Key)
		case !lax && status.TTL < 0:
			return fmt.Errorf("nothing was released: %q has no expiry, so it does not look like a lock; "+
				"add --any to delete it nevertheless", status.Key)
		case !lax && !keyname.BeginsLikeToken(status.Token):
			return fmt.Errorf("nothing was released: %q does not begin with a random token, so it does not look like a lock; "+
				"add --any to delete it nevertheless", status.Key)
		default:
			held = append(held, status)
		}
	}
	if len(held) == 0 {
		return nil
	}
	if !yes && !agreed(target, held) {
		return errors.New("nothing was released")
	}
	var failed error
	for _, status := range held {
		if err := takeAway(ctx, s, status); err != nil {
			failed = err
			target.Complain(err)
			continue
		}
		fmt.Fprintf(target.Stdout, "released %s, held by %s\n", term.Escape(status.Key), show.Holder(status))
	}
	if failed != nil {
		return cli.Exit(cli.CodeOf(failed))
	}
	return nil
}

// withoutRepeats returns each key once: a lock cannot be released twice.
func withoutRepeats(keys []string) []string {
	var once []string
	for _, key := range keys {
		if !slices.Contains(once, key) {
			once = append(once, key)
		}
	}
	return once
}

// agreed asks at the terminal.
func agreed(target *connect.Target, held []redislock.Status) bool {
	for _, status := range held {
		fmt.Fprintf(target.Stderr, "%s is held by %s\n", term.Escape(status.Key), show.Holder(status))
	}
	fmt.Fprint(target.Stderr, "Release it nevertheless? [y/N] ")
	answer, _ := bufio.NewReader(target.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}

// takeAway releases a key if the holder is still the same.
func takeAway(ctx context.Context, s *connect.Session, status redislock.Status) error {
	err := s.Release(ctx, []string{status.Key}, status.Token)
	switch {
	case errors.Is(err, redislock.ErrLockNotHeld):
		return fmt.Errorf("not released: %q has a new holder, or was released meanwhile", status.Key)
	case err != nil:
		return s.Refusal(err)
	}
	return nil
}
