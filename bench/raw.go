package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// token is the token of contestants that make none. It is as long as a token of this library.
const token = "q83vEjRWeJCrze8SNFZ4kA"

// The names of the clients without a library.
const (
	rawGoRedis = "raw go-redis"
	rawRueidis = "raw rueidis"
)

// openRawGoRedis is the lower bound of a library that builds on go-redis: a lock without an owner.
func openRawGoRedis(addr string) (*locker, error) {
	client := newGoRedis(addr)
	return &locker{
		name:     rawGoRedis,
		settings: "SET NX PX and DEL, which frees anybody's lock; the client has its defaults",
		sends:    []string{"set", "setnx", "del"},
		pair: func(ctx context.Context, keys []string) error {
			for _, key := range keys {
				err := client.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
				if err == redis.Nil {
					return errTaken
				} else if err != nil {
					return err
				}
			}
			for _, key := range keys {
				if err := client.Del(ctx, key).Err(); err != nil {
					return err
				}
			}
			return nil
		},
		close: client.Close,
	}, nil
}

const rawQuorumSettings = "SET NX PX and DEL on each server, by a goroutine for each; the clients have their defaults"

// openRawQuorum is the lower bound of a library that asks all servers of a quorum side by side through go-redis, with a
// goroutine for each server. It goes on when a majority has answered the SETs. It waits for all DELs, because a late one
// would delete the key of the next holder.
func openRawQuorum(addrs []string) (*locker, error) {
	clients, closers := newGoRedisEach(addrs)
	// wait waits until so many servers have answered without an error.
	wait := func(n int, answers chan error) error {
		var errs []error
		for range clients {
			if err := <-answers; err != nil {
				errs = append(errs, err)
			} else if n--; n == 0 {
				return nil
			}
		}
		return errors.Join(errs...)
	}
	return &locker{
		name:     rawGoRedis,
		settings: rawQuorumSettings,
		sends:    []string{"set", "setnx", "del"},
		pair: func(ctx context.Context, keys []string) error {
			key := keys[0]
			obtained, released := make(chan error, len(clients)), make(chan error, len(clients))
			release := make(chan struct{})
			for _, client := range clients {
				go func() {
					obtained <- client.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
					<-release
					released <- client.Del(ctx, key).Err()
				}()
			}
			err := wait(len(clients)/2+1, obtained)
			close(release)
			return errors.Join(err, wait(len(clients), released))
		},
		close: func() error { return closeAll(closers) },
	}, nil
}

// openRawRueidis is the lower bound of a library that builds on rueidis.
func openRawRueidis(addr string) (*locker, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, err
	}
	return &locker{
		name:     rawRueidis,
		settings: "the same; the client has its defaults, with which concurrent calls share pipelines",
		sends:    []string{"set", "del"},
		pair: func(ctx context.Context, keys []string) error {
			for _, key := range keys {
				err := client.Do(ctx, client.B().Set().Key(key).Value(token).Nx().Px(ttl).Build()).Error()
				if rueidis.IsRedisNil(err) {
					return errTaken
				} else if err != nil {
					return err
				}
			}
			for _, key := range keys {
				if err := client.Do(ctx, client.B().Del().Key(key).Build()).Error(); err != nil {
					return err
				}
			}
			return nil
		},
		close: func() error {
			client.Close()
			return nil
		},
	}, nil
}
