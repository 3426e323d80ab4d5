package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// The lower bound of a lock on several keys: the least that scripts can do. The root's bench_test.go has the same scripts.
var (
	bareObtain = redis.NewScript(`
		local args = {}
		for i = 1, #KEYS do args[2 * i - 1] = KEYS[i]; args[2 * i] = ARGV[1] end
		if redis.call('MSETNX', unpack(args)) == 0 then return 0 end
		for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
		return 1`)
	bareRelease = redis.NewScript(`
		local values = redis.call('MGET', unpack(KEYS))
		for i = 1, #values do if values[i] ~= ARGV[1] then return 0 end end
		return redis.call('DEL', unpack(KEYS))`)
)

// bareScripts is the name of the locker that runs only in the cells of several keys.
const bareScripts = "bare scripts"

func openBareScripts(addr string) (*locker, error) {
	client := newGoRedis(addr)
	return &locker{
		name: bareScripts,
		settings: "MSETNX and a PEXPIRE for each key, MGET and DEL, in two scripts; a script unpacks 3,999 keys at most; " +
			"the go-redis client has its defaults",
		sends: scripts,
		pair: func(ctx context.Context, keys []string) error {
			taken, err := bareObtain.Run(ctx, client, keys, token, ttl.Milliseconds()).Int()
			if err != nil {
				return err
			}
			freed, err := bareRelease.Run(ctx, client, keys, token).Int()
			if err != nil {
				return err
			}
			if taken == 0 || freed == 0 {
				return errTaken
			}
			return nil
		},
		close: client.Close,
	}, nil
}
