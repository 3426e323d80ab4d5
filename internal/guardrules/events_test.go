//go:build unix

package guardrules_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// An event is what happens to servers while a lock is kept. Functions that are nil do nothing.
type event struct {
	ttl     time.Duration                          // of the lock, and the longest; 0 for 3 s
	servers func(ctx context.Context, s *stage)    // starts them; nil for one server
	opened  func(ctx context.Context, s *stage)    // once the guard is open, and before there is a lock
	happens func(ctx context.Context, s *stage)    // the event itself
	without fate                                   // of the lock without a guard
	with    fate                                   // of the lock with one
	seen    func(ctx context.Context, d *database) // something else to be seen with a guard; nil for nothing
}

func (e event) run(ctx context.Context) {
	GinkgoHelper()
	spec.RequireServer()
	spec.CheckLeaks()
	s := &stage{ttl: e.ttl}
	if s.ttl == 0 {
		s.ttl = 3 * time.Second
	}
	start := e.servers
	if start == nil {
		start = one()
	}
	start(ctx, s)
	if s.serves.Load() == nil {
		s.serves.Store(s.server)
	}
	s.without, s.with = s.open(0), s.open(1, redislock.WithGuard(s.ttl, 0))
	openGuard(ctx, s.with.client, s.ttl, 0)
	if e.opened != nil {
		e.opened(ctx, s)
	}
	s.without.begin(ctx)
	s.with.begin(ctx)
	e.happens(ctx, s)
	s.without.meets(ctx, e.without)
	s.with.meets(ctx, e.with)
	if e.seen != nil {
		e.seen(ctx, s.with)
	}
}

// one starts one server.
func one(config ...string) func(context.Context, *stage) {
	return func(_ context.Context, s *stage) {
		GinkgoHelper()
		s.server = spec.StartServer(config...)
	}
}

// pair starts a master and a replica.
func pair(config ...string) func(context.Context, *stage) {
	return func(_ context.Context, s *stage) {
		GinkgoHelper()
		s.server = spec.StartServer(append(config, redistest.PromptSync)...)
		s.follow(nil, config...)
	}
}

// crash kills the server, and starts it again.
func crash(_ context.Context, s *stage) {
	GinkgoHelper()
	Expect(s.server.Kill()).To(Succeed())
	Expect(s.server.Restart()).To(Succeed())
}

// save writes an RDB file.
func save(ctx context.Context, s *stage) {
	GinkgoHelper()
	Expect(s.with.client.Save(ctx).Err()).To(Succeed())
}

