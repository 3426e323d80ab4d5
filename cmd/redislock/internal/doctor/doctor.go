// Package doctor is the command that says what about a Redis makes its locks unsafe. It knows a server by its answers alone.
package doctor

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

//go:embed help.txt
var help string

// verdict is how well something is, from best to worst.
type verdict int

const (
	isOK verdict = iota
	isUnknown
	isWarning
	isBad
)

// verdicts are their names and colours.
var verdicts = [...]struct{ name, colour string }{
	{"ok", term.Green}, {"unknown", term.Cyan}, {"warn", term.Yellow}, {"bad", term.Red},
}

func (v verdict) MarshalText() ([]byte, error) { return []byte(verdicts[v].name), nil }

// finding is the result of one check, and an object of doctor --json.
type finding struct {
	Status verdict `json:"status"`
	Check  string  `json:"check"`
	Server string  `json:"server,omitempty"` // "" for the whole
	Found  string  `json:"found"`
	Why    string  `json:"why,omitempty"` // why it matters, and what to do; "" if all is well
	Do     string  `json:"do,omitempty"`
}

func ok(format string, args ...any) finding { return finding{Found: fmt.Sprintf(format, args...)} }

// says returns a finding: what was found, why it matters, and what to do.
func (v verdict) says(found, why, do string) finding {
	return finding{Status: v, Found: found, Why: why, Do: do}
}

func (f finding) as(check string) finding {
	f.Check = check
	return f
}

type doctorOptions struct {
	ttl  time.Duration
	key  string
	json bool
}

// New returns the command "doctor".
func New(target *connect.Target) *cobra.Command {
	var opt doctorOptions
	cmd := cli.Describe(help, &cobra.Command{
		Use: "doctor", Short: "Check whether this Redis is safe for locks",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.ttl < locking.LeastTTL:
				return cli.Usagef("--ttl %v is under %v", opt.ttl, locking.LeastTTL)
			case strings.ContainsAny(opt.key, "{}"):
				return cli.Usagef("--key %q contains a brace; choose a prefix without one", opt.key)
			}
			return cli.FlagsOnly(cmd, args)
		},
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return runDoctor(ctx, target, opt)
		}),
	})
	flags := cmd.Flags()
	cli.DurationVar(flags, &opt.ttl, "ttl", "", 30*time.Second, "the `TTL` of your locks, with which the latency is compared")
	flags.StringVar(&opt.key, "key", "redislock:doctor:", "prefix `KEY` of the keys on which locking is tried")
	flags.BoolVar(&opt.json, "json", false, "print JSON, one object a line")
	return cmd
}

type doctor struct {
	opt    doctorOptions
	target *connect.Target
	client redis.UniversalClient
	locks  *redislock.Client
	user   string // of the server
}

func runDoctor(ctx context.Context, target *connect.Target, opt doctorOptions) error {
	target.AskAll = true
	s, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	d := &doctor{opt: opt, target: target, client: s.Client, locks: s.Locks}
	findings, err := d.examine(ctx)
	_ = d.locks.Close() // waits for calls under way, so that no key is left behind
	if err != nil {
		return target.Explain(err)
	}
	if err = ctx.Err(); err == nil {
		err = printFindings(target, findings, opt.json)
	}
	if err != nil {
		return err
	}
	worst := slices.MaxFunc(findings, func(a, b finding) int { return cmp.Compare(a.Status, b.Status) }).Status
	return map[verdict]error{isWarning: cli.Exit(1), isBad: cli.Exit(2)}[worst] // as monitoring systems expect
}

// examine checks every server, and then what concerns all of them together.
func (d *doctor) examine(ctx context.Context) ([]finding, error) {
	if q, ok := d.client.(*connect.Quorum); ok {
		return d.examineQuorum(ctx, q), nil
	}
	servers, err := connect.Masters(ctx, d.client)
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		none := isBad.says("no node serves a slot", "no key can be locked", "assign its slots to nodes: redis-cli --cluster fix")
		return []finding{none.as("cluster")}, nil
	}
	var all []finding
	for _, server := range servers {
		found := d.examineServer(ctx, server, learn(ctx, server))
		for _, f := range append(found, d.tryLock(ctx, server)) {
			if len(servers) > 1 {
				f.Server = server.Options().Addr
			}
			all = append(all, f)
		}
	}
	return append(all, d.tryMessages(ctx)), nil
}

