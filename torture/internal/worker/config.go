// Package worker is the part of a torture run that uses the library: a process that obtains, keeps, loses and releases
// locks in every way that the public API has, and writes down what it was promised.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// Endpoint is where the locks are.
type Endpoint struct {
	Topology string   // one, memory, sentinel, cluster or quorum
	Addrs    []string // of the server, the sentinels, the nodes, or the independent servers
	Master   string   // the name that sentinels have for it
}

// Config is what a worker must know.
type Config struct {
	Worker     string // "‹slot›.‹how many before›"
	Seed       uint64
	Endpoint   Endpoint
	Via        map[string]string // addresses to be reached through others
	Store      string            // the socket of the guarded store
	History    string            // the file to write
	Goroutines int
	Until      int64 // when to begin nothing more
	Groups     int   // of keys; the keys of a lock are of one group
	Keys       int   // of a group
	Hot        int   // of these, how many are fought for
}

// Read reads the configuration from a file.
func Read(name string) (*Config, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := new(Config)
	return c, json.Unmarshal(text, c)
}

// Write writes the configuration to a file.
func (c *Config) Write(name string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// key returns the key with that number in a group. On a Cluster, the keys of a group are in one slot.
func key(group, number int) string { return fmt.Sprintf("{%c}:%d", 'a'+group, number) }

// FenceSuffix ends the names of the counters of fencing tokens. They have no expiry.
const FenceSuffix = ":fence"

// The Redis client gives a server up sooner than by default, so that more happens in the time there is.
const (
	dialTimeout = 500 * time.Millisecond
	readTimeout = 700 * time.Millisecond
	poolSize    = 40
)

// dial connects to addr, or to what is to be used in its place.
func (c *Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if via := c.Via[addr]; via != "" {
		addr = via
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
}

// backend makes the clients of the library, and closes what they are made of.
type backend struct {
	client redislock.RedisClient // nil for a quorum
	make   func(...redislock.ClientOption) *redislock.Client
	close  func()
}

func (c *Config) connect() (*backend, error) {
	single := func(addr string) *redis.Client {
		return redis.NewClient(&redis.Options{
			Addr: addr, Dialer: c.dial, DialTimeout: dialTimeout, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
			PoolSize: poolSize,
		})
	}
	var client interface {
		redislock.RedisClient
		Close() error
	}
	switch e := c.Endpoint; e.Topology {
	case "one", "memory":
		client = single(e.Addrs[0])
	case "sentinel":
		client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: e.Master, SentinelAddrs: e.Addrs, Dialer: c.dial, DialTimeout: dialTimeout,
			ReadTimeout: readTimeout, WriteTimeout: readTimeout, PoolSize: poolSize,
		})
	case "cluster":
		client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: e.Addrs, Dialer: c.dial, DialTimeout: dialTimeout, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
			PoolSize: poolSize,
		})
	case "quorum":
		return c.connectQuorum(single), nil
	default:
		return nil, fmt.Errorf("there is no topology %q", e.Topology)
	}
	return &backend{
		client: client,
		make:   func(opts ...redislock.ClientOption) *redislock.Client { return redislock.New(client, opts...) },
		close:  func() { _ = client.Close() },
	}, nil
}
