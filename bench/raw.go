package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// token is what those hold who have no tokens of their own; as long as one of this library.
const token = "q83vEjRWeJCrze8SNFZ4kA"

// The names of the clients without a library.
const (
	rawGoRedis = "raw go-redis"
	rawRueidis = "raw rueidis"
)

// openRawGoRedis is the floor under everybody who builds on go-redis: a lock without an owner.
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

// openRawRueidis is the floor under everybody who builds on rueidis.
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
