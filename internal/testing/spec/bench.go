package spec

import (
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// Briefly returns how long a benchmark does what it otherwise does for d: a tenth of that with -short.
func Briefly(d time.Duration) time.Duration {
	if testing.Short() {
		return d / 10
	}
	return d
}

// BenchClient returns a client of a redis-server of its own, or of an in-memory one where there is no redis-server.
func BenchClient(b *testing.B) *redis.Client {
	b.Helper()
	var addr string
	if redistest.Available() == nil {
		server, err := redistest.Start()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = server.Close() })
		addr = server.Addr()
	} else {
		b.Log("on miniredis: the figures say little")
		m := miniredis.RunT(b)
		incarnation.Of(m)
		addr = m.Addr()
	}
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64})
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// BenchKeys returns the names of n lock keys.
func BenchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "bench:" + strconv.Itoa(i)
	}
	return keys
}
