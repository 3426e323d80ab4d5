package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// redsyncCommands are what redsync sends.
var redsyncCommands = []string{"set", "setnx", "evalsha", "eval"}

// connectRedsync returns pools on the servers at addrs, and a function that closes them.
type connectRedsync func(addrs []string) (_ []redsyncredis.Pool, end func() error)

// redsyncPools returns a pool for each server.
func redsyncPools(addrs []string) ([]redsyncredis.Pool, func() error) {
	clients, closers := newGoRedisEach(addrs)
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	return pools, func() error { return closeAll(closers) }
}

// redsyncClusterPool returns one pool for a Cluster.
func redsyncClusterPool(addrs []string) ([]redsyncredis.Pool, func() error) {
	client := newGoRedisCluster(addrs)
	return []redsyncredis.Pool{goredis.NewPool(client)}, client.Close
}

func openRedsync(addrs []string) (*locker, error) { return newRedsyncLocker(redsyncPools, addrs), nil }

func openRedsyncSlots(addrs []string) (*locker, error) {
	return newRedsyncLocker(redsyncClusterPool, addrs), nil
}

func newRedsyncLocker(connect connectRedsync, addrs []string) *locker {
	pools, end := connect(addrs)
	locks := redsync.New(pools...)
	return &locker{
		name: "redsync",
		settings: "a pool for each server, a Mutex for each lock, WithExpiry, TryLockContext: one try; the go-redis clients " +
			"have their defaults",
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
		close: end,
	}
}

// unlockRedsync returns one error for the two results of redsync.
func unlockRedsync(ctx context.Context, mutex *redsync.Mutex) error {
	released, err := mutex.UnlockContext(ctx)
	if err == nil && !released {
		return errors.New("the lock was lost")
	}
	return err
}

// redsyncContender contends through redsync, with further options.
func redsyncContender(
	name, settings string, connect connectRedsync, options ...redsync.Option,
) contender {
	options = append([]redsync.Option{redsync.WithExpiry(ttl)}, options...)
	return contender{
		name: name, settings: settings, sends: redsyncCommands,
		open: func(addrs []string) (obtainFunc, error) {
			pools, _ := connect(addrs) // the end of the process closes them
			locks := redsync.New(pools...)
			return inTurn(func(ctx context.Context, key string) (func() error, error) {
				mutex := locks.NewMutex(key, options...)
				if err := mutex.LockContext(ctx); err != nil {
					return nil, err
				}
				return func() error { return unlockRedsync(ctx, mutex) }, nil
			}), nil
		},
	}
}
