package place_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeFaulty("Release", func(on *spec.FaultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.ConnectBy(nil)
	})

	var lock *redislock.Lock

	with := func(ctx context.Context, locks *redislock.Client) {
		GinkgoHelper()
		lock = spec.Obtain(ctx, locks, 10*time.Second, nil, "a", "b")
	}

	DescribeTable("succeeds in spite of it", func(ctx SpecContext, action faultproxy.Action) {
		with(ctx, on.TimingOut(100*time.Millisecond))
		on.Broken("release", 2, action)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Requested("release")).To(Equal(3))
		Expect(on.Keys(ctx)).To(BeEmpty())
	},
		Entry("the reply is swallowed, so that the next try finds the keys gone", faultproxy.SwallowReply()),
		Entry("the connection is cut in the reply", faultproxy.CutAfterReplyBytes(2)),
		Entry("the request is cut", faultproxy.CutAfterRequestBytes(30)),
		Entry("a black hole", faultproxy.BlackHole()),
		Entry("the server is not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")),
	)

	It("reports the loss if its first try was sent after Until", func(ctx SpecContext) {
		short := spec.Obtain(ctx, on.TimingOut(100*time.Millisecond), 50*time.Millisecond, nil, "short")
		Eventually(func() bool { return time.Now().After(short.Until()) }).Should(BeTrue())
		on.Client.Set(ctx, "short", short.Token(), time.Minute)
		on.Broken("release", 1, faultproxy.SwallowReply())
		Expect(short.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(on.Requested("release")).To(Equal(2))
	})

	It("reports the loss that its first try finds", func(ctx SpecContext) {
		with(ctx, locks)
		on.Client.Del(ctx, "a", "b")
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("reports no loss of what a concurrent call frees", func(ctx SpecContext) {
		seen := &spec.Recorder{}
		locks := redislock.New(spec.Connect(&redis.Options{Addr: on.Proxy.Addr()}), redislock.WithTracer(seen.Tracer()))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		late := on.Broken("release", 1, faultproxy.DelayReply(200*time.Millisecond))
		first := make(chan error, 1)
		go func() { first <- lock.Release(ctx) }()
		<-late.Hit()
		time.Sleep(20 * time.Millisecond)
		Expect(on.Keys(ctx)).To(BeEmpty())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-first).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(spec.EventsOf[redislock.Lost](seen)).To(BeEmpty())
		var held []bool
		for _, e := range spec.EventsOf[redislock.Released](seen) {
			held = append(held, e.Held > 0)
		}
		Expect(held).To(ConsistOf(true, false, false))
	})

	It("returns nil if an earlier call freed the keys without an answer", func(ctx SpecContext) {
		with(ctx, on.ConnectBy(func(opt *redis.Options) { opt.MaxRetries = -1 }))
		on.Broken("release", 1, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("EOF")))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("reports what an earlier, abandoned call did, although Until has passed since", func(ctx SpecContext) {
		short := spec.Obtain(ctx, on.TimingOut(2*spec.Soon), 200*time.Millisecond, nil, "short")
		on.Broken("release", 1, faultproxy.DelayReply(400*time.Millisecond))
		Expect(short.Release(spec.Within(ctx, 300*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		Expect(short.Release(ctx)).To(Succeed())
		Expect(on.Requested("release")).To(Equal(1), "the second call joins the first")
		Expect(short.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("does not take credit for what it never sent", func(ctx SpecContext) {
		with(ctx, locks)
		on.Disconnect(ctx)
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.Client.Del(ctx, "a", "b")
		on.Proxy.RefuseConnections(false)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("returns when ctx ends, and goes on in the background", func(ctx SpecContext) {
		with(ctx, on.TimingOut(400*time.Millisecond))
		on.Broken("release", 6, faultproxy.BlackHole()) // more often than MaxRetries
		start := time.Now()
		err := lock.Release(spec.Within(ctx, 50*time.Millisecond))
		Expect(time.Since(start)).To(BeNumerically("<", 390*time.Millisecond))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		Expect(on.Keys(ctx)).To(HaveLen(2))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
		Expect(lock.Release(ctx)).To(Succeed(), "the one in the background did it")
	})

	DescribeTable("goes on in the background for as long as the keys may exist, although Until has passed", func(ctx SpecContext, end func(context.Context)) {
		lock = spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		end(ctx)
		on.Disconnect(ctx)
		Eventually(func() bool { return time.Now().After(lock.Until()) }).Should(BeTrue())
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		time.Sleep(1500 * time.Millisecond)
		on.Proxy.RefuseConnections(false)
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
	},
		Entry("because one of them is lost", func(ctx context.Context) {
			on.Client.Del(ctx, "a")
			var lost *redislock.LostError
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(BeAssignableToTypeOf(lost))
		}),
		Entry("because a shorter Refresh has failed", func(ctx context.Context) {
			on.Broken("refresh", 0, faultproxy.RefuseReply("OOM command not allowed"))
			Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).To(MatchError(ContainSubstring("OOM")))
		}),
		Entry("because the answer to a longer Refresh was lost", func(ctx context.Context) {
			Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
			on.Broken("refresh", 1, faultproxy.SwallowReply())
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
		}),
	)

	// What gives a lock up: Release with a ctx of any kind, the end of Do, and Close right after Release.
	ways := map[string]func(ctx context.Context, locks *redislock.Client) error{
		"with a ctx that never ends": func(ctx context.Context, locks *redislock.Client) error {
			with(ctx, locks)
			return lock.Release(context.Background())
		},
		"with a ctx that can be cancelled": func(ctx context.Context, locks *redislock.Client) error {
			with(ctx, locks)
			free, cancel := context.WithCancel(context.Background())
			defer cancel()
			return lock.Release(free)
		},
		"with a deadline": func(ctx context.Context, locks *redislock.Client) error {
			with(ctx, locks)
			return lock.Release(spec.Within(ctx, time.Minute))
		},
		"with a ctx that has ended": func(ctx context.Context, locks *redislock.Client) error {
			with(ctx, locks)
			ended, cancel := context.WithCancel(ctx)
			cancel()
			return lock.Release(ended)
		},
		"by Do": func(ctx context.Context, locks *redislock.Client) error {
			return locks.Do(ctx, []string{"a", "b"}, 10*time.Second, nil, func(context.Context) error { return nil })
		},
		"by a Client that closes": func(ctx context.Context, locks *redislock.Client) error {
			with(ctx, locks)
			err := lock.Release(ctx)
			Expect(locks.Close()).To(Succeed())
			return err
		},
		"by an attached handle": func(ctx context.Context, locks *redislock.Client) error {
			with(ctx, locks)
			attached, err := locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			return attached.Release(ctx)
		},
	}
	for way, give := range ways {
		DescribeTable("that is refused for now goes on in the background, "+way, func(ctx SpecContext, answer string) {
			on.Broken("release", 8, faultproxy.RefuseReply(answer)) // for two rounds
			Expect(give(ctx, locks)).To(MatchError(ContainSubstring(answer)))
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
		},
			Entry("without replicas", "NOREPLICAS Not enough good replicas to write."),
			Entry("by a replica", "READONLY You can't write against a read only replica."),
		)

		It("that cannot connect goes on in the background, "+way, func(ctx SpecContext) {
			refused := on.Broken("release", 0, faultproxy.CutAfterRequestBytes(0))
			Expect(give(ctx, locks)).NotTo(Succeed())
			Expect(on.Keys(ctx)).To(HaveLen(2))
			refused.Remove()
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
		})
	}

	It("that is refused for good does not go on in the background", func(ctx SpecContext) {
		with(ctx, locks)
		on.Broken("release", 0, faultproxy.RefuseReply("NOPERM this user has no permissions to run the 'evalsha' command"))
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("NOPERM")))
		Consistently(func() int { return on.Requested("release") }).WithTimeout(time.Second).Should(Equal(1))
	})

	It("that goes on in the background is not delayed when the Client is closed", func(ctx SpecContext) {
		with(ctx, locks)
		fault := on.Broken("release", 0, faultproxy.RefuseReply("NOREPLICAS Not enough good replicas to write."))
		Expect(lock.Release(ctx)).NotTo(Succeed())
		time.Sleep(3 * time.Second) // by now seconds lie between two rounds
		fault.Remove()
		Expect(locks.Close()).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("that joins one in the background returns as a first one would, and leaves that going on", func(ctx SpecContext) {
		with(ctx, locks)
		on.Proxy.CutAll()
		on.Proxy.RefuseConnections(true)
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		for range 3 {
			start := time.Now()
			err := lock.Release(context.Background())
			Expect(time.Since(start)).To(BeNumerically("<", 2*spec.Soon), "go-redis dials for half a second, and once more")
			Expect(err).To(MatchError(HavePrefix(`redislock: release "a" and 1 more: `)))
			Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
			time.Sleep(200 * time.Millisecond)
		}
		on.Proxy.RefuseConnections(false)
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
		Expect(lock.Release(ctx)).To(Succeed(), "the one in the background did it")
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("that joins one in the background begins the next round of that", func(ctx SpecContext) {
		with(ctx, locks)
		on.Proxy.CutAll()
		on.Proxy.RefuseConnections(true)
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		time.Sleep(2 * time.Second) // by now seconds lie between two rounds
		on.Proxy.RefuseConnections(false)
		Expect(lock.Release(spec.Within(ctx, spec.Soon/2))).To(Succeed())
		Expect(on.Requested("release")).To(Equal(1))
	})

	It("knows what an earlier round has freed, in any call", func(ctx SpecContext) {
		with(ctx, on.TimingOut(100*time.Millisecond))
		swallowed := on.Broken("release", 1, faultproxy.SwallowReply())
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		Expect(swallowed.Count()).To(Equal(1))
		Expect(on.Keys(ctx)).To(BeEmpty())
		on.Proxy.CutAll()
		on.Proxy.RefuseConnections(true)
		Expect(lock.Release(context.Background())).NotTo(Succeed())
		on.Proxy.RefuseConnections(false)
		Expect(lock.Release(context.Background())).To(Succeed())
		Expect(lock.Release(context.Background())).To(Equal(redislock.ErrLockNotHeld))
	})

	It("waits a second for the answer when ctx had ended before", func(ctx SpecContext) {
		with(ctx, locks)
		slow := on.Broken("release", 1, faultproxy.DelayReply(300*time.Millisecond))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		Expect(lock.Release(ended)).To(Succeed())
		Expect(slow.Count()).To(Equal(1))
	})

	It("waits no longer than that, and not past Until", func(ctx SpecContext) {
		with(ctx, locks)
		short := spec.Obtain(ctx, locks, 300*time.Millisecond, nil, "short")
		on.Broken("release", 0, faultproxy.BlackHole())
		ended, cancel := context.WithCancel(ctx)
		cancel()
		until := short.Until()
		Expect(short.Release(ended)).To(MatchError(context.Canceled))
		Expect(time.Now()).To(BeTemporally("<", until.Add(500*time.Millisecond)))
		start := time.Now()
		Expect(lock.Release(ended)).To(MatchError(context.Canceled))
		Expect(time.Since(start)).To(BeNumerically("~", 1250*time.Millisecond, 250*time.Millisecond))
		on.Proxy.CutAll()
		Expect(on.Proxy.Close()).To(Succeed())
	})
})
