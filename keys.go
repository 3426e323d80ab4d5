package redislock

import (
	"slices"
	"strings"

	"github.com/redislock/redislock/internal/keyname"
)

// unique returns keys in their order, each once, in a new slice.
func unique(keys []string) []string {
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

// withFence returns the keys and, if there is one, the fence key: all that a script needs on one server.
func withFence(keys []string, fenceKey string) []string {
	if fenceKey == "" {
		return keys
	}
	return append(slices.Clone(keys), fenceKey)
}

// box returns the keys and after them the lines of those that have one, as arguments of a command. A lock makes them
// once for all its calls, and allocates the names of the lines in one piece.
func box(keys []string) []any {
	boxed := make([]any, len(keys), 2*len(keys))
	size := 0
	for i, key := range keys {
		boxed[i] = key
		size += 2*len(key) + len("{}") + len(keyname.LineSuffix)
	}
	var names strings.Builder
	names.Grow(size)
	for _, key := range keys {
		start := names.Len()
		if keyname.WriteLine(&names, key); names.Len() > start {
			boxed = append(boxed, names.String()[start:])
		}
	}
	return boxed
}
