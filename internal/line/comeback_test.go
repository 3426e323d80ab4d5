package line_test

import (
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Waiters come back", func(on *spec.Redis) {
	queue := &redislock.Options{Queue: true}

	// all starts waiters that need not stand in any order.
	all := func(ctx SpecContext, locks *redislock.Client, n int, keys func(i int) []string) (wait func()) {
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() {
				lock, err := locks.ObtainMulti(ctx, keys(i), time.Minute, queue)
				if err == nil {
					_ = lock.Release(ctx)
				}
			})
		}
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).WithTimeout(20 * time.Second).Should(Equal(n))
		return group.Wait
	}

	It("not because a newcomer is the first in another line", func(ctx SpecContext) {
		client := on.Client
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		wait := all(ctx, locks, 100, func(i int) []string { return []string{"a", fmt.Sprint("b", i)} })
		time.Sleep(2 * time.Second)
		count := spec.CountCalls(client)
		var more []*spec.Waiter
		for i := range 10 {
			more = append(more, spec.StartWaiter(ctx, locks, time.Minute, queue, "a", fmt.Sprint("c", i)))
		}
		time.Sleep(500 * time.Millisecond)
		Expect(count.Count()).To(BeNumerically("<", 60), "10 obtains and some inspects")
		Expect(held.Release(ctx)).To(Succeed())
		wait()
		for _, w := range more {
			Expect(w.Granted().Release(ctx)).To(Succeed())
		}
	})

	It("once each, when their line is lost", func(ctx SpecContext) {
		client := on.Client
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		const n = 2000
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		wait := all(ctx, locks, n, func(int) []string { return []string{"a"} })
		time.Sleep(2 * time.Second)
		count := spec.CountCalls(client)
		Expect(client.Del(ctx, spec.LineKey("a")).Err()).To(Succeed())
		time.Sleep(4 * time.Second)
		Expect(spec.Line(ctx, client, "a")).To(HaveLen(n))
		tries := count.Count()
		GinkgoWriter.Println("tries", tries)
		Expect(tries).To(BeNumerically("<", n*3/2))
		Expect(held.Release(ctx)).To(Succeed())
		wait()
	})
})
