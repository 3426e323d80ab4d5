package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// newGoRedis returns the client of everybody who builds on go-redis: with its defaults, and with a pool of its own.
func newGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr})
}

// closeRedislock closes this library and then the client below it.
func closeRedislock(locks *redislock.Client, client *redis.Client) func() error {
	return func() error { return errors.Join(locks.Close(), client.Close()) }
}

func openRedislock(addr string) (*locker, error) {
	client := newGoRedis(addr)
	locks := redislock.New(client)
	return &locker{
		name:     thisLibrary,
		settings: "nil options: one try; the go-redis client has its defaults",
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
		close: closeRedislock(locks, client),
	}, nil
}

// redislockContender contends through this library, as opt says.
func redislockContender(name, settings string, opt *redislock.Options) contender {
	return contender{
		name: name, settings: settings, sends: []string{"evalsha", "eval", "subscribe", "unsubscribe", "ping"},
		open: func(addr string) (obtainFunc, error) {
			locks := redislock.New(newGoRedis(addr))
			return func(ctx context.Context, key string) (func() error, error) {
				lock, err := locks.Obtain(ctx, key, ttl, opt)
				if err != nil {
					return nil, err
				}
				return func() error { return lock.Release(ctx) }, nil
			}, nil
		},
	}
}

func openRedislockKeeper(addr string, ttl time.Duration) (*keeper, error) {
	client := newGoRedis(addr)
	locks := redislock.New(client)
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
		close: closeRedislock(locks, client),
	}, nil
}
