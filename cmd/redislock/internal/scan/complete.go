// Package scan looks at keys of a Redis for the commands: all that is known of some, the names of all, and what is wrong
// with those that are shared.
package scan

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/words"
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
		s := survey.Scan{Redis: session.Survey(), Pattern: escapePattern.Replace(beginning) + "*"}
		s.Found = func(s survey.Status) error {
			unsafe := words.Escape(s.Key) != s.Key || strings.ContainsAny(s.Key, " \"'`$!\\&;|<>()*?[]#~")
			if unsafe || slices.Contains(chosen, s.Key) {
				return nil // a shell would read it as something else
			}
			holder := cmp.Or(show.Count(s.Status), show.OwnerOf(s.Metadata).Who)
			if keys = append(keys, cobra.CompletionWithDesc(s.Key, holder)); len(keys) == 100 {
				return survey.ErrEnough
			}
			return nil
		}
		_ = s.Run(ctx) // what was found by then is better than nothing
		slices.Sort(keys)
		return slices.Compact(keys), cobra.ShellCompDirectiveNoFileComp
	}
}

var escapePattern = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
