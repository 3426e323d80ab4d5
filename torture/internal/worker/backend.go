package worker

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/redislockrueidis"
	"github.com/redislock/redislock/redislockvalkey"
	"github.com/redislock/redislock/torture/internal/clock"
)

// Clients are the names of the clients of Redis that a worker can have.
var Clients = []string{"go-redis", "rueidis", "valkey"}

// A client gives a server up sooner than by default, so that more happens in a round.
const (
	dialTimeout = 500 * time.Millisecond
	readTimeout = 700 * time.Millisecond
	poolSize    = 40
	redirects   = 3 // as go-redis follows by default
)

// dial connects to addr, or to the address in Via.
func (c *Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if via := c.Via[addr]; via != "" {
		addr = via
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
}

// backend is the Redis of one user, or the independent servers of a quorum.
type backend struct {
	client  redislock.RedisClient // for the functions that need no Client; nil for a quorum, and with a guard
	clients []redislock.RedisClient
	closes  []func()
	guard   Guard
}

// newClient returns a Client of the library.
func (b *backend) newClient(opts ...redislock.ClientOption) *redislock.Client {
	if b.guard.MaxTTL > 0 {
		opts = append(opts, redislock.WithGuard(b.guard.MaxTTL, b.guard.Deposed))
	}
	return redislock.NewQuorum(b.clients, opts...)
}

func (b *backend) close() {
	for _, f := range b.closes {
		f()
	}
}

// connectSoon is connect, again and again until a while after the end of the work: the other clients than go-redis connect
// at once, perhaps to a server that is down.
func (c *Config) connectSoon() (*backend, error) {
	for {
		b, err := c.connect()
		if err == nil || clock.Now() > c.Until+int64(10*time.Second) {
			return b, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// connect connects to the servers of the Endpoint, each of which is a place of its own in a quorum.
func (c *Config) connect() (*backend, error) {
	e := c.Endpoint
	places := [][]string{e.Addrs}
	if e.Topology == "quorum" {
		places = nil
		for _, addr := range e.Addrs {
			places = append(places, []string{addr})
		}
	}
	b := &backend{guard: e.Guard}
	for _, addrs := range places {
		client, end, err := c.connectTo(addrs)
		if err != nil {
			b.close()
			return nil, err
		}
		b.clients, b.closes = append(b.clients, client), append(b.closes, end)
	}
	if len(b.clients) == 1 && b.guard.MaxTTL == 0 {
		b.client = b.clients[0]
	}
	return b, nil
}

func (c *Config) connectTo(addrs []string) (client redislock.RedisClient, end func(), err error) {
	switch c.Client {
	case "go-redis":
		client := c.goRedis(addrs)
		return client, func() { _ = client.Close() }, nil
	case "rueidis":
		client, err := c.rueidis(addrs)
		if err != nil {
			return nil, nil, err
		}
		return redislockrueidis.Adapt(client), client.Close, nil
	case "valkey":
		client, err := c.valkey(addrs)
		if err != nil {
			return nil, nil, err
		}
		return redislockvalkey.Adapt(client), client.Close, nil
	}
	return nil, nil, fmt.Errorf("there is no client %q", c.Client)
}

func (c *Config) goRedis(addrs []string) interface {
	redislock.RedisClient
	io.Closer
} {
	switch c.Endpoint.Topology {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: c.Endpoint.Master, SentinelAddrs: addrs, Dialer: c.dial, DialTimeout: dialTimeout,
			ReadTimeout: readTimeout, WriteTimeout: readTimeout, PoolSize: poolSize,
		})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, Dialer: c.dial, DialTimeout: dialTimeout, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
			PoolSize: poolSize,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: addrs[0], Dialer: c.dial, DialTimeout: dialTimeout, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
		PoolSize: poolSize,
	})
}

func (c *Config) rueidis(addrs []string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: addrs, Sentinel: rueidis.SentinelOption{MasterSet: c.Endpoint.Master},
		ForceSingleClient: c.Endpoint.Topology != "cluster", ConnWriteTimeout: readTimeout, DisableCache: true,
		ClusterOption: rueidis.ClusterOption{MaxMovedRedirections: redirects},
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return c.dial(ctx, "tcp", addr)
		},
	})
}

func (c *Config) valkey(addrs []string) (valkey.Client, error) {
	return valkey.NewClient(valkey.ClientOption{
		InitAddress: addrs, Sentinel: valkey.SentinelOption{MasterSet: c.Endpoint.Master},
		ForceSingleClient: c.Endpoint.Topology != "cluster", ConnWriteTimeout: readTimeout, DisableCache: true,
		ClusterOption: valkey.ClusterOption{MaxMovedRedirections: redirects},
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return c.dial(ctx, "tcp", addr)
		},
	})
}
