package script

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
)

// Keys are the keys of one call, and the lines of those keys that have one. A lock boxes them once for all its calls. They
// never change, because calls and their copies share them.
type Keys struct {
	Names []string
	boxed []any // the names, and after them the lines, as arguments of a command; the last may be a *sharing
}

// sharing says which of Keys several may hold. It stands in Keys.boxed, so that the Keys of an exclusive lock have no room
// for it.
type sharing struct {
	limits []int  // how many holders each key may have; 0 for no limit
	modes  string // the same, as shared.lua describes it
	held   []any  // the keys, and after them the houses of those that several may hold, as arguments of a command
}

// Box returns keys for calls. It allocates the names of all lines in one piece.
func Box(names []string) Keys {
	boxed := make([]any, len(names), 2*len(names))
	size := 0
	for i, name := range names {
		boxed[i] = name
		size += 2*len(name) + len("{}") + len(keyname.LineSuffix)
	}
	var lines strings.Builder
	lines.Grow(size)
	for _, name := range names {
		start := lines.Len()
		if keyname.WriteLine(&lines, name); lines.Len() > start {
			boxed = append(boxed, lines.String()[start:])
		}
	}
	return Keys{names, boxed}
}

// BoxShared is Box for keys of which some may have several holders: limits says how many, 0 for no limit; nil if all keys
// are exclusive. Each key with a limit other than 1 can have a line. If there is none, BoxShared is Box.
func BoxShared(names []string, limits []int) Keys {
	keys, shares := Box(names), func(limit int) bool { return limit != 1 }
	if slices.ContainsFunc(limits, shares) {
		isShared := func(i int) bool { return shares(limits[i]) }
		keys.boxed = append(keys.boxed, newSharing(names, keys.args(), limits, isShared))
	}
	return keys
}

// boxToLook returns the keys, the modes and the spare keys for a script that looks who holds these keys. limits says how the
// caller wants them; nil if all exclusively.
func boxToLook(names []string, limits []int) (keys []any, modes string, beside []any) {
	args := make([]any, len(names))
	for i, name := range names {
		if args[i] = name; keyname.HasLine(name) {
			beside = append(beside, keyname.LineOf(name), keyname.NoteOf(name))
		}
	}
	if limits == nil {
		limits = slices.Repeat([]int{1}, len(names))
	}
	s := newSharing(names, args, limits, func(i int) bool { return keyname.HasLine(names[i]) })
	return slices.Clip(s.held), s.modes, beside
}

// newSharing names those keys as shared whose index is. args are the names as arguments of a command.
func newSharing(names []string, args []any, limits []int, is func(int) bool) *sharing {
	s := &sharing{limits: limits, held: append(make([]any, 0, len(names)+1), args...)}
	modes := strconv.AppendInt(make([]byte, 0, 16), int64(len(names)), 10)
	for i, limit := range limits {
		if is(i) {
			s.held = append(s.held, keyname.HouseOf(names[i]))
			modes = append(strconv.AppendInt(append(modes, ' '), int64(i+1), 10), '=')
			modes = strconv.AppendInt(modes, int64(limit), 10)
		}
	}
	s.modes = string(modes)
	return s
}

// sharing returns which of the keys several may hold; nil if all are exclusive.
func (k Keys) sharing() *sharing {
	if len(k.boxed) == 0 {
		return nil
	}
	s, _ := k.boxed[len(k.boxed)-1].(*sharing)
	return s
}

// Only returns the keys with these names, each once.
func (k Keys) Only(names []string) Keys {
	names = Unique(names)
	return BoxShared(names, k.limitsOf(names))
}

// limitsOf returns how many holders each of these keys may have, 0 for no limit; nil if all keys are exclusive.
func (k Keys) limitsOf(names []string) []int {
	s := k.sharing()
	if s == nil {
		return nil
	}
	limits := make(map[string]int, len(k.Names))
	for i, name := range k.Names {
		limits[name] = s.limits[i]
	}
	some := make([]int, len(names))
	for i, name := range names {
		some[i] = limits[name]
	}
	return some
}

// held returns KEYS without the fence key and the lines, and what says to a script how many lock keys these are.
func (k Keys) held() (keys []any, n any) {
	if s := k.sharing(); s != nil {
		return slices.Clip(s.held), s.modes
	}
	return k.args(), len(k.Names)
}

// WithoutLines returns the keys for a call that does not look at lines.
func (k Keys) WithoutLines() Keys {
	if s := k.sharing(); s != nil {
		return Keys{k.Names, append(slices.Clone(k.args()), s)}
	}
	return Keys{k.Names, k.args()}
}

// OnlyLines returns the lines of the keys without the keys.
func (k Keys) OnlyLines() Keys {
	if s := k.sharing(); s != nil {
		_, modes, _ := strings.Cut(s.modes, " ")
		return Keys{nil, append(slices.Clone(k.lines()), &sharing{s.limits, "0 " + modes, s.held[len(k.Names):]})}
	}
	return Keys{nil, k.lines()}
}

func (k Keys) args() []any { return k.boxed[:len(k.Names):len(k.Names)] }

func (k Keys) lines() []any {
	end := len(k.boxed)
	if k.sharing() != nil {
		end--
	}
	return k.boxed[len(k.Names):end:end]
}

// maxKeys is the largest number of keys of one script. Redis serves no other caller while a script runs, which takes 2 to 8
// s with so many keys. With more keys, go-redis gives up after its ReadTimeout of 3 s and sends the script again, three
// times by default, and Redis answers BUSY to all others. Redis 6 refuses commands of more than 1,048,576 arguments.
const maxKeys = 1_000_000

// TooMany returns an error that wraps ErrInvalid if one script cannot hold so many keys. Each slot has a script of its own.
func TooMany(keys int) error {
	if keys > maxKeys {
		return fault.Invalid("%d keys are more than the %d that one script can hold, because Redis would serve nobody else for "+
			"seconds; lock what the keys have in common instead, such as their prefix", keys, maxKeys)
	}
	return nil
}

// Unique returns keys in their order, each once, in a new slice.
func Unique(keys []string) []string {
	distinct := make([]string, 0, len(keys))
	if len(keys) <= 16 { // a map costs more than it saves
		for _, key := range keys {
			if !slices.Contains(distinct, key) {
				distinct = append(distinct, key)
			}
		}
		return distinct
	}
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		if _, again := seen[key]; !again {
			seen[key] = struct{}{}
			distinct = append(distinct, key)
		}
	}
	return distinct
}

// WithFence returns the keys and the fence key, if there is one: all keys that a script needs on one server.
func WithFence(keys []string, fenceKey string) []string {
	if fenceKey == "" {
		return keys
	}
	return append(slices.Clone(keys), fenceKey)
}

// LinesFirst compares two keys. Keys that have a line come first, as inspect and blocker require.
func LinesFirst(a, b string) int {
	switch has := keyname.HasLine(a); {
	case has == keyname.HasLine(b):
		return 0
	case has:
		return -1
	}
	return 1
}