// examineServer checks what is true of a server by itself.
func (d *doctor) examineServer(ctx context.Context, server *redis.Client, f facts) []finding {
	d.user = cmp.Or(server.Options().Username, "default")
	found := []finding{
		f.version().as("version"), f.role().as("role"), f.eviction().as("eviction"), f.persistence().as("persistence"),
		f.replicas().as("replicas"), f.cluster().as("cluster"), d.clock(ctx, server).as("clock"),
	}
	found = append(append(found, d.replicaClocks(ctx, server, f)...), d.latency(ctx, server).as("latency"),
		d.houses(ctx, server).as("shared keys"))
	if _, isCluster := d.client.(*redis.ClusterClient); isCluster { // it has no guard
		return found
	}
	return append(found, d.guard(ctx, server, f)...)
}

func printFindings(target *connect.Target, findings []finding, asJSON bool) error {
	if asJSON {
		for _, f := range findings {
			if err := show.WriteJSON(target.Stdout, f); err != nil {
				return err
			}
		}
		return nil
	}
	t := &term.Table{Columns: []term.Column{
		{Name: "STATUS"}, {Name: "SERVER"}, {Name: "CHECK"}, {Name: "FOUND", Fit: term.Wrap},
	}}
	for _, f := range findings {
		text := f.Found
		if f.Why != "" {
			text += ": " + f.Why
		}
		t.Add(verdicts[f.Status].name, f.Server, f.Check, words.Printable(text))
		t.Rows[len(t.Rows)-1][0].Colour = verdicts[f.Status].colour
		if f.Do != "" {
			t.Add("", "", "", "→ "+words.Printable(f.Do))
		}
	}
	if !slices.ContainsFunc(findings, func(f finding) bool { return f.Server != "" }) {
		t.Columns = slices.Delete(t.Columns, 1, 2)
		for i := range t.Rows {
			t.Rows[i] = slices.Delete(t.Rows[i], 1, 2)
		}
	}
	return t.Write(target.Stdout, target.Screen(), true)
}

// examineQuorum checks every server of a quorum that answers, and then what concerns all of them together.
func (d *doctor) examineQuorum(ctx context.Context, q *connect.Quorum) []finding {
	var all []finding
	ids := map[string][]string{} // addresses by run id
	silent := 0
	for i, server := range q.All {
		addr := server.Options().Addr
		var found []finding
		if wrong := q.Wrong[i]; wrong != nil {
			silent++
			none := isBad.says("none", wrong.Error(), "start it: without it, the quorum survives one failure less")
			found = append(found, none.as("answer"))
		} else {
			f := learn(ctx, server)
			if id := f.info["run_id"]; id != "" {
				ids[id] = append(ids[id], addr)
			}
			one := doctor{opt: d.opt, target: d.target, client: server}
			found = append(one.examineServer(ctx, server, f), one.tryMessages(ctx))
			d.user = one.user
		}
		for _, f := range found {
			f.Server = addr
			if f.Check == "persistence" && f.Status > isUnknown { // the other servers keep the locks that one forgets
				f.Status = isWarning
				f.Why = "a lock is lost if so many servers forget it within one ttl that no majority is left"
			}
			if f.Check != "cluster" { // a quorum has none
				all = append(all, f)
			}
		}
	}
	return append(all, size(len(q.All)).as("quorum"), identity(ids, len(q.All)-silent).as("identity"), d.tryLock(ctx, q.All[0]))
}

func size(n int) finding {
	text := fmt.Sprintf("%d servers, of which %d can fail", n, n-n/2-1)
	if n%2 == 0 {
		return isWarning.says(text, "one server less survives as many failures, with fewer split votes",
			"use three or five servers")
	}
	return ok("%s", text)
}

// identity checks that no server is there twice. ids are the addresses by run id; answered is how many servers answered.
func identity(ids map[string][]string, answered int) finding {
	known := 0
	for _, addrs := range ids {
		known += len(addrs)
		if len(addrs) > 1 {
			return isBad.says(strings.Join(addrs, " and ")+" are one server",
				"it has more than one vote, so one failure can end or break every lock",
				"name each server once; check DNS names and port forwarding")
		}
	}
	if known < answered {
		return isUnknown.says(fmt.Sprintf("%d of %d servers do not say their run id", answered-known, answered),
			"two addresses of one server would fake a majority",
			"ask an administrator for the run_id in the output of INFO server, on each")
	}
	return ok("%d different servers", answered)
}
