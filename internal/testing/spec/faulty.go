package spec

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
)

// FaultyRedis is a Redis behind a network that can be broken.
type FaultyRedis struct {
	*Redis

	Proxy *faultproxy.Proxy
	Last  *redis.Client // the one that was connected last
}

// DescribeFaulty runs specs of what something does through a faulty network. Every script is known to the server.
func DescribeFaulty(what string, specs func(on *FaultyRedis)) bool {
	return DescribeOnRedis("Through a faulty network,", func(plain *Redis) {
		on := &FaultyRedis{Redis: plain}
		BeforeEach(func(ctx SpecContext) {
			on.Proxy = on.NewProxy()
			for _, script := range []string{"obtain", "obtain_each", "refresh", "release", "release_each", "pttl", "inspect"} {
				Expect(on.Client.ScriptLoad(ctx, Source(script)).Err()).To(Succeed())
			}
		})
		Describe(what, Label(Pipelines), func() { specs(on) })
	})
}

// Broken makes the next times runs of a script suffer the fault, and all of them if times is 0.
func (on *FaultyRedis) Broken(script string, times int, action faultproxy.Action) *faultproxy.Fault {
	return on.Proxy.Add(faultproxy.Rule{Match: Running(script), Times: times, Action: action})
}

// Executed returns how often the server has run a script.
func (on *FaultyRedis) Executed(script string) int { return on.Proxy.Executed(Running(script)) }

// Requested returns how often clients have sent a script.
func (on *FaultyRedis) Requested(script string) int { return on.Proxy.Requests(Running(script)) }

// ConnectBy returns a locking client through the proxy, with options that change may change.
func (on *FaultyRedis) ConnectBy(change func(*redis.Options)) *redislock.Client {
	opt := &redis.Options{Addr: on.Proxy.Addr(), ReadTimeout: 5 * time.Second}
	if change != nil {
		change(opt)
	}
	on.Last = Connect(opt)
	locks := redislock.New(on.Last)
	DeferCleanup(locks.Close) // so that cleanups under way need not wait
	return locks
}

// TimingOut returns a locking client with that ReadTimeout.
func (on *FaultyRedis) TimingOut(after time.Duration) *redislock.Client {
	return on.ConnectBy(func(opt *redis.Options) { opt.ReadTimeout = after })
}

// Disconnect ends all connections and refuses new ones. The client knows it: by itself, go-redis sees an idle connection
// break only where that is a socket of Unix.
func (on *FaultyRedis) Disconnect(ctx context.Context) {
	on.Proxy.RefuseConnections(true)
	on.Proxy.CutAll()
	for on.Last.PoolStats().TotalConns > 0 {
		_ = on.Last.Ping(Within(ctx, 10*time.Millisecond))
	}
}

// Truthful checks that a lock does not claim to last longer than its keys do.
func (on *FaultyRedis) Truthful(ctx context.Context, lock *redislock.Lock) {
	GinkgoHelper()
	for _, key := range lock.Keys() {
		if until := lock.Until(); until.After(time.Now()) {
			left := on.Client.PTTL(ctx, key).Val()
			Expect(until).To(BeTemporally("<=", time.Now().Add(left+time.Millisecond)))
		}
	}
}
