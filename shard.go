package redislock

import (
	"context"

	"github.com/redislock/redislock/internal/keyname"
)

// checkShard returns an error if the Redis is a Ring and the keys may be on different shards. A Ring sends a command to
// the shard of its first key, so the other keys would be locked where nobody else looks for them. If hooks, or a type
// that embeds the Ring, rewrite keys, the shard of a name is not known here, and only a common hash tag keeps the keys
// together.
//
// checkShard does no I/O, except for the first keys without a common hash tag: then it sends a call that changes
// nothing, to learn whether anything rewrites keys.
func (c *Client) checkShard(ctx context.Context, operation string, keys []string) error {
	if !c.redis.IsRing() || haveOneTag(keys) {
		return nil
	}
	shards, err := c.redis.Group(keys)
	if err != nil {
		return failed(operation, keys, err)
	}
	if len(shards) > 1 {
		return invalid("%q and %q are on different shards of the Ring; give all keys of a lock one hash tag, "+
			"as in {order:7}:stock, or set AcrossSlots", keys[0], keys[shards[1][0]])
	}
	return c.checkHooks(ctx, operation, keys)
}

// checkHooks returns an error if hooks of a Ring, or a type that embeds it, may rewrite keys.
func (c *Client) checkHooks(ctx context.Context, operation string, keys []string) error {
	separates, known := c.redis.Separates()
	if !known {
		if _, err := c.ask(operation, keys, newInspect(ctx, keys[:1], false)); err != nil {
			return err
		}
		separates, _ = c.redis.Separates()
	}
	if separates {
		return invalid("hooks of the Ring, or a type that embeds it, may rewrite keys, so %q and %q may be on different "+
			"shards; give all keys of a lock one hash tag, as in {order:7}:stock", keys[0], keys[1])
	}
	return nil
}

// haveOneTag reports whether all keys have the same hash tag.
func haveOneTag(keys []string) bool {
	if len(keys) < 2 {
		return true
	}
	first, tagged := keyname.HashTag(keys[0])
	for _, key := range keys[1:] {
		if tag, ok := keyname.HashTag(key); !tagged || !ok || tag != first {
			return false
		}
	}
	return true
}
