package redislock

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redislock/redislock/internal/keyname"
)

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

// minTTL is the least ttl of which something remains after the safety margin of validity.
const minTTL = 2 * time.Millisecond

func checkTTL(ttl time.Duration) error {
	if ttl < minTTL {
		return invalid("ttl %v is under %v", ttl, minTTL)
	}
	return nil
}

func checkToken(token string) error {
	for _, r := range token {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return invalid("token %q holds white space or a control character", token)
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
