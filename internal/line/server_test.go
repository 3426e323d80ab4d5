package line_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

const (
	// pace is how often a waiter tries whom no message reaches.
	pace = time.Second

	// noise is how much later than promised a waiter may be on a busy machine.
	noise = 300 * time.Millisecond
)

// joins returns the id of who takes the next position in the line of a key because of what start starts.
func joins(ctx context.Context, client redis.Cmdable, key string, start func()) string {
	GinkgoHelper()
	before := len(spec.Line(ctx, client, key))
	start()
	Eventually(func() []string { return spec.Line(ctx, client, key) }).
		WithTimeout(5 * time.Second).WithPolling(time.Millisecond).Should(HaveLen(before + 1))
	return spec.Line(ctx, client, key)[before]
}

// overlapping returns key sets of which any two have a key in common, so that all who want one stand in one order.
func overlapping(n int) (sets [][]string) {
	for i := range n {
		sets = append(sets, [][]string{{"{q}:a", "{q}:b"}, {"{q}:b", "{q}:c"}, {"{q}:c", "{q}:a"}}[i%3])
	}
	return sets
}

// turn is what became of one who waited in line in this process.
type turn struct {
	position int
	at, left time.Time // granted, and released
	err      error
}

// waitTogether lets one waiter after the other take its position in line, and leave as soon as it is granted. It returns
// what becomes of them.
func waitTogether(ctx context.Context, locks *redislock.Client, client redis.Cmdable, sets [][]string) <-chan turn {
	GinkgoHelper()
	turns := make(chan turn, len(sets))
	for position, keys := range sets {
		joins(ctx, client, keys[0], func() {
			go func() { // ends when granted
				lock, err := locks.ObtainMulti(ctx, keys, 10*time.Second, &redislock.Options{Queue: true})
				now := time.Now()
				failed := lock.Release(ctx)
				for ; failed != nil && failed != redislock.ErrLockNotHeld && ctx.Err() == nil; failed = lock.Release(ctx) {
					time.Sleep(time.Millisecond) // for a second, go-redis may answer with the error of its last dial
				}
				turns <- turn{position: position, at: now, left: time.Now(), err: err}
			}()
		})
	}
	return turns
}

// longestWait returns the longest time that anybody had to wait once the keys were free: from free on to the first
// grant, and from each leaving to the next grant. All n are granted.
func longestWait(turns <-chan turn, n int, free time.Time) (longest time.Duration, order []int) {
	GinkgoHelper()
	var all []turn
	for range n {
		var t turn
		Eventually(turns).WithTimeout(20*time.Second).Should(Receive(&t), "after %v", all)
		Expect(t.err).NotTo(HaveOccurred())
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b turn) int { return a.at.Compare(b.at) })
	for _, t := range all {
		longest = max(longest, t.at.Sub(free))
		free = t.left
		order = append(order, t.position)
	}
	AddReportEntry("waited for free keys", longest, ReportEntryVisibilityFailureOrVerbose)
	return longest, order
}

// lose removes what has such a score from all lines of overlapping.
func lose(ctx context.Context, client *redis.Client, from, to string) {
	GinkgoHelper()
	for _, key := range []string{"{q}:a", "{q}:b", "{q}:c"} {
		Expect(client.ZRemRangeByScore(ctx, spec.LineKey(key), from, to).Val()).NotTo(BeZero())
	}
}

