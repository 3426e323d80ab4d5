package main

import (
	"context"

	"github.com/bsm/redislock"
)

const bsmRedislock = "bsm/redislock"

func openBSM(addr string) (*locker, error) {
	client := newGoRedis(addr)
	locks := redislock.New(client)
	return &locker{
		name:     bsmRedislock,
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
		close: client.Close,
	}, nil
}

// bsmBeside is the name of the locker that runs only in the cells with a ctx that can be cancelled.
const bsmBeside = "bsm/redislock, in goroutines"

// openBSMBeside is the lower bound of a library that builds on go-redis and returns when ctx is cancelled: the scripts of
// bsm/redislock, each call in a goroutine beside its caller. It does not free what a call acquires after that.
func openBSMBeside(addr string) (*locker, error) {
	client := newGoRedis(addr)
	locks, calls := redislock.New(client), newBeside()
	return &locker{
		name:     bsmBeside,
		settings: "each call in a goroutine that waits for calls, so that the caller can return when ctx is cancelled",
		sends:    scripts,
		pair: func(ctx context.Context, keys []string) error {
			var lock *redislock.Lock
			err := calls.do(ctx, func() (err error) {
				lock, err = locks.Obtain(ctx, keys[0], ttl, nil)
				return err
			})
			if err != nil {
				return err
			}
			return calls.do(ctx, func() error { return lock.Release(ctx) })
		},
		close: func() error {
			calls.close()
			return client.Close()
		},
	}, nil
}

// bsmContender contends through bsm/redislock. Its strategies count, so each call needs a new one.
func bsmContender(name, settings string, strategy func() redislock.RetryStrategy) contender {
	return contender{
		name: name, settings: settings, sends: scripts,
		open: func(addrs []string) (obtainFunc, error) {
			locks := redislock.New(newGoRedis(addrs[0]))
			return func(ctx context.Context, keys []string) (func() error, error) {
				lock, err := locks.ObtainMulti(ctx, keys, ttl, &redislock.Options{RetryStrategy: strategy()})
				if err != nil {
					return nil, err
				}
				return func() error { return lock.Release(ctx) }, nil
			}, nil
		},
	}
}
