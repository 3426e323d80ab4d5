// Package ttl is the command that shows how long a lock is still held.
package ttl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const ttlHelp = `Shows how long each KEY is still held if nobody renews it: a time like 12s or 1m03s,
"none" for a KEY without expiry, "free" for one that is not held. With several KEYs,
each line begins with the name of the KEY.

With --ms it prints whole milliseconds: -1 without expiry, 0 if free.

The exit code is 0 if every KEY is held, and 1 otherwise.`

const ttlExample = `  redislock ttl order:7
  redislock ttl --ms order:7 stock:42`

func New(target *connect.Target) *cobra.Command {
	var ms bool
	cmd := &cobra.Command{
		Use:               "ttl KEY...",
		Short:             "Show how long a lock is still held",
		Long:              ttlHelp,
		Example:           ttlExample,
		Args:              cli.KeysWanted,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return showTTL(cmd.Context(), target, keys, ms)
		},
	}
	cmd.Flags().BoolVar(&ms, "ms", false, "print whole milliseconds")
	return cmd
}

func showTTL(ctx context.Context, target *connect.Target, keys []string, ms bool) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{{}, {Right: true}}}
	if len(keys) == 1 {
		t.Columns = t.Columns[1:]
	}
	var result error
	for _, status := range statuses {
		left := show.TTL(status.TTL)
		switch {
		case ms && status.TTL < 0:
			left = "-1"
		case ms:
			left = fmt.Sprint(status.TTL.Milliseconds())
		case status.TTL == 0:
			left = "free"
		}
		if status.TTL == 0 {
			result = cli.Exit(cli.No)
		}
		if len(keys) == 1 {
			t.Add(left)
		} else {
			t.Add(term.Escape(status.Key), left)
		}
	}
	if err := t.Write(target.Stdout, term.Screen{}, false); err != nil {
		return err
	}
	return result
}
