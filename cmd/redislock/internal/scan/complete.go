package scan

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// CompleteKeys offers a shell the keys that are held, with their holders. It offers nothing without a Redis that answers.
func CompleteKeys(target *connect.Target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, chosen []string, beginning string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second) // somebody has pressed Tab
		defer cancel()
		session, err := target.Open(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer session.Close()
		var keys []cobra.Completion
		s := Scan{Client: session.Client, Locks: session.Locks, Pattern: escapePattern.Replace(beginning) + "*"}
		s.Found = func(s show.Status) error {
			if term.Escape(s.Key) != s.Key || strings.ContainsAny(s.Key, " \"'`$!\\&;|<>()*?[]#~") || slices.Contains(chosen, s.Key) {
				return nil // a shell would read it as something else
			}
			if keys = append(keys, cobra.CompletionWithDesc(s.Key, show.OwnerOf(s.Metadata).Who)); len(keys) == 100 {
				return ErrEnough
			}
			return nil
		}
		_ = s.Run(ctx) // what was found by then is better than nothing
		slices.Sort(keys)
		return slices.Compact(keys), cobra.ShellCompDirectiveNoFileComp
	}
}

var escapePattern = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
