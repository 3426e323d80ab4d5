package redislock_test

import (
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Specs run once more through an adapter. The modules of other clients put a file of their own in the place of this one.
func init() {
	spec.Through("adapter", func() {
		redislock.Instead(func(client *redis.Client) redislock.RedisClient {
			return redislock.Adapt(spec.Adapter{Client: client})
		})
	})
}
