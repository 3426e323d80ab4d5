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
	"github.com/redislock/redislock/cmd/redislock/internal/term"
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
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return err
	}
	now, err := s.Client.Time(ctx).Result()
	if err != nil { // an ACL may forbid TIME
		now = time.Now()
	}
	var result error
	for i, status := range statuses {
		status = show.Read(status)
		if status.TTL == 0 {
			result = cli.Exit(cli.No)
		}
		var line []redislock.Waiter
		if status.Waiters > 0 {
			if line, err = s.Line(ctx, status.Key); err != nil {
				return err
			}
		}
		if asJSON {
			err = show.WriteJSON(target.Stdout, inspectedJSON(status, line))
		} else {
			if i > 0 {
				fmt.Fprintln(target.Stdout)
			}
			err = showStatus(target, status, line, now)
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
	}{StatusJSON: show.Status{Status: s}.JSON()}
	for _, p := range show.ByProcess(line) {
		found := process{Process: p.Name, Metadata: p.Metadata, Waiters: p.Waiters, Late: p.Late, Since: p.Since.UTC()}
		if _, ok := show.Fields(p.Metadata); ok {
			found.Fields = json.RawMessage(p.Metadata)
		}
		inspected.Processes = append(inspected.Processes, found)
	}
	for _, w := range line {
		inspected.Line = append(inspected.Line, waiter{w.Token, w.Metadata, w.Process, w.Since.UTC(), w.Late})
	}
	return inspected
}

// sayMetadata says what the one holder of a lock has left.
func sayMetadata(say func(what, text string), metadata string) {
	if fields, ok := show.Fields(metadata); ok {
		for _, f := range fields {
			say(term.Escape(f.Name), term.Escape(f.Value))
		}
	} else if metadata != "" {
		say("metadata", term.Escape(metadata))
	}
	if since := show.OwnerOf(metadata).Since; !since.IsZero() {
		say("held", "for "+show.Duration(max(time.Since(since), 0)))
	}
}

// sayHolders says who holds a shared key.
func sayHolders(say func(what, text string), s redislock.Status) {
	say("shared", show.Count(s))
	for _, h := range s.Holders {
		say("holder", show.Sharer(h))
	}
	if more := s.HolderCount - len(s.Holders); more > 0 {
		say("", fmt.Sprintf("… and %d more", more))
	}
}

// maxProcesses is how many waiting processes are shown to people. JSON has them all.
const maxProcesses = 10

// showStatus prints what is known of a key and its line, below its name. now is the time of the server.
func showStatus(target *connect.Target, s redislock.Status, line []redislock.Waiter, now time.Time) error {
	out := target.Screen()
	fmt.Fprintln(target.Stdout, out.Paint(term.Bold, term.Escape(s.Key)))
	t := &term.Table{Columns: []term.Column{{}, {}, {Fit: term.Wrap}}} // the first is the margin
	say := func(what, text string) { t.Add("", what, text) }
	switch {
	case show.Split(s) != "":
		say("split", show.Split(s))
	case s.TTL == 0 && s.Waiters > 0:
		say("free", "for the first in line")
	case s.TTL == 0:
		say("free", "")
	case s.HolderCount > 0:
		sayHolders(say, s)
	case s.Token == "":
		say("taken", "by something that is not a lock")
		sayMetadata(say, s.Metadata)
	default:
		say("token", term.Escape(s.Token))
		sayMetadata(say, s.Metadata)
	}
	if s.TTL != 0 {
		say("left", show.TTL(s.TTL))
	}
	what := "servers"
	for _, place := range s.Places {
		held := "free"
		switch {
		case place.TTL == 0:
		case place.Token == "":
			held = "taken by something that is not a lock"
		default:
			held = term.Escape(place.Token) + ", " + show.TTL(place.TTL) + " left"
		}
		say(what, place.Server+": "+held)
		what = ""
	}
	waiting := show.ByProcess(line)
	switch {
	case s.Waiters > 0:
		count := fmt.Sprint(s.Waiters)
		if len(waiting) > 1 {
			count += fmt.Sprintf(" from %d processes", len(waiting))
		}
		say("in line", count+", the first for "+show.Duration(max(now.Sub(s.WaitingSince), 0)))
	case s.TTL != 0:
		say("in line", "nobody")
	}
	for i, p := range waiting {
		if i == maxProcesses {
			say("", fmt.Sprintf("… and %d more", len(waiting)-i))
			break
		}
		say("", p.String()+": "+p.Waiting(now))
	}
	return t.Write(target.Stdout, out, false)
}
