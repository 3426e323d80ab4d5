package place_test

import (
	"context"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeFaulty("TTL, Attach and Inspect", func(on *spec.FaultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.ConnectBy(nil)
	})

	It("return at once when ctx ends, and are resent when they can be", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.Broken("pttl", 1, faultproxy.CutAfterReplyBytes(0))
		on.Broken("inspect", 1, faultproxy.CutAfterReplyBytes(0))
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(locks.Inspect(ctx, "a")).To(HaveLen(1))

		on.Broken("pttl", 1, faultproxy.BlackHole())
		on.Broken("inspect", 2, faultproxy.BlackHole())
		start := time.Now()
		_, err := lock.TTL(spec.Within(ctx, 50*time.Millisecond))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(err).To(MatchError(ContainSubstring(`redislock: ttl "a"`)))
		_, err = locks.Inspect(spec.Within(ctx, 50*time.Millisecond), "a")
		Expect(err).To(MatchError(context.DeadlineExceeded))
		_, err = locks.Attach(spec.Within(ctx, 50*time.Millisecond), []string{"a"}, lock.Token())
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(start)).To(BeNumerically("<", spec.Soon))
		on.Proxy.CutAll()
	})
})

var _ = spec.DescribeOn(spec.OnServer, "While the server hangs", func(_ *spec.Redis) {
	It("every method returns when its ctx ends", func(ctx SpecContext) {
		server := spec.StartServer()
		client := spec.Connect(&redis.Options{Addr: server.Addr()})
		locks := redislock.New(client)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(server.Pause()).To(Succeed())
		DeferCleanup(server.Resume)
		for _, method := range []struct {
			name string
			call func(context.Context) error
		}{
			{"Obtain", func(ctx context.Context) error { _, err := locks.Obtain(ctx, "b", time.Minute, nil); return err }},
			{"TTL", func(ctx context.Context) error { _, err := lock.TTL(ctx); return err }},
			{"Inspect", func(ctx context.Context) error { _, err := locks.Inspect(ctx, "a"); return err }},
			{"Attach", func(ctx context.Context) error { _, err := locks.Attach(ctx, []string{"a"}, "t"); return err }},
			{"Refresh", func(ctx context.Context) error { return lock.Refresh(ctx, time.Minute, nil) }},
			{"Release", lock.Release}, // the last, for it gives the lock up
		} {
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			err := method.call(limited)
			deadline, _ := limited.Deadline()
			late := time.Since(deadline)
			cancel()
			Expect(err).To(MatchError(context.DeadlineExceeded), method.name)
			Expect(late).To(BeNumerically("<", spec.Soon), method.name)
			AddReportEntry(method.name, late.String(), ReportEntryVisibilityFailureOrVerbose)
		}
		Expect(server.Resume()).To(Succeed())
		Eventually(func() []string { return client.Keys(ctx, "*").Val() }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

var _ = Describe("If a hook panics while Inspect asks several nodes", Label(spec.OnServer), func() {
	It("the caller can recover", func(ctx SpecContext) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: spec.StartCluster().Addrs()})
		DeferCleanup(client.Close)
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		Expect(locks.Inspect(ctx, "a", "b", "c")).To(HaveLen(3))
		end := func() { panic("a hook") }
		client.AddHook(&spec.AroundHook{Before: func(redis.Cmder) { end() }})
		Expect(func() { _, _ = locks.Inspect(ctx, "a", "b", "c") }).To(PanicWith("a hook"))
		end = runtime.Goexit
		ended := make(chan bool, 1)
		go func() {
			returned := false
			defer func() { ended <- !returned }()
			_, _ = locks.Inspect(ctx, "a", "b", "c")
			returned = true
		}()
		Eventually(ended).Should(Receive(BeTrue()))
		end = func() {}
		Expect(locks.Inspect(ctx, "a", "b", "c")).To(HaveLen(3))
	})
})
