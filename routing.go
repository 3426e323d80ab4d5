package redislock

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// server returns the server that has the key, so that what goes there can go together; nil for a type of the caller's
// own, behind which nobody can look.
func (n *node) server(key string) (*redis.Client, error) {
	switch {
	case n.cluster != nil:
		return n.cluster.MasterForKey(context.Background(), key)
	case n.ring != nil:
		return n.ring.GetShardClientForKey(key)
	}
	return n.single, nil
}

// together returns the keys, by their indices, in the groups of which each can be sent in one command.
func (n *node) together(keys []string) ([][]int, error) {
	if n.ring != nil {
		return grouped(keys, n.ring.GetShardClientForKey)
	}
	if n.cluster != nil {
		return grouped(keys, func(key string) (int, error) { return slot(key), nil })
	}
	return grouped(keys, func(string) (struct{}, error) { return struct{}{}, nil })
}

func grouped[P comparable](keys []string, place func(string) (P, error)) ([][]int, error) {
	var groups [][]int
	index := map[P]int{}
	for i, key := range keys {
		p, err := place(key)
		if err != nil {
			return nil, err
		}
		at, known := index[p]
		if !known {
			at = len(groups)
			index[p] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], i)
	}
	return groups, nil
}

// onOneShard returns an error if the client is a Ring and keys are on several of its shards. A Ring sends a command to
// the shard of its first key, so the others would be locked where nobody else looks for them.
func (n *node) onOneShard(operation string, keys []string) error {
	if n.ring == nil || len(keys) < 2 {
		return nil
	}
	shards, err := n.together(keys)
	if err != nil {
		return failed(operation, keys, err)
	}
	if len(shards) > 1 {
		return invalid("%q and %q are on different shards of the Ring; give all keys of a lock one hash tag, "+
			"as in {order:7}:stock", keys[0], keys[shards[1][0]])
	}
	return nil
}

// explain adds to an answer of the server what it means and how to mend it, where the server's words do not say.
func explain(keys []string, err error) error {
	if line := lineOf(keys[0]); line != "" && redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "key") {
		return fmt.Errorf("the user needs rights to the keys of the lock and to their lines, like %q: %w", line, err)
	}
	if !redis.HasErrorPrefix(err, "CROSSSLOT") {
		return err
	}
	for _, key := range keys {
		if slot(key) != slot(keys[0]) {
			return fmt.Errorf("%q is in slot %d and %q in slot %d; give all keys of a lock one hash tag, "+
				"as in {order:7}:stock: %w", keys[0], slot(keys[0]), key, slot(key), err)
		}
	}
	return err
}

// slot returns the Cluster slot of key: CRC-16/XMODEM of its hash tag, or of the whole key, modulo 16384, as the Redis
// Cluster specification lays down.
func slot(key string) int {
	if hashTag, ok := tag(key); ok {
		key = hashTag
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % 16384)
}

// tag returns the hash tag of key, what stands between its first { and the next }, if there is anything.
func tag(key string) (string, bool) {
	_, rest, opened := strings.Cut(key, "{")
	hashTag, _, closed := strings.Cut(rest, "}")
	return hashTag, opened && closed && hashTag != ""
}
