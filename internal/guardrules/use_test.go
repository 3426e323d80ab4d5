//go:build unix

package guardrules_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = Describe("A guard on a real server", Label(spec.OnServer), func() {
	const maxTTL = 3 * time.Second
	explain := &redislock.Options{Explain: true}

	var server *redistest.Server
	var client *redis.Client
	var locks *redislock.Client

	// closed returns for how long the guard refuses new locks; 0 if it grants one.
	closed := func(ctx context.Context, locks *redislock.Client, key string) time.Duration {
		GinkgoHelper()
		_, err := locks.Obtain(ctx, key, time.Second, explain)
		if err == nil {
			return 0
		}
		refused, ok := errors.AsType[*redislock.RefusedError](err)
		Expect(ok).To(BeTrue(), "refused: %v", err)
		return refused.Closed
	}
	begin := func(s *redistest.Server, maxTTL, deposed time.Duration) {
		server = s
		client = spec.Connect(&redis.Options{Addr: server.Addr()})
		locks = redislock.New(client, redislock.WithGuard(maxTTL, deposed))
		DeferCleanup(locks.Close)
	}
	// size returns how many keys the server has.
	size := func(ctx context.Context) int64 {
		GinkgoHelper()
		n, err := client.DBSize(ctx).Result()
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	full := func(ctx context.Context, yes bool) {
		GinkgoHelper()
		Expect(client.ConfigSet(ctx, "maxmemory", map[bool]string{true: "1", false: "0"}[yes]).Err()).To(Succeed())
	}
	BeforeEach(func() {
		spec.RequireServer()
		spec.CheckLeaks()
	})

	It("refuses the first locks of a server for one grace, and then grants them", func(ctx SpecContext) {
		const maxTTL = time.Second
		begin(spec.StartServer(), maxTTL, 0)
		marker := about(ctx, client, "master_replid") + " 1000 0"
		began := time.Now()
		Expect(closed(ctx, locks, "a")).To(And(BeNumerically(">", maxTTL-time.Second), BeNumerically("<=", maxTTL)))
		Expect(client.Get(ctx, keyname.GuardMarker).Val()).To(HavePrefix(marker + " "))
		_, err := locks.Obtain(spec.Within(ctx, wait), "a", maxTTL, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond),
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(began)).To(BeNumerically(">=", maxTTL))
		Expect(client.Get(ctx, keyname.GuardMarker).Val()).To(Equal(marker))
	})

	It("grants the first locks of a server at once if an operator says that none is forgotten", func(ctx SpecContext) {
		begin(spec.StartServer(), maxTTL, 0)
		openGuard(ctx, client, maxTTL, 0)
		Expect(closed(ctx, locks, "a")).To(BeZero())
	})

	It("opens when the last lock that may be forgotten has ended, and then grants what is free", func(ctx SpecContext) {
		begin(spec.StartServer(), maxTTL, 0)
		openGuard(ctx, client, maxTTL, 0)
		kept := spec.Obtain(ctx, locks, maxTTL, nil, "kept")
		held, stop := kept.KeepAlive(ctx)
		defer stop()
		left := spec.Obtain(ctx, locks, maxTTL, nil, "left") // by a holder that does nothing
		done := spec.Obtain(ctx, locks, maxTTL, nil, "done")
		Expect(client.FlushAll(ctx).Err()).To(Succeed())
		Expect(done.Release(ctx)).To(Succeed(), "the holder had it, and only the memory was lost")

		waiter := make(chan time.Time, 1)
		go func() { // ends with ctx
			if _, err := locks.Obtain(ctx, "left", maxTTL, &redislock.Options{Queue: true}); err == nil {
				waiter <- time.Now()
			}
		}()
		Expect(closed(ctx, locks, "done")).To(BeNumerically(">", 0))
		_, err := locks.Attach(ctx, []string{"kept"}, kept.Token())
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		var granted time.Time
		Eventually(waiter).WithTimeout(wait).Should(Receive(&granted))
		Expect(granted).To(BeTemporally(">=", left.Until()))
		Expect(closed(ctx, locks, "done")).To(BeZero())
		Expect(context.Cause(held)).NotTo(HaveOccurred())
		_, err = locks.Obtain(ctx, "kept", maxTTL, explain)
		Expect(err).To(MatchError(ContainSubstring(`"kept" is held`)))
		Expect(kept.Release(ctx)).To(Succeed())
		Expect(closed(ctx, locks, "kept")).To(BeZero())
	})

	It("begins a whole grace whenever the server may have forgotten, also while it is closed", func(ctx SpecContext) {
		begin(spec.StartServer("appendonly yes", "appendfsync always"), maxTTL, 0)
		const part = maxTTL - 200*time.Millisecond
		Expect(closed(ctx, locks, "a")).To(BeNumerically(">", part))
		Eventually(func() time.Duration { return closed(ctx, locks, "a") }).WithTimeout(wait).Should(BeNumerically("<", part))
		Expect(server.Kill()).To(Succeed())
		Expect(server.Restart()).To(Succeed())
		Expect(client.Exists(ctx, keyname.GuardMarker).Val()).To(BeEquivalentTo(1), "of the term before")
		Expect(closed(ctx, locks, "a")).To(BeNumerically(">", part))
	})

	It("is closed for the longest grace of all programs", func(ctx SpecContext) {
		begin(spec.StartServer("appendonly yes", "appendfsync always"), maxTTL, 0)
		short := redislock.New(client, redislock.WithGuard(time.Second, 0))
		DeferCleanup(short.Close)
		openGuard(ctx, client, time.Second, 0)
		Expect(closed(ctx, short, "a")).To(BeZero())
		spec.Obtain(ctx, locks, maxTTL, nil, "b")
		Expect(closed(ctx, short, "c")).To(BeZero(), "nothing was forgotten")
		Expect(server.Kill()).To(Succeed())
		Expect(server.Restart()).To(Succeed())
		Expect(closed(ctx, short, "c")).To(And(BeNumerically(">", maxTTL-time.Second), BeNumerically("<=", maxTTL)))
	})

	It("puts nothing back while a deposed master may grant", func(ctx SpecContext) {
		const deposed = 500 * time.Millisecond
		begin(spec.StartServer(), maxTTL, deposed)
		openGuard(ctx, client, maxTTL, deposed)
		lock := spec.Obtain(ctx, locks, maxTTL, nil, "a")
		Expect(client.FlushAll(ctx).Err()).To(Succeed())
		began := time.Now()
		Expect(lock.Refresh(ctx, maxTTL, nil)).To(Succeed())
		Expect(time.Since(began)).To(BeNumerically(">=", deposed))
		Expect(client.Get(ctx, "a").Val()).To(Equal(lock.Token()))
		Expect(closed(ctx, locks, "b")).To(BeNumerically(">", 0))
	})

	It("is closed no longer than one grace if the clock is set back", func(ctx SpecContext) {
		const maxTTL = time.Second
		clock := newClock()
		s, err := redistest.StartWithEnv(clock.env)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.Close)
		begin(s, maxTTL, 0)
		Expect(closed(ctx, locks, "a")).To(BeNumerically(">", 0))
		clock.set(-time.Hour)
		Expect(closed(ctx, locks, "a")).To(And(BeNumerically(">", 0), BeNumerically("<=", maxTTL)))
		Eventually(func() time.Duration { return closed(ctx, locks, "a") }).WithTimeout(wait).Should(BeZero())
	})

	It("lets a replica grant nothing, although it can be written", func(ctx SpecContext) {
		master := spec.StartServer(redistest.PromptSync)
		replica, err := redistest.StartReplica(master, nil, "replica-read-only no")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(replica.Close)
		begin(replica, maxTTL, 0)
		_, err = locks.Obtain(ctx, "a", maxTTL, nil)
		Expect(err).To(MatchError(ContainSubstring("READONLY a replica grants no locks")))
		Expect(size(ctx)).To(BeZero())

		unguarded := redislock.New(client)
		DeferCleanup(unguarded.Close)
		lock := spec.Obtain(ctx, unguarded, maxTTL, nil, "a")
		_, err = locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).To(MatchError(ContainSubstring("READONLY a replica grants no locks")))
	})

	It("says that a user may not ask who the server is, and writes nothing", func(ctx SpecContext) {
		begin(spec.StartServer(), maxTTL, 0)
		openGuard(ctx, client, maxTTL, 0)
		user := func(rights ...string) *redislock.Client {
			Expect(server.Restrict("user", "secret", append([]string{"+@all", "allchannels"}, rights...)...)).To(Succeed())
			locks := redislock.New(spec.Connect(&redis.Options{
				Addr: server.Addr(), Username: "user", Password: "secret",
			}), redislock.WithGuard(maxTTL, 0))
			DeferCleanup(locks.Close)
			return locks
		}
		_, err := user("-info").Obtain(ctx, "a", maxTTL, nil)
		Expect(err).To(MatchError(ContainSubstring("ERR a guard needs INFO replication")))
		Expect(size(ctx)).To(BeEquivalentTo(1), "the marker")
		Expect(closed(ctx, user(), "a")).To(BeZero())
	})

	It("grants nothing while memory is too short for the marker", func(ctx SpecContext) {
		const maxTTL = time.Second
		begin(spec.StartServer(), maxTTL, 0)
		full(ctx, true)
		Consistently(func() time.Duration { return closed(ctx, locks, "a") }).WithTimeout(maxTTL+maxTTL/2).
			Should(BeNumerically("~", maxTTL, maxTTL/4), "no grace begins")
		Expect(size(ctx)).To(BeZero())
		full(ctx, false)
		began := time.Now()
		Eventually(func() time.Duration { return closed(ctx, locks, "a") }).WithTimeout(wait).Should(BeZero())
		Expect(time.Since(began)).To(BeNumerically(">=", maxTTL))
	})

	It("renews nothing while memory is too short for the marker and a deposed master may grant", func(ctx SpecContext) {
		const deposed = 500 * time.Millisecond
		begin(spec.StartServer(), maxTTL, deposed)
		openGuard(ctx, client, maxTTL, deposed)
		lock := spec.Obtain(ctx, locks, maxTTL, nil, "a")
		full(ctx, true)
		Expect(client.Del(ctx, keyname.GuardMarker).Err()).To(Succeed())
		before := client.PTTL(ctx, "a").Val()
		Expect(lock.Refresh(spec.Within(ctx, deposed/2), maxTTL, nil)).To(MatchError(context.DeadlineExceeded))
		left := client.PTTL(ctx, "a").Val()
		Expect(left).To(BeNumerically("<", before))
		full(ctx, false)
		Expect(lock.Refresh(ctx, maxTTL, nil)).To(Succeed())
		Expect(client.PTTL(ctx, "a").Val()).To(BeNumerically(">", left))
	})

	It("renews locks whose keys are there while memory is too short for the marker", func(ctx SpecContext) {
		begin(spec.StartServer(), maxTTL, 0)
		openGuard(ctx, client, maxTTL, 0)
		lock := spec.Obtain(ctx, locks, maxTTL, nil, "a")
		forgotten := spec.Obtain(ctx, locks, maxTTL, nil, "b")
		full(ctx, true)
		Expect(client.Del(ctx, keyname.GuardMarker, "b").Err()).To(Succeed())
		Expect(lock.Refresh(ctx, maxTTL, nil)).To(Succeed())
		Expect(forgotten.Refresh(ctx, maxTTL, nil)).To(MatchError(ContainSubstring("OOM")))
		Expect(closed(ctx, locks, "b")).To(BeNumerically("~", maxTTL, maxTTL/4))
		Expect(size(ctx)).To(BeEquivalentTo(1))
		full(ctx, false)
		Expect(forgotten.Refresh(ctx, maxTTL, nil)).To(Succeed(), "it is put back as soon as there is memory")
	})
})
