package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockSettings are the settings of its README for one server, with a key for each server of a quorum. By default,
// rueidislock limits each request to a TryNextAfter of 20 ms, so that it tries the next server soon. With one server,
// that is only an error on a slow machine.
const rueidislockSettings = "KeyMajority 1 (2 or 3 for a quorum of 3 or 5: so many keys on the first server), " +
	"NoLoopTracking, KeyValidity as the others' ttl, TryNextAfter 1 s"

func newRueidislock(addrs []string, validity time.Duration) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs[:1]},
		KeyMajority:    int32(len(addrs)/2 + 1),
		NoLoopTracking: true,
		KeyValidity:    validity,
		TryNextAfter:   time.Second,
	})
}

func openRueidislock(addrs []string) (*locker, error) {
	locks, err := newRueidislock(addrs, ttl)
	if err != nil {
		return nil, err
	}
	return &locker{
		name: "rueidislock",
		settings: rueidislockSettings + ", TryWithContext: one try; it always keeps a lock alive; its release waits for " +
			"the reply, but tells no error",
		sends: scripts,
		pair: func(ctx context.Context, keys []string) error {
			if len(keys) == 1 {
				_, release, err := locks.TryWithContext(ctx, keys[0])
				if err != nil {
					return err
				}
				release()
				return nil
			}
			held := make([]context.CancelFunc, len(keys))
			for i, key := range keys {
				var err error
				if _, held[i], err = locks.TryWithContext(ctx, key); err != nil {
					return err
				}
			}
			for _, release := range held {
				release()
			}
			return nil
		},
		close: closeRueidislock(locks),
	}, nil
}

func closeRueidislock(locks rueidislock.Locker) func() error {
	return func() error {
		locks.Close()
		return nil
	}
}

// rueidislockContender waits for the invalidation of the key that it caches on the client's side.
func rueidislockContender() contender {
	return contender{
		name: "rueidislock", settings: rueidislockSettings + ", WithContext: waits for invalidations", sends: scripts,
		open: func(addrs []string) (obtainFunc, error) {
			locks, err := newRueidislock(addrs, ttl)
			if err != nil {
				return nil, err
			}
			return inTurn(func(ctx context.Context, key string) (func() error, error) {
				_, release, err := locks.WithContext(ctx, key)
				if err != nil {
					return nil, err
				}
				return func() error { release(); return nil }, nil
			}), nil
		},
	}
}

func openRueidislockKeeper(addr string, ttl time.Duration) (*keeper, error) {
	locks, err := newRueidislock([]string{addr}, ttl)
	if err != nil {
		return nil, err
	}
	return &keeper{
		redisKey: func(name string) string { return "rueidislock:0:" + name },
		keep: func(ctx context.Context, name string) (context.Context, func() error, error) {
			held, release, err := locks.TryWithContext(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			return held, func() error { release(); return nil }, nil
		},
		close: closeRueidislock(locks),
	}, nil
}
