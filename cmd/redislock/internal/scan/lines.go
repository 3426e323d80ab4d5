package scan

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
)

// Lines looks through all keys of a Redis for lines. After each SCAN it calls page with the keys whose lines it has found,
// in no order, perhaps twice, and with about how many keys it has looked through. An error of page ends the scan; Lines
// returns it, except ErrEnough. Of a quorum, a majority of the servers is enough: why is the error of the first one that
// failed.
func Lines(
	ctx context.Context, client redis.UniversalClient, page func(keys []string, looked int) error,
) (why, err error) {
	looked := 0
	why, err = eachMaster(ctx, client, func(server *redis.Client) error {
		var cursor uint64
		for {
			lines, next, err := server.ScanType(ctx, cursor, "*"+keyname.LineSuffix, scanCount, "zset").Result()
			if err != nil {
				return err
			}
			var keys []string
			for _, line := range lines {
				if key := keyBeside(line, keyname.LineSuffix, keyname.LineOf); key != "" {
					keys = append(keys, key)
				}
			}
			looked += scanCount
			if err := page(keys, looked); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if err == ErrEnough {
		err = nil
	}
	return why, err
}

// keyBeside returns the key beside which the library keeps a key of that name, with this suffix; "" if there is none. of
// returns the name for a key.
func keyBeside(name, suffix string, of func(key string) string) string {
	key := strings.TrimSuffix(name, suffix)
	if of(key) == name {
		return key
	}
	if at := strings.IndexByte(key, '{'); at > 0 && of(key[:at]) == name {
		return key[:at]
	}
	return ""
}
