package redislock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
)

// The message of a hand-off can arrive when the ttl is over. These specs publish such a message themselves.
var _ = describe("A hand-off that comes too late", func(on *onRedis) {
	var locks, faulty *redislock.Client
	var proxy *faultproxy.Proxy
	queue := &redislock.Options{Queue: true}

	BeforeEach(func() {
		locks = redislock.New(on.client)
		DeferCleanup(locks.Close)
		proxy = on.newProxy()
		faulty = on.connectThrough(proxy)
	})
	// handOff tells the first in line for a key that it was handed the key at a time, in µs.
	handOff := func(ctx context.Context, key string, at int64) {
		GinkgoHelper()
		name, number, _ := strings.Cut(line(ctx, on.client, key)[0], "/")
		Expect(on.client.Publish(ctx, inboxes+name, fmt.Sprint(number, " granted ", at, " 0")).Val()).To(BeNumerically(">", 0))
	}
	now := func(ctx context.Context) int64 { return on.client.Time(ctx).Val().UnixMicro() }

	It("does not make the waiter distrust its subscription", func(ctx SpecContext) {
		obtain(ctx, locks, time.Minute, nil, "a")
		wait(ctx, locks, 100*time.Millisecond, queue, "a")
		opened(ctx, on.client, "a")
		at, before := now(ctx), line(ctx, on.client, "a")
		time.Sleep(200 * time.Millisecond)
		handOff(ctx, "a", at)
		Eventually(func() []string { return line(ctx, on.client, "a") }).WithTimeout(5*time.Second).
			Should(And(HaveLen(1), Not(Equal(before))), "the waiter begins again")
		time.Sleep(1200 * time.Millisecond) // and tries once more
		opened(ctx, on.client, "a")
	})

	It("takes back what an abandoned try acquires later", func(ctx SpecContext) {
		held := obtain(ctx, locks, time.Minute, nil, "a")
		first := wait(ctx, faulty, time.Second, &redislock.Options{Queue: true, FenceKey: "fence"}, "a")
		opened(ctx, on.client, "a")
		at, before := now(ctx), line(ctx, on.client, "a")
		stuck := proxy.Add(faultproxy.Rule{Match: running("obtain"), Times: 1, Action: faultproxy.DelayRequest(2800 * time.Millisecond)})
		Eventually(stuck.Count).WithTimeout(2 * time.Second).WithPolling(time.Millisecond).Should(Equal(1))
		sent := time.Now()
		time.Sleep(300 * time.Millisecond)
		handOff(ctx, "a", at)
		Eventually(func() []string { return line(ctx, on.client, "a") }).WithTimeout(2*time.Second).
			Should(And(HaveLen(1), Not(Equal(before))), "the waiter has abandoned the try, and begins again")
		first.cancel()
		Eventually(func() int { return waiters(ctx, locks, "a") }).Should(BeZero())
		Expect(held.Release(ctx)).To(Succeed())
		Expect(on.keys(ctx)).To(BeEmpty())
		Expect(time.Since(sent)).To(BeNumerically("<", 2500*time.Millisecond))
		Eventually(func() bool { return on.client.Exists(ctx, "fence").Val() > 0 }).WithTimeout(2*time.Second).WithPolling(time.Millisecond).
			Should(BeTrue(), "the stuck try is granted")
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(300 * time.Millisecond).WithPolling(10 * time.Millisecond).
			Should(ConsistOf("fence"))
	})
}, queueing)

// The number of large tries that are under way at once is limited.
var _ = describe("A hand-off of many keys", func(on *onRedis) {
	It("does not wait until other large tries are answered", func(ctx SpecContext) {
		proxy := on.newProxy()
		faulty := on.connectThrough(proxy)
		locks := redislock.New(on.client)
		keys := func(prefix string) (keys []string) {
			for i := range 256 {
				keys = append(keys, "{x}"+prefix+strconv.Itoa(i))
			}
			return keys
		}
		const others = 4 // with more, the waiter would try too seldom to be handed anything
		all := keys("first")
		for i := range others {
			all = append(all, keys(fmt.Sprint("other", i, ":"))...)
		}
		held := obtain(ctx, locks, time.Minute, nil, all...)
		queue := &redislock.Options{Queue: true}
		for i := range others {
			wait(ctx, faulty, time.Minute, queue, keys(fmt.Sprint("other", i, ":"))...)
		}
		first := wait(ctx, faulty, time.Minute, queue, keys("first")...)
		opened(ctx, on.client, keys("first")[0])
		delayed := func(args []string) bool { return running("obtain")(args) && !slices.Contains(args, "{x}first0") }
		stuck := proxy.Add(faultproxy.Rule{Match: delayed, Action: faultproxy.DelayRequest(900 * time.Millisecond)})
		Eventually(stuck.Count).WithTimeout(5 * time.Second).WithPolling(time.Millisecond).Should(Equal(others))
		released := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		first.granted()
		Expect(first.at).To(BeTemporally("<", released.Add(500*time.Millisecond)))
	})
}, queueing)
