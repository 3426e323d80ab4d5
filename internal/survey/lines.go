package survey

import (
	"cmp"
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
)

// lines looks through all keys of a Redis for lines. After each SCAN it calls page with the keys whose lines it has found,
// in no order, perhaps twice, and with about how many keys it has looked through. An error of page ends the scan; lines
// returns it, except ErrEnough. why is as each returns it.
func (r *Redis) lines(ctx context.Context, page func(keys []string, looked int) error) (why, err error) {
	looked, ended := 0, error(nil)
	why, err = r.each(ctx, func(server redis.UniversalClient) error {
		var cursor uint64
		for {
			lines, next, err := server.ScanType(ctx, cursor, "*"+keyname.LineSuffix, scanCount, "zset").Result()
			if err != nil {
				return err
			}
			var keys []string
			for _, line := range lines {
				if key := KeyBeside(line, keyname.LineSuffix, keyname.LineOf); key != "" {
					keys = append(keys, key)
				}
			}
			looked += scanCount
			if ended = page(keys, looked); ended != nil {
				return ErrEnough
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if ended == ErrEnough {
		return why, nil
	}
	return why, cmp.Or(ended, err)
}

// KeyBeside returns the key beside which the library keeps a key of that name, with this suffix; "" if there is none. of
// returns the name for a key.
func KeyBeside(name, suffix string, of func(key string) string) string {
	key := strings.TrimSuffix(name, suffix)
	if of(key) == name {
		return key
	}
	if at := strings.IndexByte(key, '{'); at > 0 && of(key[:at]) == name {
		return key[:at]
	}
	return ""
}
