package locking

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/internal/words"
)

// Flags are the flags of a command that acquires locks.
type Flags struct {
	Patience

	Keys           []string // after Check, with those of Limits
	Limits         Limits
	TTL            time.Duration
	FenceKey, Meta string
	HasMeta        bool
	Command        []string // that runs under the locks, for their metadata; nil if none does

	ConflictCode, UnavailableCode, DeadlockCode int

	noWait, long bool
}

// AddFlags adds the flags, except that for the keys.
func (f *Flags) AddFlags(flags *pflag.FlagSet, ttl time.Duration, ttlUsage string) {
	cli.DurationVar(flags, &f.TTL, "ttl", "", ttl, ttlUsage+"; like 30, 90s, 10m")
	flags.BoolVar(&f.long, "long", false, "allow a --ttl above 24h")
	f.Limits.AddFlags(flags)
	f.Patience.AddFlags(flags, "wait for at most `D` (default: for ever; 0: do not wait)",
		"print nothing if the locks could not be acquired")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait if a lock is taken")
	flags.StringVar(&f.FenceKey, "fence-key", "", "mint a fencing token from the counter `K`")
	flags.StringVar(&f.Meta, "meta", "", "store `TEXT` in the locks instead of host, pid, user and command")
	flags.IntVarP(&f.ConflictCode, "conflict-exit-code", "E", cli.No, "exit code `N` if the locks could not be acquired")
	flags.IntVar(&f.UnavailableCode, "unavailable-exit-code", cli.Unavailable, "exit code `N` if Redis could not be used")
	flags.IntVar(&f.DeadlockCode, "deadlock-exit-code", cli.Deadlock, "exit code `N` if the wait was part of a deadlock")
}

// LeastTTL is the shortest ttl that leaves time to renew the locks and to end a command.
const LeastTTL = 100 * time.Millisecond

// longTTL is the longest ttl without --long. If the holder dies, the lock blocks all others until the ttl ends.
const longTTL = 24 * time.Hour

// Check returns a usage error if the flags cannot be used.
func (f *Flags) Check(flags *pflag.FlagSet, target *connect.Target) error {
	f.HasMeta = flags.Changed("meta")
	f.Limited = f.noWait
	if f.noWait && flags.Changed("wait") && f.Limit != 0 {
		return cli.Usagef("--wait and --no-wait exclude each other")
	}
	err := cmp.Or(cli.CheckKeys(f.Keys), f.Limits.Check(f.Keys, target.IsQuorum()))
	f.Keys = f.Limits.With(f.Keys)
	return cmp.Or(err, CheckTTL(f.TTL, f.long), CheckCode("conflict-exit-code", f.ConflictCode),
		CheckCode("unavailable-exit-code", f.UnavailableCode), CheckCode("deadlock-exit-code", f.DeadlockCode),
		f.Patience.Check(flags))
}

// CheckTTL returns a usage error if a ttl cannot be used.
func CheckTTL(ttl time.Duration, long bool) error {
	switch {
	case ttl < LeastTTL:
		return cli.Usagef("--ttl %v is under %v", ttl, LeastTTL)
	case ttl > longTTL && !long:
		return cli.Usagef("--ttl %s is more than a day: if the holder dies, nobody else gets the lock for so long; "+
			"add --long if you want that", words.Duration(ttl))
	}
	return nil
}

// CheckLong returns a usage error if a flag says that locks are held for a very long time, unless --long allows it.
func (f *Flags) CheckLong(flag string, d time.Duration) error {
	if d > longTTL && !f.long {
		return cli.Usagef("--%s %s is more than a day, in which nobody else gets the lock; add --long if you want that",
			flag, words.Duration(d))
	}
	return nil
}

// CheckCode returns a usage error if a flag has a number that is not an exit code.
func CheckCode(name string, code int) error {
	if code < 0 || code > 255 {
		return cli.Usagef("--%s %d is not an exit code; choose one from 0 to 255", name, code)
	}
	return nil
}

// WithCode gives the error for an unusable Redis the exit code that the user has chosen.
func (f *Flags) WithCode(err error) error {
	if own, ok := errors.AsType[*cli.Error](err); ok && own.Code == cli.Unavailable {
		return &cli.Error{Code: f.UnavailableCode, Err: own.Err}
	}
	return err
}

// Refuse returns the error for locks that could not be acquired.
func (f *Flags) Refuse(format string, args ...any) error {
	if f.Quiet {
		return cli.Exit(f.ConflictCode)
	}
	return &cli.Error{Code: f.ConflictCode, Err: fmt.Errorf("not acquired: "+format, args...)}
}

// The variables that tell a command which runs are around it.
const (
	TokenVariable = "REDISLOCK_TOKEN"
	OuterVariable = "REDISLOCK_OUTER_TOKENS" // of the runs around that one, separated by spaces
)

// OuterTokens returns the tokens of the runs around this program, the innermost first.
func OuterTokens(env *cli.Env) []string {
	return strings.Fields(env.Getenv(TokenVariable) + " " + env.Getenv(OuterVariable))
}

// CheckNesting returns an error if runs around this program hold one of the keys, and this one cannot hold it beside them:
// they wait for this program to end. It ignores the keys that the token shared holds; "" stands for no such token.
func (f *Flags) CheckNesting(env *cli.Env, statuses []redislock.Status, shared string) error {
	outer := OuterTokens(env)
	for _, s := range statuses {
		_, reentered := Held(s, shared)
		at := f.Limits.blocked(s, outer)
		switch {
		case at < 0, reentered && shared != "":
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

// metadata returns what the locks store: the text of --meta, or who holds them since when, and for which command. Without a
// command, the holder is the script that runs this program.
func (f *Flags) metadata() string {
	if f.HasMeta {
		return f.Meta
	}
	host, _ := os.Hostname() // a process without a host name still has a pid
	own := struct {
		Host    string    `json:"host"`
		PID     int       `json:"pid"`
		User    string    `json:"user,omitempty"`
		Command string    `json:"command,omitempty"`
		Since   time.Time `json:"since"`
	}{
		Host: host, PID: os.Getpid(), User: userName(), Command: commandLine(f.Command),
		Since: time.Now().UTC().Truncate(time.Millisecond),
	}
	if f.Command == nil {
		own.PID = os.Getppid()
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // commands have < and & in them
	_ = encoder.Encode(own)      // text, numbers and times: cannot fail
	return strings.TrimSpace(text.String())
}

// userName looks at the environment first, because looking the id up may mean asking a directory server.
func userName() string {
	if name := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME")); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// commandLine returns the command as one could type it into a shell, cut to a length that people can read.
func commandLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if words[i] = word; special.MatchString(word) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	const most = 300 // bytes
	line := strings.ToValidUTF8(strings.Join(words, " "), "�")
	if len(line) > most {
		return strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// special matches a word that a shell would not take literally.
var special = regexp.MustCompile(`^$|[^-\w./:=,+@%\x{80}-\x{10FFFF}]`)
