// Package ttl is the command that shows how long a lock is still held.
package ttl

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

//go:embed help.txt
var help string

// New returns the command "ttl".
func New(target *connect.Target) *cobra.Command {
	var ms bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "ttl KEY...", Short: "Show how long a lock is still held", Args: cli.KeysWanted,
		ValidArgsFunction: scan.CompleteKeys(target),
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, keys []string) error {
			return showTTL(ctx, target, keys, ms)
		}),
	})
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
		row := []string{words.Escape(status.Key), left}
		t.Add(row[len(row)-len(t.Columns):]...)
	}
	return cmp.Or(t.Write(target.Stdout, term.Screen{}, false), result)
}
