// Package renew is the command that extends the time for which a script holds its locks.
package renew

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/claim"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

const renewHelp = `Sets the time to live of the locks on KEYs to --ttl from now on, if the token holds all of
them, and changes nothing otherwise. It is for locks of "redislock acquire"; "redislock
run" renews its own.

While Redis answers that it cannot renew them now, as during a failover, renew tries again
for up to 5 s. If renew fails, stop the work: the locks are lost, or may be before renew
can be tried again. The exit code is 0 if all KEYs were renewed, and 1 if that token does
not hold them all; see "redislock help exit-codes" for others.

--json prints one object: keys and until, up to when the locks are certainly held, in
RFC 3339.`

const renewExample = `  redislock renew nightly --token "$token" --ttl 10m || exit
  redislock renew order:7 stock:42 --token "$token" --ttl 1m --json | jq -r .until`

// answerLimit bounds the call. A renewal that comes later is of no use.
const answerLimit = 5 * time.Second

func New(target *connect.Target) *cobra.Command {
	var token string
	var ttl time.Duration
	var long, asJSON bool
	cmd := &cobra.Command{
		Use:               "renew KEY... --token T --ttl D",
		Short:             "Extend the time of a lock that acquire took",
		Long:              renewHelp,
		Example:           renewExample,
		Args:              cli.KeysWanted,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: func(cmd *cobra.Command, keys []string) error {
			switch {
			case token == "" && cmd.Flags().Changed("token"):
				return cli.Usagef("--token is empty; is a variable unset?")
			case token == "":
				return cli.Usagef("say which token holds the locks with --token T")
			case !cmd.Flags().Changed("ttl"):
				return cli.Usagef("say for how long with --ttl D")
			}
			if err := claim.CheckTTL(ttl, long); err != nil {
				return err
			}
			return renew(cmd.Context(), target, keys, token, ttl, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&token, "token", "", "renew the locks if the token `T` holds them all")
	cli.DurationVar(flags, &ttl, "ttl", 0, "how long the locks are held from now on, like 30, 90s, 10m")
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
	err = claim.Insist(limited, func(ctx context.Context) (err error) {
		if lock, err = s.Locks.Attach(ctx, keys, token); err != nil {
			return err
		}
		return lock.Refresh(ctx, ttl, nil)
	}, func(why error) { s.Complain(fmt.Errorf("still trying to renew the locks: %w", claim.Plainly(s, why))) })
	switch {
	case err != nil:
		return claim.NotHeld(ctx, s, "not renewed", keys, token, err)
	case !asJSON:
		return nil
	}
	return show.WriteJSON(target.Stdout, struct {
		Keys  []string  `json:"keys"`
		Until time.Time `json:"until"`
	}{lock.Keys(), lock.Until().UTC()})
}
