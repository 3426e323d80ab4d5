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

// maxScriptKeys is the most keys of one script. Redis serves nobody else while a script runs: with so many keys, for 2 to
// 8 s. With more, go-redis gives up after its ReadTimeout of 3 s and sends the script again, three times by default, and
// Redis answers BUSY to everybody else. Redis 6 refuses commands of more than 1,048,576 arguments.
const maxScriptKeys = 1_000_000

// checkScript returns an error if one script cannot hold so many keys. Keys in different slots are in different scripts.
func checkScript(keys int) error {
	if keys > maxScriptKeys {
		return invalid("%d keys are more than the %d that one script can hold, because Redis would serve nobody else for "+
			"seconds; lock what the keys have in common instead, such as their prefix", keys, maxScriptKeys)
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
