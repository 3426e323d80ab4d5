package claim

import (
	"slices"
	"strings"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// The variables that tell a command which runs are around it.
const (
	TokenVariable = "REDISLOCK_TOKEN"
	OuterVariable = "REDISLOCK_OUTER_TOKENS" // of the runs around that one, separated by spaces
)

// OuterTokens returns the tokens of the runs around this program, the innermost first.
func OuterTokens(env *cli.Env) []string {
	return strings.Fields(env.Getenv(TokenVariable) + " " + env.Getenv(OuterVariable))
}

// CheckNesting returns an error if a run around this program holds one of the keys: that run waits for this program, so
// this program would wait for itself. It ignores the keys that the token shared holds; "" stands for no such token.
func (f *Flags) CheckNesting(env *cli.Env, statuses []redislock.Status, shared string) error {
	outer := OuterTokens(env)
	for _, s := range statuses {
		at := slices.Index(outer, s.Token)
		switch {
		case s.TTL == 0, at < 0, s.Token == shared:
		case f.NoWait():
			return f.Refuse("%q is held by a run around this one", s.Key)
		case at == 0:
			return cli.Usagef("%q is held by the run around this one, which would wait for itself; "+
				`to share its locks, use "redislock run --reenter"`, s.Key)
		default:
			return cli.Usagef("%q is held by a run further out, which would wait for itself; to share its locks, "+
				`use "redislock run --reenter" in each run between the two`, s.Key)
		}
	}
	return nil
}
