package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
)

// Races that need a network as slow as the spec wants it.
var _ = Describe("On a quorum of 3 with a slow network", Label(spec.InMemory), func() {
	on := &spec.Quorum{Kind: spec.InMemory}
	// late makes replies to our requests take that long.
	late := func(d time.Duration, servers ...*spec.Server) {
		for _, s := range servers {
			s.Memory.Add(faultproxy.Rule{Client: spec.Ours, Action: faultproxy.DelayReply(d)})
		}
	}

	BeforeEach(func(ctx SpecContext) {
		on.Begin(ctx, 3)
		on.Warm(ctx)
		for _, s := range on.Servers {
			s.Memory.SetLatency(nil)
		}
	})

	It("a Refresh that is confirmed after a Release obtains nothing again", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token())))
		Expect(on.Servers[2].Own.Del(ctx, "a").Err()).To(Succeed()) // the Refresh would obtain it again
		late(50*time.Millisecond, on.Servers...)
		refreshed := make(chan error)
		go func() { refreshed <- lock.Refresh(ctx, time.Hour, nil) }()
		time.Sleep(10 * time.Millisecond)
		_ = lock.Release(ctx)
		Eventually(refreshed).Should(Receive())
		Consistently(on.LeftKeys).WithArguments(ctx).WithTimeout(2 * time.Second).Should(BeEmpty())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})

	It("a KeepAlive that comes while the last one ends is served", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		spec.Several(lock).StopRenewing() // the last one, which has ended just before this one came, is about to do so
		time.Sleep(2 * time.Second)
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
		stop()
		spec.Several(lock).StopRenewing()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(2 * time.Second).Should(BeEmpty())
	})

	It("a server that grants too late is asked again with the token of the lock", func(ctx SpecContext) {
		late(150*time.Millisecond, on.Servers[2])
		lock := spec.Obtain(ctx, on.Locks, 100*time.Millisecond, &redislock.Options{Metadata: "me"}, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(140 * time.Millisecond) // by now, what the server granted at first has expired
		on.Servers[2].Memory.RemoveAll()
		held := func() string { return on.Servers[2].Own.Get(ctx, "a").Val() }
		Eventually(held).WithPolling(time.Millisecond).ShouldNot(BeEmpty())
		Consistently(held).WithTimeout(1500 * time.Millisecond).WithPolling(time.Millisecond).Should(Equal(lock.Token() + " me"))
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.LeftKeys).WithArguments(ctx).Should(BeEmpty())
	})
})
