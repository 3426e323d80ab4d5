package line_test

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

// A client finds the master by a name that moves. After a failover its subscription may remain on the old master, which
// is a replica now: what the new one publishes still arrives there, though the new one counts no receiver.
var _ = Describe("A waiter whose subscription stayed on a demoted master", func() {
	BeforeEach(spec.RequireServer)

	It("does not believe a grant that the script has taken back", func(ctx SpecContext) {
		old, next := spec.StartServer(), spec.StartServer()
		atOld, atNext := spec.Connect(&redis.Options{Addr: old.Addr()}), spec.Connect(&redis.Options{Addr: next.Addr()})
		follow := func(replica *redis.Client, master string) {
			host, port, _ := net.SplitHostPort(master)
			Expect(replica.Do(ctx, "REPLICAOF", host, port).Err()).To(Succeed())
			Eventually(func() string { return replica.Info(ctx, "replication").Val() }).WithTimeout(20 * time.Second).
				Should(ContainSubstring("master_link_status:up"))
		}
		follow(atNext, old.Addr())

		var master atomic.Value
		master.Store(old.Addr())
		moving := spec.Connect(&redis.Options{Addr: "moving:6379", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, master.Load().(string))
		}})
		locks := redislock.New(moving)
		DeferCleanup(locks.Close)

		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		spec.AwaitSubscriptions(ctx, atOld, "a")
		Eventually(func() int64 { return atNext.Exists(ctx, "a", spec.LineKey("a")).Val() }).WithTimeout(10*time.Second).
			Should(Equal(int64(2)), "replicated")

		Expect(atNext.Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed())
		follow(atOld, next.Addr())
		master.Store(next.Addr())
		Eventually(func() error { return moving.Set(ctx, "probe", 1, 0).Err() }).WithTimeout(5 * time.Second).Should(Succeed())
		spec.AwaitSubscriptions(ctx, atNext, "a")
		Expect(held.Release(ctx)).To(Succeed())

		lock := first.Granted()
		Expect(atNext.Get(ctx, "a").Val()).To(Equal(lock.Token()), "the lock is valid until %v", lock.Until())
		Expect(lock.Release(ctx)).To(Succeed())
	})
})
