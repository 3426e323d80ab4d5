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

func checkKeys(keys []string) error {
	if len(keys) == 0 {
		return invalid("no keys")
	}
	for i, key := range keys {
		if key == "" {
			return invalid("key %d of %d is empty", i+1, len(keys))
		}
		if strings.HasSuffix(key, keyname.LineSuffix) {
			return invalid("key %q: names that end in %q are reserved", key, keyname.LineSuffix)
		}
	}
	return nil
}

func checkFenceKey(fenceKey string, keys []string) error {
	if strings.HasSuffix(fenceKey, keyname.LineSuffix) {
		return invalid("FenceKey %q: names that end in %q are reserved", fenceKey, keyname.LineSuffix)
	}
	if fenceKey != "" && slices.Contains(keys, fenceKey) {
		return invalid("FenceKey %q is also a key of the lock; give the counter a name of its own", fenceKey)
	}
	return nil
}

// checkLines returns an error if one of the keys can have no line, so that nobody can wait for it.
func checkLines(keys []string) error {
	for _, key := range keys {
		if !keyname.HasLine(key) {
			return invalid("key %q has a brace but no hash tag, or repeats itself as its hash tag, so there is no place beside "+
				"it for the line of Queue; name it without braces, or with a tag, as in {order:7}:stock", key)
		}
	}
	return nil
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
