package worker

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// newQuorum is the constructor of a Client over several independent servers; nil while the library has none.
var newQuorum func([]redislock.RedisClient, ...redislock.ClientOption) *redislock.Client

// HasQuorum reports whether the library can lock on a quorum of servers.
func HasQuorum() bool { return newQuorum != nil }

func (c *Config) connectQuorum(single func(addr string) *redis.Client) (*backend, error) {
	if !HasQuorum() {
		return nil, errors.New("the library has no quorum")
	}
	var clients []redislock.RedisClient
	var closers []func() error
	for _, addr := range c.Endpoint.Addrs {
		client := single(addr)
		clients = append(clients, client)
		closers = append(closers, client.Close)
	}
	return &backend{
		make: func(opts ...redislock.ClientOption) *redislock.Client { return newQuorum(clients, opts...) },
		close: func() {
			for _, closeOne := range closers {
				_ = closeOne()
			}
		},
	}, nil
}
