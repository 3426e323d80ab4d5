package redislock

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
	"github.com/redislock/redislock/internal/transport"
)

func checkKeys(keys []string) error {
	if len(keys) == 0 {
		return fault.Invalid("no keys")
	}
	for i, key := range keys {
		if key == "" {
			return fault.Invalid("key %d of %d is empty", i+1, len(keys))
		}
		if strings.HasSuffix(key, keyname.LineSuffix) {
			return fault.Invalid("key %q: names that end in %q are reserved", key, keyname.LineSuffix)
		}
	}
	return nil
}

// minTTL is the least ttl of which something remains after the safety margin of validity.
const minTTL = 2 * time.Millisecond

func checkTTL(ttl time.Duration) error {
	if ttl < minTTL {
		return fault.Invalid("ttl %v is under %v", ttl, minTTL)
	}
	return nil
}

func checkToken(token string) error {
	for _, r := range token {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return fault.Invalid("token %q holds white space or a control character", token)
		}
	}
	return nil
}

func checkFenceKey(fenceKey string, keys []string) error {
	if strings.HasSuffix(fenceKey, keyname.LineSuffix) {
		return fault.Invalid("FenceKey %q: names that end in %q are reserved", fenceKey, keyname.LineSuffix)
	}
	if fenceKey != "" && slices.Contains(keys, fenceKey) {
		return fault.Invalid("FenceKey %q is also a key of the lock; give the counter a name of its own", fenceKey)
	}
	return nil
}

// checkPlaces returns an error if the names of the keys and the options say that no lock can be where the keys are. It asks
// the names alone, and not where slots are today: so the same call gets the same answer every time.
//
// A Ring sends a script to the shard of its first key, so it would lock the other keys where nobody else looks for them. A
// common hash tag keeps them together, also if a hook rewrites keys.
//
// With a token of the caller, a lock at several places cannot tell which of its keys an earlier call with that token has
// acquired, so the cleanup after one call could free what the next one relies on.
func (c *Client) checkPlaces(keys []string, opt *Options) error {
	if opt == nil {
		opt = &Options{}
	}
	together := haveOneTag(keys, opt.FenceKey)
	switch {
	case c.quorum != nil && opt.AcrossSlots:
		return fault.Invalid("AcrossSlots does not work with a quorum of servers")
	case c.quorum != nil && opt.Token != "":
		return fault.Invalid("Token does not work with a quorum of servers; %s", insteadOfToken)
	case c.quorum != nil && !together && c.quorum.HasRing():
		return fault.Invalid("a quorum of Rings needs one hash tag for all keys of a lock, and for its FenceKey, " +
			"as in {order:7}:stock")
	case c.quorum != nil || together:
		return nil
	case c.one.Redis.IsRing():
		return fault.Invalid("a Ring needs one hash tag for all keys of a lock, and for its FenceKey, as in {order:7}:stock")
	case opt.AcrossSlots && opt.Token != "" && c.one.Redis.IsCluster():
		return fault.Invalid("Token does not work with AcrossSlots for keys without a common hash tag; %s", insteadOfToken)
	}
	return nil
}

// insteadOfToken says what to do instead of choosing the token of a lock on several servers or slots.
const insteadOfToken = "let the library choose the token, and resume or share the lock with Attach"

// haveOneTag reports whether all keys, and the fence key if there is one, have the same hash tag. One key has.
func haveOneTag(keys []string, fenceKey string) bool {
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

// checkLines returns an error if one of the keys can have no line, so that nobody can wait for it.
func checkLines(keys []string) error {
	for _, key := range keys {
		if !keyname.HasLine(key) {
			return fault.Invalid("key %q has a brace but no hash tag, or repeats itself as its hash tag, so there is no place "+
				"beside it for the line of Queue; name it without braces, or with a tag, as in {order:7}:stock", key)
		}
	}
	return nil
}

// placesFor returns the places of a lock, or nil if one script can hold all of its keys, which it checks. across allows
// for several slots. It does no I/O.
func (c *Client) placesFor(keys []string, fenceKey string, across bool) (*several.Group, error) {
	if c.quorum != nil {
		return c.quorum.With(keys)
	}
	divided := across && c.one.Redis.IsCluster() && !haveOneTag(keys, fenceKey)
	if divided && len(transport.GroupBySlot(script.WithFence(keys, fenceKey))) > 1 { // the fence key can be elsewhere
		return several.NewSlots(c.one, keys, &c.config)
	}
	return nil, script.TooMany(len(keys))
}
