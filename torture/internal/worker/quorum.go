package worker

import (
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// connectQuorum connects to several independent servers.
func (c *Config) connectQuorum(single func(addr string) *redis.Client) *backend {
	var clients []redislock.RedisClient
	var closers []func() error
	for _, addr := range c.Endpoint.Addrs {
		client := single(addr)
		clients = append(clients, client)
		closers = append(closers, client.Close)
	}
	return &backend{
		make: func(opts ...redislock.ClientOption) *redislock.Client { return redislock.NewQuorum(clients, opts...) },
		close: func() {
			for _, closeOne := range closers {
				_ = closeOne()
			}
		},
	}
}
