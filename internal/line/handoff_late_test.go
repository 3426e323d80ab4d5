package line_test

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
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// The message of a hand-off can arrive when the ttl is over. These specs publish such a message themselves.
var _ = spec.DescribeOnRedis("A hand-off that comes too late", func(on *spec.Redis) {
	var locks, faulty *redislock.Client
	var proxy *faultproxy.Proxy
	queue := &redislock.Options{Queue: true}

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
		proxy = on.NewProxy()
		faulty = on.ConnectThrough(proxy)
	})
	// handOff tells the first in line for a key that it was handed the key at a time, in µs.
	handOff := func(ctx context.Context, key string, at int64) {
		GinkgoHelper()
		name, number, _ := strings.Cut(spec.Line(ctx, on.Client, key)[0], "/")
		Expect(on.Client.Publish(ctx, spec.Inboxes+name, fmt.Sprint(number, " granted ", at, " 0")).Val()).To(BeNumerically(">", 0))
	}
	now := func(ctx context.Context) int64 { return on.Client.Time(ctx).Val().UnixMicro() }

	It("does not make the waiter distrust its subscription", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "a")
		spec.StartWaiter(ctx, locks, 100*time.Millisecond, queue, "a")
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		at, before := now(ctx), spec.Line(ctx, on.Client, "a")
		time.Sleep(200 * time.Millisecond)
		handOff(ctx, "a", at)
		Eventually(func() []string { return spec.Line(ctx, on.Client, "a") }).WithTimeout(5*time.Second).
			Should(And(HaveLen(1), Not(Equal(before))), "the waiter begins again")
		time.Sleep(1200 * time.Millisecond) // and tries once more
		spec.AwaitSubscriptions(ctx, on.Client, "a")
	})

	It("takes back what an abandoned try acquires later", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := spec.StartWaiter(ctx, faulty, time.Second, &redislock.Options{Queue: true, FenceKey: "fence"}, "a")
		spec.AwaitSubscriptions(ctx, on.Client, "a")
		at, before := now(ctx), spec.Line(ctx, on.Client, "a")
		stuck := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 1, Action: faultproxy.DelayRequest(2800 * time.Millisecond)})
		spec.Wake(ctx, on.Client, "a", 0)
		Eventually(stuck.Count).WithTimeout(2 * time.Second).WithPolling(time.Millisecond).Should(Equal(1))
		sent := time.Now()
		time.Sleep(300 * time.Millisecond)
		handOff(ctx, "a", at)
		Eventually(func() []string { return spec.Line(ctx, on.Client, "a") }).WithTimeout(2*time.Second).
			Should(And(HaveLen(1), Not(Equal(before))), "the waiter has abandoned the try, and begins again")
		first.Cancel()
		Eventually(func() int { return spec.CountWaiters(ctx, locks, "a") }).Should(BeZero())
		Expect(held.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
		Expect(time.Since(sent)).To(BeNumerically("<", 2500*time.Millisecond))
		Eventually(func() bool { return on.Client.Exists(ctx, "fence").Val() > 0 }).WithTimeout(2*time.Second).WithPolling(time.Millisecond).
			Should(BeTrue(), "the stuck try is granted")
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(300 * time.Millisecond).WithPolling(10 * time.Millisecond).
			Should(ConsistOf("fence"))
	})
})

// The number of large tries that are under way at once is limited.
var _ = spec.DescribeOnRedis("A hand-off of many keys", func(on *spec.Redis) {
	It("does not wait until other large tries are answered", func(ctx SpecContext) {
		proxy := on.NewProxy()
		faulty := on.ConnectThrough(proxy)
		locks := redislock.New(on.Client)
		keys := func(prefix string) (keys []string) {
			for i := range 256 {
				keys = append(keys, "{x}"+prefix+strconv.Itoa(i))
			}
			return keys
		}
		const others = 4
		all := keys("first")
		for i := range others {
			all = append(all, keys(fmt.Sprint("other", i, ":"))...)
		}
		held := spec.Obtain(ctx, locks, time.Minute, nil, all...)
		queue := &redislock.Options{Queue: true}
		for i := range others {
			spec.StartWaiter(ctx, faulty, time.Minute, queue, keys(fmt.Sprint("other", i, ":"))...)
		}
		first := spec.StartWaiter(ctx, faulty, time.Minute, queue, keys("first")...)
		spec.AwaitSubscriptions(ctx, on.Client, keys("first")[0])
		delayed := func(args []string) bool { return spec.Running("obtain")(args) && !slices.Contains(args, "{x}first0") }
		stuck := proxy.Add(faultproxy.Rule{Match: delayed, Action: faultproxy.DelayRequest(900 * time.Millisecond)})
		for i := range others {
			spec.Wake(ctx, on.Client, keys(fmt.Sprint("other", i, ":"))[0], 0)
		}
		Eventually(stuck.Count).WithTimeout(5 * time.Second).WithPolling(time.Millisecond).Should(Equal(others))
		released := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		first.Granted()
		Expect(first.At).To(BeTemporally("<", released.Add(500*time.Millisecond)))
	})
})
