// Package doctor is the command that says what about a Redis makes its locks unsafe. It knows a server by its answers alone.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/cmd/redislock/internal/term"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"

	"github.com/redislock/redislock/cmd/redislock/internal/show"

	"github.com/redislock/redislock/cmd/redislock/internal/connect"
)

const doctorHelp = `Says what about this Redis would make its locks unsafe, one line each: a status, what
was looked at, and what was found; where that is not well, why it matters and what to
do about it. On a Cluster every master is looked at.

  ok       as it should be
  warn     locks can be lost, or waiting costs more, under faults that do happen
  bad      locks are lost in normal operation, or cannot be had at all
  unknown  this user may not look, or this Redis does not tell

It takes and releases a lock on keys that begin with --key and end in random
characters; none is left behind. A user whose ACL has other keys only needs --key.

--json prints an object a line: status, check, server, found, why, do.

The exit code is 0 if all is ok or unknown, 1 with warnings, 2 if something is bad;
"redislock help exit-codes" has others.`

const doctorExample = `  redislock doctor
  redislock doctor --ttl 2s                       # is it fast enough for such locks?
  redislock doctor --key order:                   # as a user who may use order:* only
  redislock doctor --json | jq 'select(.status != "ok")'`

// Exit codes of doctor, as monitoring has them.
const (
	exitWarnings = 1
	exitBad      = 2
)

// verdict is how well something is, from best to worst.
type verdict int

const (
	isOK verdict = iota
	isUnknown
	isWarning
	isBad
)

// verdicts are their names and colours.
var verdicts = [...]struct{ name, colour string }{{"ok", term.Green}, {"unknown", term.Cyan}, {"warn", term.Yellow}, {"bad", term.Red}}

// finding is what doctor says about one thing.
type finding struct {
	verdict verdict
	check   string // what was looked at
	server  string // where; "" for the whole
	found   string
	why, do string // "" where all is well
}

// findingJSON is a finding in JSON.
type findingJSON struct {
	Status string `json:"status"`
	Check  string `json:"check"`
	Server string `json:"server,omitempty"`
	Found  string `json:"found"`
	Why    string `json:"why,omitempty"`
	Do     string `json:"do,omitempty"`
}

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	ttl  time.Duration
	key  string
	json bool
}

// New returns the command.
func New(target *connect.Target) *cobra.Command {
	var opt doctorOptions
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what about this Redis makes its locks unsafe",
		Long:    doctorHelp,
		Example: doctorExample,

		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.ttl < 10*time.Millisecond:
				return cli.Usagef("--ttl %v is too short; no lock of less than 10ms is of use", opt.ttl)
			case strings.ContainsAny(opt.key, "{}"):
				return cli.Usagef("--key %q has a brace; name how the keys begin without one", opt.key)
			}
			return cli.FlagsOnly(cmd, args)
		},
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return runDoctor(ctx, target, opt)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&opt.ttl, "ttl", 30*time.Second, "the `TTL` of your locks, against which the latency is judged")
	flags.StringVar(&opt.key, "key", "redislock:doctor:", "how the `KEY` begins on which locking is tried")
	flags.BoolVar(&opt.json, "json", false, "print JSON, one object a line")
	return cmd
}

// doctor looks at one Redis.
type doctor struct {
	opt    doctorOptions
	client redis.UniversalClient
	locks  *redislock.Client
}

func runDoctor(ctx context.Context, target *connect.Target, opt doctorOptions) error {
	client, err := target.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	d := &doctor{opt: opt, client: client, locks: redislock.New(client)}
	findings, err := d.examine(ctx)
	_ = d.locks.Close() // waits for what is under way, so that nothing is left behind
	if err != nil {
		return target.Explain(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := printFindings(target, findings, opt.json); err != nil {
		return err
	}
	worst := isOK
	for _, f := range findings {
		worst = max(worst, f.verdict)
	}
	switch worst {
	case isWarning:
		return cli.Exit(exitWarnings)
	case isBad:
		return cli.Exit(exitBad)
	}
	return nil
}

// examine asks every server, and then looks at what is true of all of them together.
func (d *doctor) examine(ctx context.Context) ([]finding, error) {
	servers, err := connect.Masters(ctx, d.client)
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		none := finding{check: "cluster"}.sayf(isBad, "no node serves a slot")
		return []finding{none.because("no key can be locked", "give its slots to nodes: redis-cli --cluster fix")}, nil
	}
	var all []finding
	for _, server := range servers {
		found := d.examineServer(ctx, server)
		for _, f := range found {
			if len(servers) > 1 {
				f.server = server.Options().Addr
			}
			all = append(all, f)
		}
	}
	return append(all, d.tryMessages(ctx)), nil
}

func (d *doctor) examineServer(ctx context.Context, server *redis.Client) []finding {
	f := learn(ctx, server)
	return []finding{
		f.version(), f.role(), f.eviction(), f.persistence(), f.replicas(), f.cluster(),
		d.clock(ctx, server), d.latency(ctx, server), d.tryLock(ctx, server),
	}
}

func printFindings(target *connect.Target, findings []finding, asJSON bool) error {
	if asJSON {
		for _, f := range findings {
			line := findingJSON{verdicts[f.verdict].name, f.check, f.server, f.found, f.why, f.do}
			if err := show.WriteJSON(target.Stdout, line); err != nil {
				return err
			}
		}
		return nil
	}
	servers := false
	for _, f := range findings {
		servers = servers || f.server != ""
	}
	t := &term.Table{Columns: []term.Column{{Name: "STATUS"}, {Name: "CHECK"}, {Name: "FOUND"}}}
	if servers {
		t.Columns = []term.Column{{Name: "STATUS"}, {Name: "SERVER"}, {Name: "CHECK"}, {Name: "FOUND"}}
	}
	for _, f := range findings {
		text := f.found
		if f.why != "" {
			text += ": " + f.why
		}
		if f.do != "" {
			text += "; " + f.do
		}
		row := []term.Cell{{Text: verdicts[f.verdict].name, Colour: verdicts[f.verdict].colour}}
		if servers {
			row = append(row, term.Cell{Text: f.server})
		}
		t.Rows = append(t.Rows, append(row, term.Cell{Text: f.check}, term.Cell{Text: term.Printable(text)}))
	}
	return t.Write(target.Stdout, target.Screen(), true)
}

// sayf fills in what was found.
func (f finding) sayf(v verdict, format string, args ...any) finding {
	f.verdict, f.found = v, fmt.Sprintf(format, args...)
	return f
}

// because adds why that matters, and what to do.
func (f finding) because(why, do string) finding {
	f.why, f.do = why, do
	return f
}
