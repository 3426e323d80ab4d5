// Package guard is the command that shows the guard of a Redis, and opens it when somebody says that nothing was lost.
package guard

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/marker"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

//go:embed help.txt
var help string

// New returns the command "guard".
func New(target *connect.Target) *cobra.Command {
	var asJSON bool
	cmd := cli.Describe(help, &cobra.Command{
		Use: "guard", Short: "Show whether Redis may have forgotten locks, and when it grants new ones",
		Args: cli.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return showGuards(ctx, target, asJSON)
		}),
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	cmd.AddCommand(newOpen(target))
	return cmd
}

// at is the guard of one server.
type at struct {
	marker.Marker

	server *redis.Client
	name   string
	wrong  error // why the marker could not be read; nil if it was
}

// connected connects to all servers, and reads their markers. Call disconnect at the end.
func connected(ctx context.Context, target *connect.Target) (all []at, disconnect func(), err error) {
	target.AskAll = true
	client, err := target.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	disconnect = func() { _ = client.Close() }
	if all, err = look(ctx, target, client); err != nil {
		disconnect()
		return nil, nil, err
	}
	return all, disconnect, nil
}

// look reads the markers of all servers.
func look(ctx context.Context, target *connect.Target, client redis.UniversalClient) (all []at, err error) {
	switch client := client.(type) {
	case *redis.Client:
		all = []at{{server: client, name: target.Where}}
	case *connect.Quorum:
		for i, server := range client.All {
			all = append(all, at{server: server, name: server.Options().Addr, wrong: client.Wrong[i]})
		}
	default:
		return nil, cli.Usagef("a Cluster has no guard: see docs/guarantees-guard.md")
	}
	for i := range all {
		if all[i].wrong == nil {
			all[i].Marker, all[i].wrong = marker.Read(ctx, all[i].server)
		}
	}
	if wrong := all[0].wrong; len(all) == 1 && wrong != nil {
		return nil, target.Explain(wrong)
	}
	return all, nil
}

func showGuards(ctx context.Context, target *connect.Target, asJSON bool) error {
	all, disconnect, err := connected(ctx, target)
	if err != nil {
		return err
	}
	defer disconnect()
	t := &term.Table{Columns: []term.Column{
		{Name: "SERVER"}, {Name: "GUARD"}, {Name: "OPENS IN", Right: true}, {Name: "CLOSES FOR", Right: true},
		{Name: "MAX TTL", Right: true}, {Name: "DEPOSED", Right: true}, {Name: "TERM"}, {Name: "", Fit: term.Wrap},
	}}
	var result error
	for _, g := range all {
		if g.wrong != nil || g.State() != marker.Open {
			result = cli.Exit(cli.No)
		}
		if asJSON {
			if err := show.WriteJSON(target.Stdout, g.json()); err != nil {
				return err
			}
			continue
		}
		state, left, grace, maxTTL, deposed := string(g.State()), "", "", "", ""
		if g.wrong != nil {
			state = "?"
		}
		if g.Left > 0 && g.State() == marker.Closed {
			left = words.Duration(g.Left)
		}
		if g.Grace > 0 {
			grace, maxTTL, deposed = words.Duration(g.Grace), words.Duration(g.MaxTTL()), words.Duration(g.Deposed)
		}
		t.Add(words.Escape(g.name), state, left, grace, maxTTL, deposed, short(g.Term), words.Printable(g.words()))
	}
	if asJSON {
		return result
	}
	return cmp.Or(t.Write(target.Stdout, target.Screen(), true), result)
}

// short is the beginning of an id, as people need it.
func short(id string) string { return id[:min(len(id), 8)] }

// words say what the state of a guard means.
func (g at) words() string {
	switch {
	case g.wrong != nil:
		return g.wrong.Error()
	case g.State() == marker.None:
		return "no program with a guard has locked here"
	case g.State() == marker.Closed:
		return "Redis may have forgotten locks: it grants none until the guard opens, and holders put theirs back"
	case g.State() == marker.Closing:
		return fmt.Sprintf("the server is in the term %s: the next lock closes the guard for %s", short(g.Now),
			words.Duration(g.Grace))
	case g.State() == marker.Replica:
		return "a replica grants no locks; it shows the marker of its master"
	case g.State() == marker.Unknown:
		return "this user may not run INFO, which a guard needs; or this Redis does not say its master_replid"
	}
	return "nothing has been lost since this term of the server began"
}

// guardJSON is a guard in JSON.
type guardJSON struct {
	Server     string       `json:"server"`
	State      marker.State `json:"state,omitempty"`
	Error      string       `json:"error,omitempty"` // in place of all that follows
	OpensIn    int64        `json:"opens_in_ms"`     // 0 unless it is closed
	ClosesFor  int64        `json:"closes_for_ms"`
	MaxTTL     int64        `json:"max_ttl_ms"`
	Deposed    int64        `json:"deposed_ms"`
	Term       string       `json:"term"`        // in which the marker was written
	ServerTerm string       `json:"server_term"` // the present one
	Matches    bool         `json:"matches"`
	Role       string       `json:"role"`
}

func (g at) json() guardJSON {
	if g.wrong != nil {
		return guardJSON{Server: g.name, Error: g.wrong.Error()}
	}
	return guardJSON{
		Server: g.name, State: g.State(), OpensIn: g.Left.Milliseconds(), ClosesFor: g.Grace.Milliseconds(),
		MaxTTL: g.MaxTTL().Milliseconds(), Deposed: g.Deposed.Milliseconds(),
		Term: g.Term, ServerTerm: g.Now, Matches: g.Term != "" && g.Term == g.Now, Role: g.Role,
	}
}

