//go:build unix

package guardrules_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = DescribeTable("When servers of a quorum restart with nothing,", Label(spec.OnServer),
	func(ctx SpecContext, guarded bool, restarted int, f fate) {
		spec.RequireServer()
		spec.CheckLeaks()
		s := &stage{ttl: 3 * time.Second}
		if f == loses { // the rival has until the next renewal, which would put the keys back
			s.ttl = 15 * time.Second
		}
		var servers []*redistest.Server
		connect := func() []redislock.RedisClient {
			var clients []redislock.RedisClient
			for _, server := range servers {
				clients = append(clients, spec.Connect(&redis.Options{
					Addr: server.Addr(), DialTimeout: time.Second, ReadTimeout: time.Second,
				}))
			}
			return clients
		}
		for range 3 {
			servers = append(servers, spec.StartServer())
			openGuard(ctx, operator(servers[len(servers)-1]), s.ttl, 0)
		}
		d := s.occupy(func(tracer redislock.ClientOption) *redislock.Client {
			if !guarded {
				return redislock.NewQuorum(connect(), tracer)
			}
			return redislock.NewQuorum(connect(), tracer, redislock.WithGuard(s.ttl, 0))
		})
		d.begin(ctx)
		for _, server := range servers {
			client := operator(server)
			Eventually(func() int64 { return client.Exists(ctx, key).Val() }).WithTimeout(wait).
				Should(BeEquivalentTo(1), "no mend is under way")
		}
		for _, server := range servers[:restarted] {
			Expect(server.Kill()).To(Succeed())
		}
		for _, server := range servers[:restarted] {
			Expect(server.Restart()).To(Succeed())
		}
		if f == loses {
			d.meets(ctx, f)
			return
		}
		if f == keeps {
			Eventually(d.lock.Until).WithTimeout(wait).Should(BeTemporally(">", d.until))
			Expect(context.Cause(d.kept)).NotTo(HaveOccurred())
		} else {
			Eventually(d.kept.Done()).WithTimeout(wait).Should(BeClosed())
			Expect(d.until).To(BeTemporally("<=", time.Now()))
		}
		Expect(d.grants).NotTo(Receive())
	},
	Entry("one of 3, the lock is kept", false, 1, keeps),
	Entry("one of 3 with a guard, the lock is kept", true, 1, keeps),
	Entry("2 of 3, another caller gets the lock", false, 2, loses),
	Entry("2 of 3 with a guard, the lock lapses, and nobody else gets it before", true, 2, lapses),
)
