// Package release is the command that releases locks by their token, or by force.
package release

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/keyname"
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

// patience is how long the command tries. A run tries for longer, because nobody can release its locks again.
var patience = locking.Patience{Limit: 10 * time.Second, Limited: true, Verbose: true}

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
	err = giveUp(ctx, s, keys, token)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return locking.NotHeld(ctx, s, "not released", keys, token, err)
	}
	return err
}

// giveUp releases keys by their token. Its errors are ready to be printed, except those that match redislock.ErrLockNotHeld.
func giveUp(ctx context.Context, s *connect.Session, keys []string, token string) error {
	return explain(s, locking.Release(ctx, s, keys, token, s.Complain))
}

func explain(s *connect.Session, err error) error {
	if err == nil || errors.Is(err, redislock.ErrLockNotHeld) {
		return err
	}
	if _, stays := errors.AsType[*locking.UnreleasedError](err); stays {
		return cli.Unavailablef("%w", err)
	}
	return s.Refusal(err)
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
	var statuses []redislock.Status
	err = locking.Insist(opening, func(ctx context.Context) (err error) {
		statuses, err = s.Inspect(ctx, withoutRepeats(keys))
		return err
	}, func(why error) { s.Complain(fmt.Errorf("still trying: %w", why)) })
	if err != nil {
		return patience.Unreachable(opening, target, err)
	}
	statuses, err = withoutEmpty(opening, s, statuses)
	if err != nil {
		return s.Refusal(err)
	}
	held, err := toRelease(target, statuses, locking.Notice(opening, s, keys) > 0, lax)
	if err != nil || len(held) == 0 {
		return err
	}
	holders, err := holdersOf(opening, s, held) // from nobody who comes later
	if err != nil {
		return err
	}
	if !yes && !agreed(ctx, target, held) {
		return cmp.Or(context.Cause(ctx), errors.New("nothing was released"))
	}
	releasing, cancel := patience.Context(ctx)
	defer cancel()
	var failed error
	for i, status := range held {
		if err := releaseFrom(releasing, s, status, holders[i]); err != nil {
			failed = err
			target.Complain(err)
		}
	}
	if failed != nil {
		return cli.Exit(cli.CodeOf(failed))
	}
	return nil
}

// withoutEmpty frees those keys that are shared, and that nobody holds, and returns the others.
func withoutEmpty(ctx context.Context, s *connect.Session, all []redislock.Status) (rest []redislock.Status, err error) {
	for _, status := range all {
		freed, unheld := false, status.Token == "" && status.TTL != 0 && status.HolderCount == 0
		if unheld && keyname.HouseOf(status.Key) != "" && !s.IsQuorum() {
			if freed, err = locking.Empty(ctx, s, status.Key); err != nil {
				return nil, err
			}
		}
		if !freed {
			rest = append(rest, status)
			continue
		}
		fmt.Fprintf(s.Stdout, "released %s, which nobody held\n", term.Escape(status.Key))
	}
	return rest, nil
}

// toRelease returns those keys that are held, or whose holder may put them back while the guard is closed. It returns an
// error if one of them does not look like a lock.
func toRelease(
	target *connect.Target, statuses []redislock.Status, closed, lax bool,
) (held []redislock.Status, err error) {
	for _, status := range statuses {
		switch {
		case status.TTL == 0 && !closed:
			fmt.Fprintf(target.Stdout, "%s is free\n", term.Escape(status.Key))
			continue
		case status.TTL == 0, status.HolderCount > 0: // no other string is like that of a shared key
		case status.Token == "":
			return nil, fmt.Errorf("nothing was released: %q holds something that is not a lock; look at it with redis-cli",
				status.Key)
		case !lax && status.TTL < 0:
			return nil, fmt.Errorf("nothing was released: %q has no expiry, so it does not look like a lock; "+
				"add --any to delete it nevertheless", status.Key)
		case !lax && !keyname.BeginsLikeToken(status.Token):
			return nil, fmt.Errorf("nothing was released: %q does not begin with a random token, so it does not look like a lock; "+
				"add --any to delete it nevertheless", status.Key)
		}
		held = append(held, status)
	}
	return held, nil
}

// holdersOf returns the tokens that hold each key.
func holdersOf(ctx context.Context, s *connect.Session, held []redislock.Status) (tokens [][]string, err error) {
	tokens = make([][]string, len(held))
	for i, status := range held {
		if tokens[i] = []string{status.Token}; status.HolderCount > 0 {
			if tokens[i], err = locking.Sharers(ctx, s, status.Key); err != nil {
				return nil, s.Refusal(err)
			}
		}
	}
	return tokens, nil
}

// releaseFrom releases a key from these holders, and says so. Its error can be printed.
func releaseFrom(ctx context.Context, s *connect.Session, status redislock.Status, tokens []string) error {
	key, released := term.Escape(status.Key), 0
	for _, token := range tokens {
		switch taken, err := locking.ReleaseByForce(ctx, s, status.Key, token, s.Complain); {
		case errors.Is(err, redislock.ErrLockNotHeld): // its hold has ended meanwhile
		case err != nil:
			return explain(s, err)
		case taken > 0: // from all of them
			fmt.Fprintf(s.Stdout, "took %s until the guard opens in %s; it was %s\n", key, show.Duration(taken), holder(status))
			return nil
		default:
			released++
		}
	}
	switch {
	case released == 0:
		return fmt.Errorf("not released: %q has a new holder, or was released meanwhile", status.Key)
	case status.HolderCount > 0:
		fmt.Fprintf(s.Stdout, "released %s from %s, %s\n", key, plural(released, "holder"), holder(status))
	default:
		fmt.Fprintf(s.Stdout, "released %s, %s\n", key, holder(status))
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// withoutRepeats returns each key once: a lock cannot be released twice.
func withoutRepeats(keys []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) (again bool) {
		again, seen[key] = seen[key], true
		return again
	})
}

func agreed(ctx context.Context, target *connect.Target, held []redislock.Status) bool {
	for _, status := range held {
		fmt.Fprintf(target.Stderr, "%s is %s\n", term.Escape(status.Key), holder(status))
	}
	return target.Agrees(ctx, "Release it nevertheless?")
}

func holder(status redislock.Status) string {
	if status.TTL == 0 { // while the guard is closed
		return "free, but Redis may have forgotten its holder, who would put it back"
	}
	return "held by " + show.Holder(status)
}