var _ = Describe("A lock that is kept, without a guard and with one,", Label(spec.OnServer), func() {
	DescribeTable("when the server", func(ctx SpecContext, e event) { e.run(ctx) },
		Entry("restarts with nothing", event{
			happens: crash, without: loses, with: restores,
		}),
		Entry("restarts from an old RDB file", event{
			opened: save, happens: crash, without: loses, with: restores,
			seen: func(ctx context.Context, d *database) {
				Expect(d.client.Get(ctx, keyname.GuardMarker).Val()).To(HavePrefix(about(ctx, d.client, "master_replid")))
			},
		}),
		Entry("restarts with all its data, from the AOF", event{
			servers: one("appendonly yes", "appendfsync always"), happens: crash,
			ttl: 6 * time.Second, without: keeps, with: closes,
		}),
		Entry("restarts with all its data, after SHUTDOWN SAVE", event{
			happens: func(ctx context.Context, s *stage) {
				_ = operator(s.server).ShutdownSave(ctx) // it answers nothing
				Expect(s.server.Restart()).To(Succeed())
			},
			ttl: 6 * time.Second, without: keeps, with: closes,
		}),
		Entry("executes FLUSHALL", event{
			happens: func(ctx context.Context, s *stage) {
				Expect(s.with.client.FlushAll(ctx).Err()).To(Succeed())
			},
			without: loses, with: restores,
		}),
		Entry("executes FLUSHDB", event{
			happens: func(ctx context.Context, s *stage) {
				s.both(func(client *redis.Client) error { return client.FlushDB(ctx).Err() })
			},
			without: loses, with: restores,
		}),
		Entry("swaps the database with an empty one", event{
			happens: swap, without: loses, with: restores,
		}),
		Entry("evicts everything, by allkeys-lru", event{
			happens: evict("allkeys-lru"), without: loses, with: restores,
		}),
		Entry("gets its first replica", event{
			servers: one(redistest.PromptSync),
			happens: func(_ context.Context, s *stage) { s.follow(nil) },
			without: keeps, with: closes,
		}),
		Entry("has had no replica for repl-backlog-ttl", event{
			servers: pair("repl-backlog-ttl 1"),
			happens: func(ctx context.Context, s *stage) {
				before := about(ctx, s.with.client, "master_replid")
				Expect(s.replica.Kill()).To(Succeed())
				Eventually(func() string { return about(ctx, s.with.client, "master_replid") }).WithTimeout(wait).
					ShouldNot(Equal(before))
			},
			ttl: 6 * time.Second, without: keeps, with: closes,
		}),
	)

	DescribeTable("when a replica takes over:", func(ctx SpecContext, e event) { e.run(ctx) },
		Entry("by Sentinel, one that lacks the last writes", event{
			servers: func(_ context.Context, s *stage) {
				spec.RequireServer()
				var err error
				s.sentinel, err = redistest.StartSentinel()
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(s.sentinel.Close)
				s.server, s.replica = s.sentinel.Master(), s.sentinel.Replica()
			},
			opened:  cutOff,
			happens: func(_ context.Context, s *stage) { Expect(s.sentinel.KillMaster()).To(Succeed()) },
			ttl:     12 * time.Second, without: loses, with: restores,
		}),
		Entry("by hand, one that lacks the last writes", event{
			servers: pair(), opened: cutOff,
			happens: func(ctx context.Context, s *stage) { s.promote(ctx) },
			without: loses, with: restores,
		}),
		Entry("by FAILOVER, with all data", event{
			servers: pair(),
			happens: func(ctx context.Context, s *stage) {
				err := operator(s.server).Do(ctx, "failover").Err()
				if err != nil && strings.Contains(err.Error(), "unknown command") {
					Skip("FAILOVER needs Redis 6.2 or newer")
				}
				Expect(err).NotTo(HaveOccurred())
				replica := operator(s.replica)
				Eventually(func() string { return about(ctx, replica, "role") }).WithTimeout(wait).Should(Equal("master"))
				s.serve(ctx, s.replica)
			},
			ttl: 6 * time.Second, without: keeps, with: closes,
		}),
		Entry("the first master again, before it has the data of the second", event{
			servers: func(ctx context.Context, s *stage) {
				pair()(ctx, s)
				first := spec.Connect(&redis.Options{Addr: s.server.Addr(), DB: 1})
				openGuard(ctx, first, 3*time.Second, 0)
				Expect(s.server.CutOff()).To(Succeed())
				s.promote(ctx)
				Expect(s.server.Follow(s.replica)).To(Succeed())
			},
			happens: func(ctx context.Context, s *stage) {
				Expect(s.server.Promote()).To(Succeed())
				s.serve(ctx, s.server)
			},
			without: loses, with: restores,
		}),
		Entry("one whose clock is ahead, so that all keys expire at once", event{
			servers: func(_ context.Context, s *stage) {
				spec.RequireServer()
				s.clock = newClock()
				s.clock.set(time.Hour)
				s.server = spec.StartServer(redistest.PromptSync)
				s.follow(s.clock.env)
			},
			happens: func(ctx context.Context, s *stage) {
				replica := spec.Connect(&redis.Options{Addr: s.replica.Addr(), DB: 1})
				Eventually(func() int64 { return replica.DBSize(ctx).Val() }).WithTimeout(wait).Should(BeEquivalentTo(2))
				s.promote(ctx)
			},
			without: loses, with: restores,
		}),
		Entry("one whose master has forgotten before", event{
			servers: pair(),
			happens: func(ctx context.Context, s *stage) {
				replica := operator(s.replica)
				has := func() int64 { return replica.Exists(ctx, key).Val() }
				Eventually(has).WithTimeout(wait).Should(BeEquivalentTo(1))
				s.serve(ctx, s.replica) // which is not a master yet: nobody locks at the first one any more
				crash(ctx, s)
				Eventually(has).WithTimeout(wait).Should(BeZero())
				Expect(s.replica.Promote()).To(Succeed())
			},
			ttl: 6 * time.Second, without: loses, with: restores,
		}),
	)

	// In each of these, the marker is there and names the present term. A snapshot of a virtual machine is another one: the
	// process goes on with the memory that it had, as after DEBUG RELOAD NOSAVE.
	DescribeTable("unnoticed, when", func(ctx SpecContext, e event) { e.run(ctx) },
		Entry("its key is deleted", event{
			happens: func(ctx context.Context, s *stage) {
				s.both(func(client *redis.Client) error { return client.Del(ctx, key).Err() })
			},
			without: loses, with: loses,
		}),
		Entry("the server evicts all locks, by volatile-lru", event{ // the marker has no expiry
			happens: evict("volatile-lru"), without: loses, with: loses,
		}),
		Entry("the server swaps the database with another one that has a guard", event{
			opened: func(ctx context.Context, s *stage) {
				other := spec.Connect(&redis.Options{Addr: s.server.Addr(), DB: s.with.client.Options().DB + 2})
				openGuard(ctx, other, s.ttl, 0)
			},
			happens: swap, without: loses, with: loses,
		}),
		Entry("the server executes DEBUG RELOAD NOSAVE, with a file of the present term", event{
			servers: func(_ context.Context, s *stage) {
				spec.RequireServer()
				var err error
				if s.server, err = redistest.Start("enable-debug-command local"); err != nil { // Redis 6 needs no such line
					s.server, err = redistest.Start()
				}
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(s.server.Close)
			},
			opened: save,
			happens: func(ctx context.Context, s *stage) {
				Expect(operator(s.server).Do(ctx, "debug", "reload", "nosave").Err()).To(Succeed())
			},
			without: loses, with: loses,
		}),
		Entry("the clock of the server is set forward", event{ // the marker has no expiry
			servers: func(_ context.Context, s *stage) {
				spec.RequireServer()
				s.clock = newClock()
				var err error
				s.server, err = redistest.StartWithEnv(s.clock.env)
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(s.server.Close)
			},
			happens: func(_ context.Context, s *stage) { s.clock.set(time.Hour) },
			without: loses, with: loses,
		}),
	)
})

// cutOff makes the replica lack what follows.
func cutOff(ctx context.Context, s *stage) {
	GinkgoHelper()
	number := s.with.client.Options().DB
	replica := spec.Connect(&redis.Options{Addr: s.replica.Addr(), DB: number})
	Eventually(func() string { return replica.Get(ctx, keyname.GuardMarker).Val() }).WithTimeout(wait).ShouldNot(BeEmpty())
	Expect(s.replica.CutOff()).To(Succeed())
}

// swap exchanges both databases with others, which are empty unless a spec has filled them.
func swap(ctx context.Context, s *stage) {
	GinkgoHelper()
	s.both(func(client *redis.Client) error {
		number := client.Options().DB
		return client.Do(ctx, "swapdb", number, number+2).Err()
	})
}

// evict makes the server evict what that policy may.
func evict(policy string) func(context.Context, *stage) {
	return func(ctx context.Context, s *stage) {
		GinkgoHelper()
		client := operator(s.server)
		Expect(client.ConfigSet(ctx, "maxmemory-policy", policy).Err()).To(Succeed())
		Expect(client.ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
		Eventually(func() int64 { return s.with.client.Exists(ctx, key).Val() }).WithTimeout(wait).Should(BeZero())
		Expect(client.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
	}
}
