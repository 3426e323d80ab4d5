// Package renew is the command that extends the time for which a script holds its locks.
package renew

import (
	"context"
	_ "embed"
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

// answerLimit bounds the call. A renewal that comes later is of no use.
const answerLimit = 5 * time.Second

// New returns the command "renew".
func New(target *connect.Target) *cobra.Command {
	var token string
	var ttl time.Duration
	var long, asJSON bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "renew KEY... --token T --ttl D", Short: "Extend the time of a lock that acquire took",
		Args: cli.KeysWanted, ValidArgsFunction: scan.CompleteKeys(target),
		RunE: cli.UntilSignal(func(ctx context.Context, cmd *cobra.Command, keys []string) error {
			switch {
			case token == "" && cmd.Flags().Changed("token"):
				return cli.Usagef("--token is empty; is a variable unset?")
			case token == "":
				return cli.Usagef("say which token holds the locks with --token T")
			case !cmd.Flags().Changed("ttl"):
				return cli.Usagef("say for how long with --ttl D")
			}
			if err := locking.CheckTTL(ttl, long); err != nil {
				return err
			}
			target.Guarded, target.Longest = true, ttl
			return renew(ctx, target, keys, token, ttl, asJSON)
		}),
	})
	flags := cmd.Flags()
	flags.StringVar(&token, "token", "", "renew the locks if the token `T` holds them all")
	cli.DurationVar(flags, &ttl, "ttl", "", 0, "how long the locks are held from now on, like 30, 90s, 10m")
	flags.BoolVar(&long, "long", false, "allow a --ttl above 24h")
	flags.BoolVar(&asJSON, "json", false, "print JSON: keys and until")
	return cmd
}

func renew(ctx context.Context, target *connect.Target, keys []string, token string, ttl time.Duration, asJSON bool) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var lock *redislock.Lock
	err = locking.Insist(limited, func(ctx context.Context) (err error) {
		if lock, err = s.Locks.Attach(ctx, keys, token); err != nil {
			return err
		}
		return lock.Refresh(ctx, ttl, nil)
	}, func(why error) {
		s.Complain(fmt.Errorf("still trying to renew the locks: %w", locking.Plainly(s, why)))
	})
	switch {
	case err != nil:
		return locking.NotHeld(ctx, s, "not renewed", keys, token, err)
	case !asJSON:
		return nil
	}
	return show.WriteJSON(target.Stdout, struct {
		Keys  []string  `json:"keys"`
		Until time.Time `json:"until"`
	}{lock.Keys(), lock.Until().UTC()})
}
