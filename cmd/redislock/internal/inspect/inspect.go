// Package inspect is the command that shows who holds a lock, since when, and who waits for it.
package inspect

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/words"
)

//go:embed help.txt
var help string

// New returns the command "inspect".
func New(target *connect.Target) *cobra.Command {
	var asJSON bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "inspect KEY...", Short: "Show who holds a lock, since when, and who waits for it",
		Args: cli.KeysWanted,
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, keys []string) error {
			return inspect(ctx, target, keys, asJSON)
		}),
		ValidArgsFunction: scan.CompleteKeys(target),
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

func inspect(ctx context.Context, target *connect.Target, keys []string, asJSON bool) error {
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	found, err := scan.Inspect(ctx, s, keys)
	if err != nil {
		return err
	}
	var result error
	for i, d := range found {
		if d.Status.TTL == 0 {
			result = cli.Exit(cli.No)
		}
		if asJSON {
			err = show.WriteJSON(target.Stdout, inspectedJSON(d.Status, d.Line))
		} else {
			if i > 0 {
				fmt.Fprintln(target.Stdout)
			}
			out := target.Screen()
			fmt.Fprintln(target.Stdout, d.Name(out))
			err = d.Table().Write(target.Stdout, out, false)
		}
		if err != nil {
			return err
		}
	}
	return result
}

func inspectedJSON(s redislock.Status, line []redislock.Waiter) any {
	type waiter struct {
		Token    string    `json:"token"`
		Metadata string    `json:"metadata"`
		Process  string    `json:"process"`
		Since    time.Time `json:"since"`
		Late     bool      `json:"late"`
	}
	type process struct {
		Process  string          `json:"process"`
		Metadata string          `json:"metadata"`
		Fields   json.RawMessage `json:"fields,omitempty"` // the metadata, if it is an object
		Waiters  int             `json:"waiters"`
		Late     int             `json:"late"`
		Since    time.Time       `json:"since"`
	}
	inspected := struct {
		show.StatusJSON

		Processes []process `json:"processes,omitempty"`
		Line      []waiter  `json:"line,omitempty"`
	}{StatusJSON: show.JSONOf(survey.Status{Status: s})}
	for _, p := range show.ByProcess(line) {
		found := process{Process: p.Name, Metadata: p.Metadata, Waiters: p.Waiters, Late: p.Late, Since: p.Since.UTC()}
		if _, ok := words.Fields(p.Metadata); ok {
			found.Fields = json.RawMessage(p.Metadata)
		}
		inspected.Processes = append(inspected.Processes, found)
	}
	for _, w := range line {
		inspected.Line = append(inspected.Line, waiter{w.Token, w.Metadata, w.Process, w.Since.UTC(), w.Late})
	}
	return inspected
}
