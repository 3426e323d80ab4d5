package connect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/marker"
)

// Guard is what the flags say about the guard of a database.
type Guard struct {
	MaxTTL  time.Duration // the longest ttl of any lock; 0 if they do not say
	Deposed time.Duration // for how long a deposed master may go on granting

	HasDeposed bool
}

const (
	maxTTLFlag, maxTTLVariable   = "max-ttl", "REDISLOCK_MAX_TTL"
	deposedFlag, deposedVariable = "deposed", "REDISLOCK_DEPOSED"
)

func (g *Guard) addFlags(flags *pflag.FlagSet) {
	cli.DurationVar(flags, &g.MaxTTL, maxTTLFlag, "", 0,
		"guard locks against a Redis that forgets; none here has a ttl above `D` "+
			"(default $"+maxTTLVariable+`); see "redislock guard --help"`)
	cli.DurationVar(flags, &g.Deposed, deposedFlag, "", 0,
		"a master may go on for `D` after a replica has taken its place (default $"+deposedVariable+")")
}

// check reads the variables for flags that are not given. It returns an error if they or the flags cannot be used.
func (g *Guard) check(flags *pflag.FlagSet, getenv func(string) string) error {
	given := func(d *time.Duration, flag, variable string, least time.Duration) (bool, error) {
		name, text := "--"+flag, getenv(variable)
		switch {
		case flags.Changed(flag):
		case text == "":
			return false, nil
		default:
			var err error
			if *d, err = cli.ParseDuration(text); err != nil {
				return false, cli.Usagef("%s: %w", variable, err)
			}
			name = variable
		}
		if *d < least || *d > longestGrace {
			return false, cli.Usagef("%s %v is not between %v and %v", name, *d, least, longestGrace)
		}
		return true, nil
	}
	_, err := given(&g.MaxTTL, maxTTLFlag, maxTTLVariable, 2*time.Millisecond)
	if err == nil {
		g.HasDeposed, err = given(&g.Deposed, deposedFlag, deposedVariable, 0)
	}
	return err
}

// longestGrace is the limit of the library for both parts of the grace.
const longestGrace = 24 * time.Hour

// Over completes what the flags say with what a marker says; the flags go before it. MaxTTL is 0 if there is neither.
func (g Guard) Over(marked marker.Lengths) Guard {
	if g.MaxTTL == 0 {
		g.MaxTTL = min(marked.MaxTTL(), longestGrace)
	}
	if !g.HasDeposed {
		g.Deposed = min(marked.Deposed, longestGrace)
	}
	return g
}

// allow returns an error if the guard does not allow locks of that ttl.
func (g Guard) allow(longest time.Duration) error {
	switch {
	case g.MaxTTL == 0 && g.HasDeposed:
		return cli.Usagef("--deposed needs --max-ttl: no program with a guard has locked here")
	case g.MaxTTL > 0 && longest > g.MaxTTL:
		return cli.Usagef("a lock of %v is longer than the %v that the guard allows; "+
			"lower the ttl, or raise --max-ttl, and maxTTL in WithGuard, in all programs", longest, g.MaxTTL)
	}
	return nil
}

// guardAt returns the guard that the locks of a command need; nil for none. A Cluster has no marker.
func (t *Target) guardAt(ctx context.Context, client redis.UniversalClient) (redislock.ClientOption, error) {
	if !t.Guarded {
		return nil, nil //nolint:nilnil // the library skips a nil option
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	g := t.Guard
	for _, server := range Servers(client) {
		there, err := marker.LengthsOf(ctx, server)
		switch {
		case err == nil:
			its := t.Guard.Over(there)
			g.MaxTTL, g.Deposed = max(g.MaxTTL, its.MaxTTL), max(g.Deposed, its.Deposed)
		case redis.HasErrorPrefix(err, "NOPERM"), t.IsQuorum(): // not allowed to look, or a server that is away
		default:
			return nil, t.Explain(err)
		}
	}
	if err := g.allow(t.Longest); err != nil || g.MaxTTL == 0 {
		return nil, err
	}
	return redislock.WithGuard(g.MaxTTL, g.Deposed), nil
}

// Servers returns the servers that can have a marker: one, or those of a quorum that have answered.
func Servers(client redis.UniversalClient) (all []*redis.Client) {
	switch client := client.(type) {
	case *redis.Client:
		return []*redis.Client{client}
	case *Quorum:
		for i, server := range client.All {
			if client.Wrong[i] == nil {
				all = append(all, server)
			}
		}
	}
	return all
}

// IsGuarded reports whether the locks have a guard.
func (s *Session) IsGuarded() bool { return s.guard != nil }

// IsClosed reports whether an error of Attach says that the guard is closed; on a quorum, that of too many servers.
func (s *Session) IsClosed(err error) bool {
	return s.IsGuarded() && errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, redislock.ErrLockNotHeld)
}

// Closed returns for how much longer the guard refuses every lock; 0 if it does not, or if nobody can tell.
func (s *Session) Closed(ctx context.Context) time.Duration {
	if !s.IsGuarded() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var closed []time.Duration
	for _, server := range Servers(s.Client) {
		if m, err := marker.Read(ctx, server); err == nil {
			closed = append(closed, m.Closed())
		}
	}
	need := 1
	if q, several := s.Client.(*Quorum); several {
		need = len(q.All)/2 + 1
	}
	if len(closed) < need {
		return 0
	}
	slices.Sort(closed)
	return closed[need-1]
}

// At returns a client for locks at one server, with the guard of the session. The caller closes it.
func (s *Session) At(server *redis.Client) *redislock.Client { return redislock.New(server, s.guard) }
