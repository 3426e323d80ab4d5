package script

import (
	"slices"
	"strings"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
)

// Keys are the keys of one call, and the lines of those keys that have one. A lock boxes them once for all its calls. They
// never change, because calls and their copies share them.
type Keys struct {
	Names []string
	boxed []any // the names, and after them the lines, as arguments of a command
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

// WithoutLines returns the keys for a call that does not look at lines.
func (k Keys) WithoutLines() Keys { return Keys{k.Names, k.args()} }

// OnlyLines returns the lines of the keys without the keys.
func (k Keys) OnlyLines() Keys { return Keys{nil, k.lines()} }

func (k Keys) args() []any { return k.boxed[:len(k.Names):len(k.Names)] }

func (k Keys) lines() []any { return k.boxed[len(k.Names):] }

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
