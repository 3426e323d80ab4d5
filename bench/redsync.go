package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// redsyncCommands are what redsync sends.
var redsyncCommands = []string{"set", "setnx", "evalsha", "eval"}

func openRedsync(addr string) (*locker, error) {
	client := newGoRedis(addr)
	locks := redsync.New(goredis.NewPool(client))
	return &locker{
		name: "redsync",
		settings: "one pool, a Mutex for each lock, WithExpiry, TryLockContext: one try; the go-redis client has its " +
			"defaults",
		sends: redsyncCommands,
		pair: func(ctx context.Context, keys []string) error {
			held := make([]*redsync.Mutex, len(keys))
			for i, key := range keys {
				held[i] = locks.NewMutex(key, redsync.WithExpiry(ttl))
				if err := held[i].TryLockContext(ctx); err != nil {
					return err
				}
			}
			for _, mutex := range held {
				if err := unlockRedsync(ctx, mutex); err != nil {
					return err
				}
			}
			return nil
		},
		close: client.Close,
	}, nil
}

// unlockRedsync makes an error of what redsync reports in two ways.
func unlockRedsync(ctx context.Context, mutex *redsync.Mutex) error {
	released, err := mutex.UnlockContext(ctx)
	if err == nil && !released {
		return errors.New("the lock was lost")
	}
	return err
}

// redsyncContender contends through redsync, with further options.
func redsyncContender(name, settings string, options ...redsync.Option) contender {
	options = append([]redsync.Option{redsync.WithExpiry(ttl)}, options...)
	return contender{
		name: name, settings: settings, sends: redsyncCommands,
		open: func(addr string) (obtainFunc, error) {
			locks := redsync.New(goredis.NewPool(newGoRedis(addr)))
			return func(ctx context.Context, key string) (func() error, error) {
				mutex := locks.NewMutex(key, options...)
				if err := mutex.LockContext(ctx); err != nil {
					return nil, err
				}
				return func() error { return unlockRedsync(ctx, mutex) }, nil
			}, nil
		},
	}
}
