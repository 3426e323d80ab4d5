package redistest

import "github.com/redislock/redislock/internal/transport"

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// SlotOf returns the hash slot of a key.
func SlotOf(key string) int { return transport.Slot(key) }
