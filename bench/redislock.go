package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/redislockrueidis"
)

// newGoRedis returns a client for a library that builds on go-redis: with the defaults, and with its own pool.
func newGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr})
}

// newGoRedisEach returns a client for each server, and the same clients again for closeAll.
func newGoRedisEach(addrs []string) (clients []*redis.Client, closers []io.Closer) {
	for _, addr := range addrs {
		client := newGoRedis(addr)
		clients, closers = append(clients, client), append(closers, client)
	}
	return clients, closers
}

// newGoRedisCluster is newGoRedis for a Cluster.
func newGoRedisCluster(addrs []string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
}

// closeRedislock closes a Client of this library, and then its Redis clients.
func closeRedislock(locks *redislock.Client, clients ...io.Closer) func() error {
	return func() error { return errors.Join(locks.Close(), closeAll(clients)) }
}

// closeAll closes all clients.
func closeAll(clients []io.Closer) error {
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func openRedislock(addr string) (*locker, error) {
	locks, end := newOneClient([]string{addr})
	return oneServerLocker(thisLibrary, "nil options: one try; the go-redis client has its defaults", locks, end), nil
}

// overRueidis is the name of this library with an adapter in place of go-redis.
const overRueidis = thisLibrary + ", over rueidis"

func openRedislockOverRueidis(addr string) (*locker, error) {
	locks, end := newRueidisClient([]string{addr})
	const settings = "redislockrueidis, nil options: one try; the rueidis client has its defaults"
	return oneServerLocker(overRueidis, settings, locks, end), nil
}

func oneServerLocker(name, settings string, locks *redislock.Client, end func() error) *locker {
	return &locker{
		name:     name,
		settings: settings,
		sends:    scripts,
		pair: func(ctx context.Context, keys []string) error {
			var lock *redislock.Lock
			var err error
			if len(keys) == 1 {
				lock, err = locks.Obtain(ctx, keys[0], ttl, nil)
			} else {
				lock, err = locks.ObtainMulti(ctx, keys, ttl, nil)
			}
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		},
		close: end,
	}
}

func openRedislockQuorum(addrs []string) (*locker, error) {
	return newRedislockLocker(newQuorumClient, addrs, nil), nil
}

func openRedislockSlots(addrs []string) (*locker, error) {
	return newRedislockLocker(newClusterClient, addrs, &redislock.Options{AcrossSlots: true}), nil
}

// newRedislockLocker returns a locker that obtains as opt says.
func newRedislockLocker(connect connectRedislock, addrs []string, opt *redislock.Options) *locker {
	locks, end := connect(addrs)
	return &locker{
		name:  thisLibrary,
		sends: scripts,
		pair: func(ctx context.Context, keys []string) error {
			lock, err := locks.ObtainMulti(ctx, keys, ttl, opt)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		},
		close: end,
	}
}

// connectRedislock returns a Client on the servers at addrs, and a function that closes it and its Redis clients.
type connectRedislock func(addrs []string) (_ *redislock.Client, end func() error)

// newOneClient connects to one server.
func newOneClient(addrs []string) (*redislock.Client, func() error) {
	client := newGoRedis(addrs[0])
	locks := redislock.New(client)
	return locks, closeRedislock(locks, client)
}

// newRueidisClient connects to one server, by rueidis. If that fails, each call returns an error.
func newRueidisClient(addrs []string) (*redislock.Client, func() error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs[:1]})
	locks := redislock.New(redislockrueidis.Adapt(client))
	return locks, func() error {
		if err != nil {
			return err
		}
		defer client.Close()
		return locks.Close()
	}
}

// newQuorumClient connects to a quorum of servers.
func newQuorumClient(addrs []string) (*redislock.Client, func() error) {
	each, closers := newGoRedisEach(addrs)
	clients := make([]redislock.RedisClient, len(each))
	for i, client := range each {
		clients[i] = client
	}
	locks := redislock.NewQuorum(clients)
	return locks, closeRedislock(locks, closers...)
}

// newClusterClient connects to a Cluster.
func newClusterClient(addrs []string) (*redislock.Client, func() error) {
	client := newGoRedisCluster(addrs)
	locks := redislock.New(client)
	return locks, closeRedislock(locks, client)
}

// redislockContender contends through this library, as opt says.
func redislockContender(
	name, settings string, connect connectRedislock, opt *redislock.Options,
) contender {
	return contender{
		name: name, settings: settings, sends: []string{"evalsha", "eval", "subscribe", "unsubscribe", "ping"},
		open: func(addrs []string) (obtainFunc, error) {
			locks, _ := connect(addrs) // the end of the process closes them
			return func(ctx context.Context, keys []string) (func() error, error) {
				lock, err := locks.ObtainMulti(ctx, keys, ttl, opt)
				if err != nil {
					return nil, err
				}
				return func() error { return lock.Release(ctx) }, nil
			}, nil
		},
	}
}

// redislockKeeper returns a function that opens this library as a keeper.
func redislockKeeper(connect connectRedislock) func(addr string, ttl time.Duration) (*keeper, error) {
	return func(addr string, ttl time.Duration) (*keeper, error) {
		locks, end := connect([]string{addr})
		return &keeper{
			redisKey: func(name string) string { return name },
			keep: func(ctx context.Context, name string) (context.Context, func() error, error) {
				lock, err := locks.Obtain(ctx, name, ttl, nil)
				if err != nil {
					return nil, nil, err
				}
				held, stop := lock.KeepAlive(ctx)
				return held, func() error {
					stop()
					return lock.Release(ctx)
				}, nil
			},
			close: end,
		}, nil
	}
}