var _ = Describe("Waiting in line goes on when", Label(spec.OnServer), func() {
	DescribeTable("", func(ctx SpecContext, within time.Duration, inOrder bool, trouble func(context.Context, *redistest.Server, *redis.Client)) {
		spec.RequireServer()
		spec.CheckLeaks()
		server := spec.StartServer()
		client := spec.Connect(&redis.Options{Addr: server.Addr()})
		held := spec.Obtain(ctx, redislock.New(client), time.Minute, nil, "{q}:a", "{q}:b", "{q}:c")
		locks := redislock.New(spec.Connect(&redis.Options{Addr: server.Addr()}))
		DeferCleanup(locks.Close)
		turns := waitTogether(ctx, locks, client, overlapping(10))

		trouble(ctx, server, client)
		forgotten := client.Get(ctx, "{q}:a").Val() != held.Token() // a waiter may already have the keys
		free := time.Now()
		if err := held.Release(ctx); forgotten {
			Expect(err).To(Equal(redislock.ErrLockNotHeld))
		} else {
			Expect(err).NotTo(HaveOccurred())
		}
		longest, order := longestWait(turns, 10, free)
		Expect(longest).To(BeNumerically("<", within+noise))
		if inOrder && !forgotten { // without messages, a release serves those first that it can reach
			Expect(order).To(Equal([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
		}
	},
		Entry("the server is killed and comes back empty", pace, true,
			func(_ context.Context, server *redistest.Server, _ *redis.Client) {
				Expect(server.Kill()).To(Succeed())
				Expect(server.Restart()).To(Succeed())
			}),
		Entry("the server is stopped and comes back empty", pace, true,
			func(_ context.Context, server *redistest.Server, _ *redis.Client) {
				Expect(server.Restart()).To(Succeed())
			}),
		Entry("the server is away for so long that go-redis looks for it once a second, too", 2*pace, true,
			func(_ context.Context, server *redistest.Server, _ *redis.Client) {
				Expect(server.Kill()).To(Succeed())
				time.Sleep(2 * pace)
				Expect(server.Restart()).To(Succeed())
			}),
		Entry("all the data are deleted", pace, true, func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
			Expect(client.FlushAll(ctx).Err()).To(Succeed())
		}),
		Entry("its memory is full for longer than the waiters are live", pace, true,
			func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
				Expect(client.ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
				time.Sleep(4 * pace)
				Expect(client.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
				time.Sleep(2 * pace) // they come back
			}),
		Entry("a failover loses the marks", 2*pace, false,
			func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
				lose(ctx, client, "-inf", "(0")
				Expect(client.ClientKillByFilter(ctx, "TYPE", "pubsub").Result()).To(BeNumerically("==", 1))
			}),
		Entry("a failover loses the entries, and not the marks", 2*pace, false,
			func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
				lose(ctx, client, "0", "+inf")
				Expect(client.ClientKillByFilter(ctx, "TYPE", "pubsub").Result()).To(BeNumerically("==", 1))
			}),
		Entry("the scripts are deleted", pace, true, func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
			Expect(client.ScriptFlush(ctx).Err()).To(Succeed())
		}),
		Entry("the subscription is cut", time.Duration(0), false,
			func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
				Expect(client.ClientKillByFilter(ctx, "TYPE", "pubsub").Result()).To(BeNumerically("==", 1))
			}),
		Entry("the other connections are cut", pace, true, func(ctx context.Context, _ *redistest.Server, client *redis.Client) {
			Expect(client.ClientKillByFilter(ctx, "TYPE", "normal").Result()).To(BeNumerically(">", 0))
		}),
	)

	It("its subscriptions are cut again and again, and connects for them a few times a second", func(ctx SpecContext) {
		spec.RequireServer()
		spec.CheckLeaks()
		server := spec.StartServer()
		client := spec.Connect(&redis.Options{Addr: server.Addr()})
		held := spec.Obtain(ctx, redislock.New(client), time.Minute, nil, "{q}:a", "{q}:b", "{q}:c")
		var dials atomic.Int32
		locks := redislock.New(spec.Connect(&redis.Options{
			Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return spec.Dial(ctx, network, addr)
			},
		}))
		DeferCleanup(locks.Close)
		turns := waitTogether(ctx, locks, client, overlapping(3))
		before, cuts := dials.Load(), int64(0)
		for began := time.Now(); time.Since(began) < 2*pace; time.Sleep(time.Millisecond) {
			cuts += client.ClientKillByFilter(ctx, "TYPE", "pubsub").Val()
		}
		Expect(cuts).To(BeNumerically(">", 1))
		Expect(dials.Load()-before).To(BeNumerically("<", 20), "%d subscriptions were cut", cuts)
		free := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		longest, _ := longestWait(turns, 3, free)
		Expect(longest).To(BeNumerically("<", pace+noise))
	})

	DescribeTable("an ACL", func(ctx SpecContext, rules ...string) {
		spec.RequireServer()
		spec.CheckLeaks()
		server := spec.StartServer()
		client := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(client.ACLSetUser(ctx, "waiter", append([]string{"on", ">secret", "~*", "+@all"}, rules...)...).Err()).To(Succeed())
		locks := redislock.New(spec.Connect(&redis.Options{Addr: server.Addr(), Username: "waiter", Password: "secret"}))
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "{q}:a", "{q}:b", "{q}:c")
		turns := waitTogether(ctx, locks, client, overlapping(3))
		Expect(client.PubSubChannels(ctx, "*").Val()).To(BeEmpty())
		free := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		longest, order := longestWait(turns, 3, free)
		Expect(longest).To(BeNumerically("<", pace+noise))
		Expect(order).To(Equal([]int{0, 1, 2}))
	},
		Entry("forbids the channel", "resetchannels"),
		Entry("forbids to subscribe", "allchannels", "-subscribe"),
	)
})

var _ = Describe("Waiting in line on a Cluster", Ordered, Label(spec.OnServer), func() {
	var cluster *redistest.Cluster
	var client *redis.ClusterClient
	keys := []string{"{q}:a", "{q}:b", "{q}:c"}

	BeforeAll(func() { cluster = spec.StartCluster() })

	begin := func(ctx context.Context) (held *redislock.Lock, turns <-chan turn) {
		GinkgoHelper()
		spec.CheckLeaks()
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(client.Close)
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		held = spec.Obtain(ctx, locks, time.Minute, nil, keys...)
		return held, waitTogether(ctx, locks, client, overlapping(9))
	}

	It("grants overlapping sets of keys in order", func(ctx SpecContext) {
		held, turns := begin(ctx)
		free := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		longest, order := longestWait(turns, 9, free)
		Expect(longest).To(BeNumerically("<", noise), "messages arrive")
		Expect(order).To(Equal([]int{0, 1, 2, 3, 4, 5, 6, 7, 8}))
		Expect(client.Exists(ctx, spec.LineKey(keys[0])).Val()).To(BeZero())
	})

	DescribeTable("goes on while the slot moves, and ends with the grants, when the keys are released",
		func(ctx SpecContext, when string) {
			held, turns := begin(ctx)
			var free time.Time
			release := func(now string) {
				if now == when {
					free = time.Now()
					Expect(held.Release(ctx)).To(Succeed())
				}
			}
			migration, err := cluster.BeginMigration(redistest.SlotOf(keys[0]))
			Expect(err).NotTo(HaveOccurred())
			release("before they move")
			Expect(migration.MoveKeys()).To(Succeed())
			release("when they have moved")
			Expect(migration.Finish()).To(Succeed())
			finished := time.Now()
			release("when the slot has moved")
			if free.Before(finished) {
				free = finished
			}
			longest, _ := longestWait(turns, 9, free)
			Expect(longest).To(BeNumerically("<", pace+noise))
		},
		Entry(nil, "before they move"),
		Entry(nil, "when they have moved"),
		Entry(nil, "when the slot has moved"),
	)
})
