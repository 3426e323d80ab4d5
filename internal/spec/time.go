package spec

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/bubble"
)

// Silence is a network on which replies are lost while it is on.
type Silence struct {
	On     atomic.Bool
	Server *miniredis.Miniredis
}

func (s *Silence) dial(context.Context, string, string) (net.Conn, error) {
	conn, err := s.Server.Dial()
	return &silentConn{Conn: conn, silence: s}, err
}

type silentConn struct {
	net.Conn
	silence *Silence
	lost    bool // a reply was lost, and so the connection is out of step
}

func (c *silentConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.lost = c.lost || err == nil && c.silence.On.Load()
		if !c.lost || err != nil {
			return n, err
		}
	}
}

// OnFakeTime runs test in a bubble of its own, on an in-memory Redis behind a network that can fall silent.
func OnFakeTime(t *testing.T, test func(t *testing.T, locks *redislock.Client, client *redis.Client, network *Silence)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		network := &Silence{Server: miniredis.NewMiniRedis()}
		network.Server.ClockTTL(true)
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0", Dialer: network.dial, PoolSize: 100})
		locks := redislock.New(client)
		defer func() {
			_ = locks.Close()
			_ = client.Close()
			network.Server.Close()
		}()
		test(t, locks, client, network)
	})
}
