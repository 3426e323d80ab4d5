package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// The least that scripts can do for a lock that is handed over. Each waiter is "‹channel› ‹number›" in a list.
var (
	bareJoin = redis.NewScript(`
		if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
		redis.call('RPUSH', KEYS[2], ARGV[3])
		return 0`)
	bareHandOver = redis.NewScript(`
		if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		local waiter = redis.call('LPOP', KEYS[2])
		if not waiter then return redis.call('DEL', KEYS[1]) end
		redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
		redis.call('PUBLISH', string.match(waiter, '^(%S+) (%d+)$'))
		return 1`)
)

// bareHandOffContender is the lower bound of a fair lock with a hand-off. It has no rules: it hands the lock even to a
// waiter that has given up or died, nobody checks whether the message was received, and all waiters have one token.
func bareHandOffContender() contender {
	return contender{
		name: "bare hand-off",
		settings: "SET NX PX and RPUSH for a waiter; GET, LPOP, SET PX and PUBLISH to hand the key over; two scripts, without " +
			"any rules; the go-redis client has its defaults",
		sends: scripts,
		open: func(addrs []string) (obtainFunc, error) {
			client := newGoRedis(addrs[0])
			channel := fmt.Sprintf("redislock-bench:inbox:%d", os.Getpid())
			inbox := client.Subscribe(context.Background(), channel)
			if _, err := inbox.Receive(context.Background()); err != nil {
				return nil, err
			}
			var waiters sync.Map // from a number, as text, to the channel to close
			go func() {
				for message := range inbox.Channel() {
					if granted, known := waiters.LoadAndDelete(message.Payload); known {
						close(granted.(chan struct{}))
					}
				}
			}()
			var last atomic.Int64
			return inTurn(func(ctx context.Context, key string) (func() error, error) {
				number, granted := strconv.FormatInt(last.Add(1), 10), make(chan struct{})
				waiters.Store(number, granted)
				names := []string{key, key + ":line"}
				free, err := bareJoin.Run(ctx, client, names, token, ttl.Milliseconds(), channel+" "+number).Bool()
				if err != nil {
					return nil, err
				}
				if !free {
					<-granted
				}
				return func() error { return bareHandOver.Run(ctx, client, names, token, ttl.Milliseconds()).Err() }, nil
			}), nil
		},
	}
}
