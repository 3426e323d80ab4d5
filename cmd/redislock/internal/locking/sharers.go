package locking

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/internal/keyname"
)

// Sharers returns the tokens of all who hold a shared key, at any server. Inspect lists a hundred of them at most. There may
// be holds that have ended among them.
func Sharers(ctx context.Context, s *connect.Session, key string) (tokens []string, err error) {
	servers := []redis.Cmdable{s.Client}
	if _, isQuorum := s.Client.(*connect.Quorum); isQuorum {
		masters, err := connect.Masters(ctx, s.Client)
		if err != nil {
			return nil, err
		}
		servers = nil
		for _, master := range masters {
			servers = append(servers, master)
		}
	}
	seen := map[string]bool{}
	for _, server := range servers {
		holds := &redis.ZRangeBy{Min: "(0", Max: "+inf"} // no other member of a house has a positive score
		found, err := server.ZRangeByScore(ctx, keyname.HouseOf(key), holds).Result()
		if err != nil {
			return nil, err
		}
		for _, token := range found {
			if !seen[token] {
				seen[token] = true
				tokens = append(tokens, token)
			}
		}
	}
	return tokens, nil
}

// Empty frees a shared key that nobody holds, such as one whose house somebody has deleted. It reports whether the key was
// one.
func Empty(ctx context.Context, s *connect.Session, key string) (freed bool, err error) {
	stored, err := s.Client.GetRange(ctx, key, 0, int64(len(keyname.SharedMark))).Result()
	if err != nil || stored != keyname.SharedMark { // a key of another type gives an error
		return false, nil //nolint:nilerr // nobody has found out what it holds, so it stays
	}
	lock, err := s.Locks.Obtain(ctx, key, time.Minute, &redislock.Options{Shared: []string{key}})
	if err != nil {
		return false, err
	}
	return true, lock.Release(ctx)
}