//go:embed open.txt
var openHelp string

func newOpen(target *connect.Target) *cobra.Command {
	var yes bool
	cmd := cli.Describe(openHelp, &cobra.Command{
		Use: "open [SERVER...]", Short: "Say that Redis has forgotten no lock, so that it grants new ones at once",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, servers []string) error {
			if !yes && !term.Is(target.Stdin) {
				return cli.Usagef("guard open asks first, and stdin is not a terminal; add --yes if you are sure")
			}
			return openGuards(ctx, target, servers, yes)
		}),
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func openGuards(ctx context.Context, target *connect.Target, servers []string, yes bool) error {
	all, disconnect, err := connected(ctx, target)
	if err != nil {
		return err
	}
	defer disconnect()
	if all, err = named(all, servers); err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(g at) bool {
		done := g.wrong == nil && g.State() == marker.Open && g.raised(target.Guard) == g.Lengths
		if done {
			fmt.Fprintf(target.Stdout, "%s: the guard is open already\n", words.Escape(g.name))
		}
		return done
	})
	if len(all) == 0 {
		return nil
	}
	for _, g := range all {
		if err := openable(g, target.Guard); err != nil {
			return err
		}
		if !yes {
			fmt.Fprintf(target.Stderr, "%s: the guard is %s\n", words.Escape(g.name), g.plan(target.Guard))
		}
	}
	const warning = "If one of these servers has forgotten a lock that somebody holds, " +
		"a second holder gets that lock at once.\n" +
		"Have they kept all their data since the last lock?"
	if !yes && !target.Agrees(ctx, warning) {
		return cmp.Or(context.Cause(ctx), errors.New("no guard was opened"))
	}
	var failed error
	for _, g := range all {
		err := open(ctx, g, target.Guard, yes)
		switch {
		case errors.Is(err, marker.ErrChanged):
			failed = fmt.Errorf("the guard of %s was not opened: %w; look again with redislock guard", g.name, err)
		case err != nil:
			failed = cli.Unavailablef("the guard of %s was not opened: %w", g.name, err)
		default:
			fmt.Fprintf(target.Stdout, "%s: the guard is open\n", words.Escape(g.name))
			continue
		}
		target.Complain(failed)
	}
	if failed != nil {
		return cli.Exit(cli.CodeOf(failed))
	}
	return nil
}

// named returns the guards of these servers; all of them if none is named.
func named(all []at, servers []string) ([]at, error) {
	if len(servers) == 0 {
		return all, nil
	}
	var some []at
	for _, name := range servers {
		i := slices.IndexFunc(all, func(g at) bool { return g.name == name })
		if i < 0 {
			return nil, cli.Usagef("there is no server %q; redislock guard lists them", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// openable returns an error if the guard cannot be opened. Then none is.
func openable(g at, flags connect.Guard) error {
	const nothing = "no guard was opened: "
	switch {
	case g.wrong != nil:
		return cli.Unavailablef(nothing+"%s: %w", g.name, g.wrong)
	case g.State() == marker.Replica:
		return cli.Unavailablef(nothing+"%s is a replica; open the guard of its master", g.name)
	case g.State() == marker.Unknown:
		return cli.Unavailablef(nothing+"%s: %s", g.name, g.words())
	case g.Grace == 0 && flags.MaxTTL == 0:
		return cli.Usagef(nothing+"%s has no marker; say with --max-ttl and --deposed what all programs use in WithGuard", g.name)
	}
	return nil
}

// raised returns the lengths of the guard from now on: what the flags say, but no less than what the marker says.
func (g at) raised(flags connect.Guard) marker.Lengths {
	said := flags.Over(g.Lengths)
	deposed := max(g.Deposed, said.Deposed)
	return marker.Lengths{Grace: max(g.MaxTTL(), said.MaxTTL) + deposed, Deposed: deposed}
}

// plan says what is now, and what will be.
func (g at) plan(flags connect.Guard) string {
	now := string(g.State())
	switch g.State() {
	case marker.None:
		now = "not there yet: no program with a guard has locked here"
	case marker.Closed:
		now = "closed for another " + words.Duration(g.Left)
	case marker.Closing:
		now = fmt.Sprintf("of the term %s, and the server is in the term %s", short(g.Term), short(g.Now))
	}
	will := g.raised(flags)
	return fmt.Sprintf("%s; from now on it closes for %s: maxTTL %s, deposed %s", now, words.Duration(will.Grace),
		words.Duration(will.MaxTTL()), words.Duration(will.Deposed))
}

// open opens the guard as it was seen. If nobody was asked, it may have changed since, as by a lock that has noticed the new
// term: the answer would be the same.
func open(ctx context.Context, g at, flags connect.Guard, yes bool) (err error) {
	for range 5 {
		if err = marker.SetOpen(ctx, g.server, g.Marker, g.raised(flags)); !yes || !errors.Is(err, marker.ErrChanged) {
			return err
		}
		if g.Marker, g.wrong = marker.Read(ctx, g.server); g.wrong != nil {
			return g.wrong
		}
		if err := openable(g, flags); err != nil {
			return err
		}
	}
	return err
}
