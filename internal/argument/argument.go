// Package argument checks what callers pass, by itself: it knows no Client and no server.
package argument

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
)

// Keys returns an error if a lock cannot have these keys.
func Keys(keys []string) error {
	if len(keys) == 0 {
		return fault.Invalid("no keys")
	}
	for i, key := range keys {
		if key == "" {
			return fault.Invalid("key %d of %d is empty", i+1, len(keys))
		}
		if err := reserved("key", key); err != nil {
			return err
		}
	}
	return nil
}

// reserved returns an error if the library uses that name itself. what is what a caller wants to name so.
func reserved(what, name string) error {
	switch {
	case keyname.IsBeside(name):
		return fault.Invalid("%s %q: names that end in %q are reserved", what, name, name[strings.LastIndex(name, ":redislock:"):])
	case name == keyname.GuardMarker:
		return fault.Invalid("%s %q is reserved for the marker of a guard", what, name)
	}
	return nil
}

// minTTL is the least ttl of which something remains after the safety margin of validity.
const minTTL = 2 * time.Millisecond

// TTL returns an error if a lock cannot last so long. maxTTL is the longest ttl that a guard allows; 0 is no guard.
func TTL(ttl, maxTTL time.Duration) error {
	switch {
	case ttl > 0 && ttl < time.Microsecond: // a plain number
		return fault.Invalid("ttl %v is under %v; did you mean %d*time.Second?", ttl, minTTL, ttl.Nanoseconds())
	case ttl > 0 && ttl < time.Millisecond:
		return fault.Invalid("ttl %v is under %v; did you mean %d*time.Millisecond?", ttl, minTTL, ttl.Nanoseconds())
	case ttl < minTTL:
		return fault.Invalid("ttl %v is under %v", ttl, minTTL)
	case maxTTL > 0 && ttl > maxTTL:
		return fault.Invalid("ttl %v is above the %v that WithGuard allows", ttl, maxTTL)
	}
	return nil
}

// Guard returns an error if there can be no guard with this longest ttl and this time for a deposed master.
func Guard(maxTTL, deposed time.Duration) error {
	switch {
	case maxTTL < minTTL:
		return fault.Invalid("WithGuard: maxTTL %v is under %v", maxTTL, minTTL)
	case deposed < 0:
		return fault.Invalid("WithGuard: deposed %v is negative", deposed)
	case maxTTL > maxGrace || deposed > maxGrace:
		return fault.Invalid("WithGuard: nobody would wait longer than %v for an obtain after a restart", maxGrace)
	}
	return nil
}

// maxGrace bounds both parts of the grace of a guard.
const maxGrace = 24 * time.Hour

// Token returns an error if a holder cannot have this token.
func Token(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fault.Invalid("token %q holds white space or a control character", token)
	}
	return nil
}

// FenceKey returns an error if a lock with these keys cannot have this fence key; "" is none.
func FenceKey(fenceKey string, keys []string) error {
	if err := reserved("FenceKey", fenceKey); err != nil {
		return err
	}
	if fenceKey != "" && slices.Contains(keys, fenceKey) {
		return fault.Invalid("FenceKey %q is also a key of the lock; give the counter a name of its own", fenceKey)
	}
	return nil
}

// Lines returns an error if one of the keys can have no line, so that nobody can wait for it.
func Lines(keys []string) error { return lines(keys, "the line of Queue") }

// lines is Lines with what has no place.
func lines(keys []string, what string) error {
	for _, key := range keys {
		if !keyname.HasLine(key) {
			return fault.Invalid("key %q has a brace but no hash tag, or repeats itself as its hash tag, so there is no place "+
				"beside it for %s; name it without braces, or with a tag, as in {order:7}:stock", key, what)
		}
	}
	return nil
}

// MaxPermits bounds how many holders a key of Permits may have.
const MaxPermits = 1_000_000

// Limits returns how many holders each of keys may have, 0 for no limit; nil if all of them are exclusive. It returns an
// error if shared and permits cannot be used for keys.
func Limits(keys, shared []string, permits map[string]int) ([]int, error) {
	if len(shared)+len(permits) == 0 {
		return nil, nil
	}
	index := make(map[string]int, len(keys))
	limits := make([]int, len(keys))
	for i, key := range keys {
		index[key], limits[i] = i, 1
	}
	for _, key := range shared {
		i, is := index[key]
		if !is {
			return nil, fault.Invalid("Shared names %q, which is not among the keys", key)
		}
		limits[i] = 0
	}
	for key, most := range permits {
		i, is := index[key]
		switch {
		case !is:
			return nil, fault.Invalid("Permits names %q, which is not among the keys", key)
		case most < 1 || most > MaxPermits:
			return nil, fault.Invalid("Permits: %d holders of %q are not between 1 and %d", most, key, MaxPermits)
		case limits[i] == 0:
			return nil, fault.Invalid("%q is in Shared and in Permits; a key can be in one of them", key)
		}
		limits[i] = most
	}
	if !slices.ContainsFunc(limits, func(n int) bool { return n != 1 }) {
		return nil, nil
	}
	return limits, lines(keys, "the lines of its holders and waiters")
}

// HaveOneTag reports whether all keys, and the fence key if there is one, have the same hash tag. One key has.
func HaveOneTag(keys []string, fenceKey string) bool {
	if len(keys) == 1 && fenceKey == "" {
		return true
	}
	first, tagged := keyname.HashTag(keys[0])
	isOther := func(key string) bool {
		tag, has := keyname.HashTag(key)
		return !has || tag != first
	}
	return tagged && !slices.ContainsFunc(keys[1:], isOther) && (fenceKey == "" || !isOther(fenceKey))
}
