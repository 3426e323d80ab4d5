package transport

import (
	"github.com/redislock/redislock/internal/keyname"
)

// serverOf returns the server that has the keys of the call, so that calls to one server can go together. It returns nil if
// each call has to go by itself.
func (r *Redis) serverOf(c *Call) (Node, error) {
	switch {
	case !r.Shares:
		return nil, nil
	case r.single != nil:
		return r.single, nil
	}
	return r.conn.Node(c.someKey())
}

// someKey returns the first of KEYS. All are on one server.
func (c *Call) someKey() string {
	if len(c.Keys) == 0 {
		return c.Spare[0].(string)
	}
	return c.Keys[0].(string)
}

// pool returns the server to which a call goes; nil if that is not known. On a Cluster it may ask the servers.
func (r *Redis) pool(c *Call) Node {
	node, err := r.conn.Node(c.someKey())
	if err != nil {
		return nil
	}
	return node
}

// Server returns the address of the Cluster's node that has the key. It is "" on anything but a Cluster, and as long as
// that is not known without asking.
func (r *Redis) Server(key string) string {
	if r.Reach != Slots || !r.reached.Load() {
		return ""
	}
	node, err := r.conn.Node(key)
	if err != nil || node == nil {
		return ""
	}
	return node.Address()
}

// IsRing reports whether the Redis is a Ring. A Ring sends a command to the shard of its first key, wherever the other
// keys are.
func (r *Redis) IsRing() bool { return r.Reach == Shards }

// IsCluster reports whether the Redis is a Cluster, where a command reaches the keys of one slot.
func (r *Redis) IsCluster() bool { return r.Reach == Slots }

// IsSingle reports whether the Redis is one server, or one behind Sentinel, as far as the Redis client knows. Then
// scripts and subscriptions are on the same server.
func (r *Redis) IsSingle() bool { return r.Reach == OneServer }

// Group returns the indices of keys in groups, such that one command can hold the keys of a group.
func (r *Redis) Group(keys []string) ([][]int, error) {
	switch r.Reach {
	case Shards:
		return grouped(keys, r.conn.Node)
	case Slots:
		return GroupBySlot(keys), nil
	}
	return grouped(keys, func(string) (struct{}, error) { return struct{}{}, nil })
}

// GroupBySlot does what Group does on a Cluster.
func GroupBySlot(keys []string) [][]int {
	groups, _ := grouped(keys, func(key string) (int, error) { return Slot(key), nil })
	return groups
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

// Slot returns the Cluster slot of key, as the Redis Cluster specification defines it: CRC-16/XMODEM of its hash tag,
// or of the whole key, modulo 16384.
func Slot(key string) int {
	if hashTag, ok := keyname.HashTag(key); ok {
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
