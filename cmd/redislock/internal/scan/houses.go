package scan

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/survey"
)

// Houses says what is wrong with the shared keys of a server and their houses.
type Houses struct {
	Wrong []string // what is wrong with which key, for people
	Keys  int      // how many shared keys it has, as far as it was looked through
	Whole bool     // all keys were looked at in time
}

// scanCount is how many keys a SCAN looks at.
const scanCount = 500

// LookAtHouses looks through all keys of a server for shared ones and their houses, and ends after a time at the latest.
func LookAtHouses(ctx context.Context, server *redis.Client, limit time.Duration) (h Houses, err error) {
	until := time.Now().Add(limit)
	for _, kind := range []string{"zset", "string"} {
		var cursor uint64
		for {
			if time.Now().After(until) {
				return h, nil
			}
			match := "*"
			if kind == "zset" {
				match = "*" + keyname.HouseSuffix
			}
			keys, next, err := server.ScanType(ctx, cursor, match, scanCount, kind).Result()
			if err != nil {
				return h, err
			}
			if kind == "string" {
				err = h.sharedKeys(ctx, server, keys)
			} else {
				err = h.houses(ctx, server, keys)
			}
			if err != nil {
				return h, err
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	h.Whole = true
	return h, nil
}

// houses notes which houses have no key.
func (h *Houses) houses(ctx context.Context, server *redis.Client, houses []string) error {
	for _, house := range houses {
		key := survey.KeyBeside(house, keyname.HouseSuffix, keyname.HouseOf)
		if key == "" {
			continue
		}
		p, err := lookAtPair(ctx, server, key)
		switch {
		case err != nil:
			return err
		case !p.house: // gone meanwhile
		case !p.key:
			h.Wrong = append(h.Wrong, fmt.Sprintf("the house %q has no key", house))
		case !p.shared:
			h.Wrong = append(h.Wrong, fmt.Sprintf("%q is exclusive, and has a house", key))
		}
	}
	return nil
}

// sharedKeys notes which of some strings are shared keys without a house, or without an expiry.
func (h *Houses) sharedKeys(ctx context.Context, server *redis.Client, keys []string) error {
	beginnings := make([]*redis.StringCmd, len(keys))
	pipe := server.Pipeline()
	for i, key := range keys {
		beginnings[i] = pipe.GetRange(ctx, key, 0, int64(len(keyname.SharedMark)))
	}
	if _, err := pipe.Exec(ctx); err != nil && len(keys) > 0 && beginnings[0].Err() != nil {
		return beginnings[0].Err()
	}
	for i, key := range keys {
		if beginnings[i].Val() != keyname.SharedMark {
			continue
		}
		p, err := lookAtPair(ctx, server, key)
		if err != nil {
			return err
		}
		h.note(key, p)
	}
	return nil
}

func (h *Houses) note(key string, p pair) {
	if !p.shared { // gone meanwhile
		return
	}
	h.Keys++
	switch {
	case !p.house:
		h.Wrong = append(h.Wrong, fmt.Sprintf("%q is shared, and has no house", key))
	case p.keyTTL < 0:
		h.Wrong = append(h.Wrong, fmt.Sprintf("%q is shared, and has no expiry", key))
	case p.houseTTL < 0:
		h.Wrong = append(h.Wrong, fmt.Sprintf("the house of %q has no expiry", key))
	}
}

// pair is a key and its house at one moment.
type pair struct {
	key, shared, house bool
	keyTTL, houseTTL   time.Duration // negative without expiry
}

func lookAtPair(ctx context.Context, server *redis.Client, key string) (p pair, err error) {
	house := keyname.HouseOf(key)
	if house == "" {
		house = key // it is a string, so this is no house
	}
	pipe := server.TxPipeline() // all of it at one moment
	value := pipe.GetRange(ctx, key, 0, int64(len(keyname.SharedMark)))
	keyTTL, kind, houseTTL := pipe.PTTL(ctx, key), pipe.Type(ctx, house), pipe.PTTL(ctx, house)
	if _, err = pipe.Exec(ctx); err != nil && value.Err() == nil {
		return p, err
	}
	p.keyTTL, p.houseTTL = keyTTL.Val(), houseTTL.Val()
	p.key = keyTTL.Val() != -2 // of any type
	p.shared, p.house = value.Val() == keyname.SharedMark, kind.Val() == "zset"
	return p, keyTTL.Err()
}
