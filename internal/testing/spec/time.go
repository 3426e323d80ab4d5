package spec

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// OnFakeTime runs test in a bubble of its own, on an in-memory Redis behind a network that takes no time, and that the test
// can break.
func OnFakeTime(t *testing.T, test func(t *testing.T, locks *redislock.Client, client *redis.Client, server *MemoryServer)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		server := newMemoryServer()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0", Dialer: server.Dialer(Ours), PoolSize: 100})
		locks := redislock.New(client)
		defer func() {
			_ = locks.Close()
			_ = client.Close()
			server.End()
			time.Sleep(10 * time.Second) // go-redis may be about to send a greeting again
		}()
		test(t, locks, client, server)
	})
}
