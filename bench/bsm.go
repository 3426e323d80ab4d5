package main

import (
	"context"

	"github.com/bsm/redislock"
)

func openBSM(addr string) (*locker, error) {
	client := newGoRedis(addr)
	locks := redislock.New(client)
	return &locker{
		name:     "bsm/redislock",
		settings: "nil options: one try; the go-redis client has its defaults",
		sends:    scripts,
		pair: func(ctx context.Context, keys []string) error {
			if len(keys) == 1 {
				lock, err := locks.Obtain(ctx, keys[0], ttl, nil)
				if err != nil {
					return err
				}
				return lock.Release(ctx)
			}
			held := make([]*redislock.Lock, len(keys))
			for i, key := range keys {
				var err error
				if held[i], err = locks.Obtain(ctx, key, ttl, nil); err != nil {
					return err
				}
			}
			for _, lock := range held {
				if err := lock.Release(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		close: client.Close,
	}, nil
}

// bsmContender contends through bsm/redislock. Its strategies count, so that each call needs a new one.
func bsmContender(name, settings string, strategy func() redislock.RetryStrategy) contender {
	return contender{
		name: name, settings: settings, sends: scripts,
		open: func(addrs []string) (obtainFunc, error) {
			locks := redislock.New(newGoRedis(addrs[0]))
			return inTurn(func(ctx context.Context, key string) (func() error, error) {
				lock, err := locks.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: strategy()})
				if err != nil {
					return nil, err
				}
				return func() error { return lock.Release(ctx) }, nil
			}), nil
		},
	}
}
