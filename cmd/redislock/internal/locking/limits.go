package locking

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/argument"
	"github.com/redislock/redislock/internal/keyname"
)

// Limits are the keys that a command shares with others: how many holders each of them may have.
type Limits struct {
	Shared  []string
	Permits map[string]int

	permits []string // as KEY=N
}

// AddFlags adds --shared and --permit.
func (l *Limits) AddFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&l.Shared, "shared", nil, "`KEY` that others may hold at the same time if they share it as well; "+
		"may be repeated")
	flags.StringArrayVar(&l.permits, "permit", nil, "`KEY=N`: KEY, which at most N may hold at the same time; may be repeated")
}

// Complete makes a shell complete --shared and --permit with the keys that complete offers.
func (l *Limits) Complete(cmd *cobra.Command, complete cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc("shared", complete)
	_ = cmd.RegisterFlagCompletionFunc("permit",
		func(cmd *cobra.Command, args []string, beginning string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if strings.Contains(beginning, "=") { // the number follows
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			keys, directive := complete(cmd, args, beginning)
			for i, key := range keys {
				name, who, _ := strings.Cut(key, "\t")
				keys[i] = cobra.CompletionWithDesc(name+"=", who)
			}
			return keys, directive | cobra.ShellCompDirectiveNoSpace
		})
}

// Any reports whether a flag names a key.
func (l *Limits) Any() bool { return len(l.Shared)+len(l.permits) > 0 }

// Check reads the flags of a command that locks these other keys exclusively. It returns a usage error for flags that cannot
// be used.
func (l *Limits) Check(exclusive []string, quorum bool) error {
	if err := cmp.Or(l.readPermits(), checkNames("shared", l.Shared)); err != nil {
		return err
	}
	for key, n := range l.Permits {
		switch {
		case slices.Contains(l.Shared, key):
			return cli.Usagef("%q is named by --shared and by --permit; use one of them", key)
		case quorum && n > 1:
			return cli.Usagef("--permit %s=%d does not work on a quorum of servers, because two majorities may each grant so many; "+
				"use one server, or --shared", key, n)
		}
	}
	for _, key := range exclusive {
		if _, permitted := l.Permits[key]; permitted || slices.Contains(l.Shared, key) {
			return cli.Usagef("%q is to be locked exclusively, and named by --shared or --permit, which lock it themselves; "+
				"name it once", key)
		}
	}
	return nil
}

// readPermits reads the values of --permit.
func (l *Limits) readPermits() error {
	l.Permits = map[string]int{}
	for _, text := range l.permits {
		at := strings.LastIndexByte(text, '=')
		if at < 0 {
			return cli.Usagef("--permit %q has no number of holders; write it as KEY=N, as in --permit gpu=4", text)
		}
		key, number := text[:at], text[at+1:]
		n, err := strconv.Atoi(number)
		switch before, twice := l.Permits[key]; {
		case key == "":
			return cli.Usagef("--permit %q names no key; write it as KEY=N, as in --permit gpu=4", text)
		case err != nil || n < 1 || n > argument.MaxPermits:
			return cli.Usagef("--permit %q: %q is not a number from 1 to 1,000,000; write it as KEY=N, as in --permit gpu=4",
				text, number)
		case twice && before != n:
			return cli.Usagef("--permit gives %q %d and %d holders; name it once", key, before, n)
		}
		l.Permits[key] = n
	}
	return checkNames("permit", l.permitted())
}

func (l *Limits) permitted() []string { return slices.Sorted(maps.Keys(l.Permits)) }

// checkNames returns a usage error if one of the keys of a flag cannot be shared.
func checkNames(flag string, keys []string) error {
	for _, key := range keys {
		switch {
		case key == "":
			return cli.Usagef("--%s is empty; is a variable unset?", flag)
		case !keyname.HasLine(key):
			return cli.Usagef("--%s %q has a brace but no hash tag, or repeats itself as its hash tag, so there is no place beside "+
				"it for its holders; name it without braces, or with a tag, as in {order:7}:stock", flag, key)
		}
	}
	return nil
}

// With returns all keys of a command: those that it locks exclusively, and then those of the flags.
func (l *Limits) With(exclusive []string) []string {
	return slices.Concat(exclusive, l.Shared, l.permitted())
}

// Of returns how many holders a key may have; 0 for no limit.
func (l *Limits) Of(key string) int {
	if slices.Contains(l.Shared, key) {
		return 0
	}
	return cmp.Or(l.Permits[key], 1)
}

// options sets the options for some of the keys.
func (l *Limits) options(o *redislock.Options, keys []string) {
	for _, key := range keys {
		switch n, permitted := l.Permits[key]; {
		case permitted && o.Permits == nil:
			o.Permits = map[string]int{key: n}
		case permitted:
			o.Permits[key] = n
		case slices.Contains(l.Shared, key):
			o.Shared = append(o.Shared, key)
		}
	}
}

// Fits reports whether somebody without a hold of a key can hold it now, beside those who do, for all that the status says.
func (l *Limits) Fits(s redislock.Status) bool {
	switch {
	case s.TTL == 0:
		return true
	case s.HolderCount == 0: // by one, or by something that is not a lock
		return false
	}
	return within(s.HolderCount+1, l.Of(s.Key)) && within(s.HolderCount+1, show.LimitOf(s))
}

// blocked returns the index of the first of these tokens that holds a key, if together they keep others from holding it; or
// else -1.
func (l *Limits) blocked(s redislock.Status, tokens []string) (first int) {
	holders, least := 1, l.Of(s.Key)
	first = -1
	for i, token := range tokens {
		limit, held := Held(s, token)
		if !held || slices.Contains(tokens[:i], token) {
			continue
		}
		if holders++; first < 0 {
			first = i
		}
		least = show.Stricter(least, limit)
	}
	if within(holders, least) {
		return -1
	}
	return first
}

// within reports whether so many holders are at most the limit; 0 is no limit.
func within(holders, limit int) bool { return limit == 0 || holders <= limit }

// Cover reports whether a hold of a key with that limit, 0 for none, is enough for a command with these limits.
func (l *Limits) Cover(key string, limit int) bool {
	own := l.Of(key)
	return own == 0 || limit > 0 && limit <= own
}

// Held returns the limit of the hold that a token has of a key, 0 for none, and whether it has one. Of a key with more
// holders than the status lists, it knows only those.
func Held(s redislock.Status, token string) (limit int, held bool) {
	for _, h := range s.Holders {
		if h.Token == token {
			return h.Limit, true
		}
	}
	return 1, s.TTL != 0 && s.HolderCount == 0 && s.Token == token
}
