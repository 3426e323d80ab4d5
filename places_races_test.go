package redislock_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

// Races that need a network as slow as the spec wants it.
var _ = Describe("On a quorum of 3 with a slow network", Label(inMemory), func() {
	on := &quorum{kind: inMemory}
	var slow *atomic.Int64 // how long the replies of scripts take, of the servers in late
	var late map[*oneServer]bool

	BeforeEach(func(ctx SpecContext) {
		on.begin(ctx, 3)
		on.warm(ctx)
		slow, late = new(atomic.Int64), map[*oneServer]bool{}
		for _, s := range on.servers {
			late[s] = true
			s.memory.fate = func(w *wire, reply bool, data []byte) fate {
				if w.owner == 0 && reply && late[s] {
					return fate{delay: time.Duration(slow.Load())}
				}
				return fate{}
			}
		}
	})

	It("a Refresh that is confirmed after a Release obtains nothing again", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Minute, nil, "a")
		Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(3, lock.Token())))
		Expect(on.servers[2].own.Del(ctx, "a").Err()).To(Succeed()) // the Refresh would obtain it again
		slow.Store(int64(50 * time.Millisecond))
		refreshed := make(chan error)
		go func() { refreshed <- lock.Refresh(ctx, time.Hour, nil) }()
		time.Sleep(10 * time.Millisecond)
		_ = lock.Release(ctx)
		Eventually(refreshed).Should(Receive())
		Consistently(on.left).WithArguments(ctx).WithTimeout(2 * time.Second).Should(BeEmpty())
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})

	It("a KeepAlive that comes while the last one ends is served", func(ctx SpecContext) {
		lock := obtain(ctx, on.locks, time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		lock.StopRenewing() // the last one, which has ended just before this one came, is about to do so
		time.Sleep(2 * time.Second)
		Expect(context.Cause(kept)).NotTo(HaveOccurred())
		stop()
		lock.StopRenewing()
		Eventually(on.left).WithArguments(ctx).WithTimeout(2 * time.Second).Should(BeEmpty())
	})

	It("a server that grants too late is asked again with the token of the lock", func(ctx SpecContext) {
		late[on.servers[0]], late[on.servers[1]] = false, false
		slow.Store(int64(150 * time.Millisecond))
		lock := obtain(ctx, on.locks, 100*time.Millisecond, &redislock.Options{Metadata: "me"}, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(140 * time.Millisecond) // by now, what the server granted at first has expired
		slow.Store(0)
		held := func() string { return on.servers[2].own.Get(ctx, "a").Val() }
		Eventually(held).WithPolling(time.Millisecond).ShouldNot(BeEmpty())
		Consistently(held).WithTimeout(1500 * time.Millisecond).WithPolling(time.Millisecond).Should(Equal(lock.Token() + " me"))
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(on.left).WithArguments(ctx).Should(BeEmpty())
	})
})
