package redislock_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeForgetful("WithGuard", func(on *spec.Forgetful) {
	scripts := func() int { return on.Requests(spec.IsScript) }
	expectInvalid := func(ctx context.Context, locks *redislock.Client, words string) {
		GinkgoHelper()
		lock, err := locks.Obtain(ctx, "a", time.Second, nil)
		Expect(lock).To(BeNil())
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(words)))
		_, err = locks.Inspect(ctx, "a")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Attach(ctx, []string{"a"}, "t")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(scripts()).To(BeZero(), "nothing is sent")
		Expect(locks.Close()).To(Succeed())
	}
	quorum := func(opts ...redislock.ClientOption) *redislock.Client {
		clients := make([]redislock.RedisClient, 3)
		for i := range clients {
			client := on.MemoryServer.Connect(i+1, nil)
			DeferCleanup(client.Close)
			clients[i] = client
		}
		return redislock.NewQuorum(clients, opts...)
	}

	for who, connect := range map[string]func(opts ...redislock.ClientOption) *redislock.Client{
		"New": func(opts ...redislock.ClientOption) *redislock.Client { return on.Connect(opts...) }, "NewQuorum": quorum,
	} {
		DescribeTable("of "+who+" is ErrInvalid", func(ctx SpecContext, maxTTL, deposed time.Duration, words string) {
			expectInvalid(ctx, connect(redislock.WithGuard(maxTTL, deposed)), words)
		},
			Entry("without a maxTTL", time.Duration(0), time.Duration(0), "WithGuard: maxTTL 0s"),
			Entry("for a maxTTL under 2 ms", 2*time.Millisecond-1, time.Duration(0), "WithGuard: maxTTL 1.999999ms"),
			Entry("for a negative maxTTL", -time.Minute, time.Duration(0), "WithGuard: maxTTL -1m0s"),
			Entry("for a negative deposed", time.Minute, -time.Second, "WithGuard: deposed -1s"),
			Entry("for a maxTTL above 24 h", 24*time.Hour+1, time.Duration(0), "longer than 24h"),
			Entry("for a deposed above 24 h", time.Minute, 24*time.Hour+1, "longer than 24h"),
		)

		It("of "+who+", given twice, means the last one", func(ctx SpecContext) {
			good, bad := redislock.WithGuard(time.Minute, 0), redislock.WithGuard(0, 0)
			expectInvalid(ctx, connect(good, bad), "WithGuard")
			_, err := connect(bad, good).Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
			Expect(closedFor(err)).To(BeNumerically("~", time.Minute, time.Second))
			_, err = connect(good, redislock.WithGuard(time.Hour, 0)).Obtain(ctx, "a", time.Hour, &redislock.Options{Explain: true})
			Expect(closedFor(err)).To(BeNumerically("~", time.Hour, time.Second))
		})
	}

	It("takes the bounds themselves", func(ctx SpecContext) {
		for _, maxTTL := range []time.Duration{2 * time.Millisecond, 24 * time.Hour} {
			_, err := on.Connect(redislock.WithGuard(maxTTL, 24*time.Hour)).Obtain(ctx, "a", maxTTL, nil)
			Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		}
	})

	DescribeTable("does not work", func(ctx SpecContext, client func() redislock.RedisClient, words string) {
		other := on.MemoryServer.Connect(1, nil)
		DeferCleanup(other.Close)
		guard := redislock.WithGuard(time.Minute, 0)
		expectInvalid(ctx, redislock.New(client(), guard), words)
		expectInvalid(ctx, redislock.NewQuorum([]redislock.RedisClient{other, client(), client()}, guard),
			"client 2 of the quorum: redislock: invalid argument: "+words)
	},
		Entry("on a Cluster", func() redislock.RedisClient {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
			DeferCleanup(client.Close)
			return client
		}, "WithGuard does not work on a Cluster"),
		Entry("on a Ring", func() redislock.RedisClient {
			client := redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"0": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour,
			})
			DeferCleanup(client.Close)
			return client
		}, "WithGuard does not work on a Ring"),
	)

	Describe("refuses what a lock cannot have:", func() {
		var locks *redislock.Client
		BeforeEach(func() { locks = on.Connect(redislock.WithGuard(time.Minute, 0)) })

		invalid := func(err error, words string) {
			GinkgoHelper()
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(err).To(MatchError(ContainSubstring(words)))
		}

		It("a ttl above maxTTL", func(ctx SpecContext) {
			const above = "ttl 1m0.000000001s is above the 1m0s that WithGuard allows"
			for _, locks := range []*redislock.Client{locks, quorum(redislock.WithGuard(time.Minute, 0))} {
				_, err := locks.Obtain(ctx, "a", time.Minute+1, nil)
				invalid(err, above)
				_, err = locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute+1, nil)
				invalid(err, above)
				invalid(locks.Do(ctx, []string{"a"}, time.Minute+1, nil, func(context.Context) error {
					Fail("Do has called it")
					return nil
				}), above)
				Expect(locks.Close()).To(Succeed())
			}
			Expect(scripts()).To(BeZero())
		})

		It("a ttl above maxTTL, in Refresh", func(ctx SpecContext) {
			on.Open(ctx, time.Minute, 0)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			before := scripts()
			invalid(lock.Refresh(ctx, time.Hour, nil), "ttl 1h0m0s is above the 1m0s that WithGuard allows")
			Expect(scripts()).To(Equal(before))
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		})

		It("AcrossSlots", func(ctx SpecContext) {
			_, err := locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, &redislock.Options{AcrossSlots: true})
			invalid(err, "AcrossSlots does not work with WithGuard")
			Expect(scripts()).To(BeZero())
		})

		It("the name of the marker, also without a guard", func(ctx SpecContext) {
			for _, locks := range []*redislock.Client{locks, on.Connect(), quorum()} {
				_, err := locks.ObtainMulti(ctx, []string{"a", "redislock:guard"}, time.Minute, nil)
				invalid(err, "redislock:guard")
				_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{FenceKey: "redislock:guard"})
				invalid(err, `FenceKey "redislock:guard" is reserved`)
				Expect(locks.Close()).To(Succeed())
			}
			Expect(scripts()).To(BeZero())
		})
	})

	It("costs nothing if it is not given: no script names the marker", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Connect(), time.Hour, nil, "a")
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Requests(spec.IsScript)).To(BeNumerically(">=", 3))
		named := func(args []string) bool { return strings.Contains(strings.Join(args, " "), keyname.GuardMarker) }
		Expect(on.Requests(named)).To(BeZero())
		Expect(on.Own.Keys(ctx, "*").Val()).To(BeEmpty())
	})
})

var _ = spec.DescribeOn(spec.OnServer, "WithGuard under an ACL", func(*spec.Redis) {
	It("needs rights to the marker, and says so", func(ctx SpecContext) {
		server := spec.StartServer()
		admin := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "+@all", "~a*").Err()).To(Succeed())
		client := spec.Connect(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "x"})
		locks := redislock.New(client, redislock.WithGuard(time.Minute, 0))
		DeferCleanup(locks.Close)
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(And(ContainSubstring("NOPERM"), ContainSubstring(`under WithGuard to "redislock:guard"`))))
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "~redislock:guard").Err()).To(Succeed())
		_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		Expect(closedFor(err)).To(BeNumerically(">", 0), "%v", err)
	})
})

// closedFor returns the Closed of the RefusedError that an error is; 0 if it is another error.
func closedFor(err error) time.Duration {
	var refused *redislock.RefusedError
	if !errors.As(err, &refused) {
		return 0
	}
	return refused.Closed
}
