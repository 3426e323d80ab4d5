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
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const releaseHelp = `Releases the locks on KEYs. The first waiter in line can acquire them then.

--token releases them only if that token holds all of them, and nothing otherwise. Use
it for a holder that cannot release its locks any more, with its REDISLOCK_TOKEN.

--force releases them from any holder. At a terminal it shows the holders and asks
first; elsewhere, or to skip the question, add --yes. It leaves a KEY alone that has a
new holder by then. The old holder may not notice for up to a third of the ttl: end it
first if you can. --force removes any string; check that it is a lock.

The exit code is 0 if all KEYs were released, or with --force are free. It is 1 if that
token does not hold them, if a KEY has a new holder, or if the answer was no.`

const releaseExample = `  redislock release order:7 stock:42 --token q83vEjRWeJCrze8SNFZ4kA
  redislock release nightly --force
  redislock release nightly --force --yes   # in a script`

// New returns the command.
func New(target *connect.Target) *cobra.Command {
	var token string
	var force, yes bool
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
			case force && !yes && !term.Is(target.Stdin):
				return cli.Usagef("--force asks first, and stdin is not a terminal; add --yes if you are sure")
			case hasToken:
				return releaseByToken(cmd.Context(), target, keys, token)
			case force:
				return releaseByForce(cmd.Context(), target, keys, yes)
			}
			return cli.Usagef("say whose the locks are with --token T, or use --force to release them from any holder")
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "release the keys if the token `T` holds them")
	cmd.Flags().BoolVar(&force, "force", false, "release the keys from any holder")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func releaseByToken(ctx context.Context, target *connect.Target, keys []string, token string) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.Release(ctx, keys, token)
	switch {
	case errors.Is(err, redislock.ErrLockNotHeld):
		return notThatTokens(ctx, s, keys, token, err)
	case err != nil:
		return s.Refusal(err)
	}
	return nil
}

// notThatTokens says who holds the first key that the token does not hold.
func notThatTokens(ctx context.Context, s *connect.Session, keys []string, token string, why error) error {
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return err
	}
	for _, status := range statuses {
		switch {
		case status.TTL == 0:
			return fmt.Errorf("not released: %q is free", status.Key)
		case status.Token != token:
			return fmt.Errorf("not released: %q is held by %s", status.Key, show.Holder(status))
		}
	}
	return why
}

func releaseByForce(ctx context.Context, target *connect.Target, keys []string, yes bool) error {
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
	fmt.Fprint(target.Stderr, "Take it away? [y/N] ")
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
		return fmt.Errorf("not released: %q has changed hands, or was released, meanwhile", status.Key)
	case err != nil:
		return s.Refusal(err)
	}
	return nil
}
