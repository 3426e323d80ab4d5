package transport_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// locksKeysOf expects that a lock on two keys of one hash tag works, from its obtain to its release.
func locksKeysOf(ctx context.Context, locks *redislock.Client, tag string) {
	GinkgoHelper()
	lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: tag + ":fence"}, tag+":order", tag+":stock")
	Expect(lock.FenceToken()).To(BeNumerically(">", 0))
	_, err := locks.ObtainMulti(ctx, []string{tag + ":free", tag + ":stock"}, time.Minute, nil)
	Expect(err).To(Equal(redislock.ErrNotObtained))
	Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
	Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
	attached, err := locks.Attach(ctx, lock.Keys(), lock.Token())
	Expect(err).NotTo(HaveOccurred())
	Expect(attached.Release(ctx)).To(Succeed())
}

var _ = Describe("On a Redis Cluster", Ordered, Label(spec.OnServer), func() {
	var cluster *redistest.Cluster
	var client *redis.ClusterClient
	var locks *redislock.Client

	BeforeAll(func() { cluster = spec.StartCluster() })

	BeforeEach(func(ctx SpecContext) {
		spec.CheckLeaks()
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(func() error { return client.Close() })
		Expect(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		})).To(Succeed())
		locks = redislock.New(client)
	})

	all := func(ctx context.Context) []string {
		var keys []string
		for _, addr := range cluster.Addrs() {
			node := redis.NewClient(&redis.Options{Addr: addr})
			keys = append(keys, node.Keys(ctx, "*").Val()...)
			_ = node.Close()
		}
		return keys
	}

	// With the race detector and in pipelines, this shows who else writes to a call.
	It("releases in the background what was abandoned, although another node has the key", Label(spec.Pipelines), func(ctx SpecContext) {
		stale := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: cluster.Addrs()[1]}}}}, nil
		}})
		stale.OnNewNode(func(node *redis.Client) {
			node.AddHook(&spec.AroundHook{Before: func(redis.Cmder) { time.Sleep(60 * time.Millisecond) }})
		})
		DeferCleanup(stale.Close)
		slow := redislock.New(stale)
		DeferCleanup(slow.Close)
		for _, key := range []string{"a", "b", "c", "d"} {
			lock := spec.Obtain(ctx, slow, 10*time.Second, nil, key)
			_ = lock.Release(spec.Within(ctx, 20*time.Millisecond))
			time.Sleep(100 * time.Millisecond)
		}
		Eventually(all).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("locks keys of one hash tag, wherever their slot is", func(ctx SpecContext) {
		for _, tag := range []string{"{order:7}", "{b}", "{c}", "{order:8}"} {
			locksKeysOf(ctx, locks, tag)
		}
	})

	It("explains a refusal", func(ctx SpecContext) {
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Metadata: "me"}, "{b}:stock")
		explainsRefusal(ctx, locks, held, "{b}:free", "{b}:stock")
	})

	It("says which keys are in different slots, and how to fix it", func(ctx SpecContext) {
		for _, opt := range []*redislock.Options{nil, {FenceKey: "{b}:fence"}} {
			keys := []string{"{a}:1", "{a}:2", "{b}:1"}
			if opt != nil {
				keys = keys[:2]
			}
			_, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
			Expect(err).To(MatchError(redis.ErrCrossSlot))
			Expect(err).To(MatchError(ContainSubstring(`"{a}:1" is in slot 15495 and "{b}:`)))
			Expect(err).To(MatchError(ContainSubstring("give all keys of a lock one hash tag, as in {order:7}:stock")))
			Expect(all(ctx)).To(BeEmpty())
		}
	})

	It("gives each call its own script, also through a client of one node", Label(spec.Pipelines), func(ctx SpecContext) {
		single := spec.Connect(&redis.Options{Addr: cluster.Addrs()[0]})
		trips := &spec.PipelineCount{}
		single.AddHook(trips)
		locks := redislock.New(single)
		DeferCleanup(locks.Close)
		for range 2 {
			var count atomic.Int32
			var wait sync.WaitGroup
			for i := range 300 {
				wait.Go(func() {
					defer GinkgoRecover()
					lock, err := locks.Obtain(ctx, fmt.Sprint("key-", i), time.Minute, nil)
					if err != nil {
						_, moved := redis.IsMovedError(err)
						Expect(moved).To(BeTrue(), "%v", err)
						return
					}
					count.Add(1)
					Expect(lock.Release(ctx)).To(Succeed())
				})
			}
			wait.Wait()
			Expect(count.Load()).To(BeNumerically("~", 100, 40), "the keys that this node has")
		}
		if !spec.Pipelined {
			Expect(trips.JointCount()).To(BeZero())
		}
		Expect(all(ctx)).To(BeEmpty())
	})

	It("inspects keys of any slots, one round trip a slot at most", func(ctx SpecContext) {
		var keys []string
		for i := range 50 {
			keys = append(keys, fmt.Sprintf("{%d}:a", i), fmt.Sprintf("{%d}:b", i))
			spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: fmt.Sprint("t", i)}, keys[2*i])
		}
		sent := &spec.CallCount{}
		client.AddHook(sent)
		Expect(locks.Inspect(ctx, keys[0])).To(HaveLen(1))
		before := sent.Count()
		statuses, err := locks.Inspect(ctx, keys...)
		Expect(err).NotTo(HaveOccurred())
		Expect(sent.Count()-before).To(BeNumerically("<=", 50), "what shares a pipeline goes to the nodes, past this hook")
		for i := range 50 {
			Expect(statuses[2*i].Key).To(Equal(keys[2*i]))
			Expect(statuses[2*i].Token).To(Equal(fmt.Sprint("t", i)))
			Expect(statuses[2*i+1]).To(Equal(redislock.Status{Key: keys[2*i+1]}))
		}
	})

	It("inspects keys of any slots through a type that does not say where keys are as well", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "t"}, "b")
		statuses, err := redislock.New(&hiding{client}).Inspect(ctx, "a", "b", "c")
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[1].Token).To(Equal("t"))
	})

	DescribeTable("serves types that embed the client as it serves the client",
		func(ctx SpecContext, wrap func() redislock.RedisClient) {
			own := wrap()
			locks := redislock.New(own)
			DeferCleanup(locks.Close)
			const n = 30 // without messages, this takes 15 s
			Expect(waitInLine(ctx, locks, n, "a", redislock.Options{})).To(BeNumerically("<", 5*time.Second))
			keys := []string{"a", "b", "c"}
			_, err := locks.ObtainMulti(ctx, keys, time.Minute, nil)
			Expect(err).To(MatchError(redis.ErrCrossSlot))
			Expect(err).To(MatchError(ContainSubstring("set AcrossSlots")))
			opt := &redislock.Options{AcrossSlots: true, Queue: true}
			held := spec.Obtain(ctx, locks, time.Minute, opt, keys...)
			Expect(locks.Inspect(ctx, keys...)).To(HaveEach(HaveField("Token", held.Token())))
			waited := make(chan struct{})
			go func() {
				defer close(waited)
				defer GinkgoRecover()
				Expect(spec.Obtain(ctx, locks, time.Minute, opt, "c", "d").Release(ctx)).To(Succeed())
			}()
			Eventually(func() int {
				statuses, err := locks.Inspect(ctx, "c")
				Expect(err).NotTo(HaveOccurred())
				return statuses[0].Waiters
			}).Should(Equal(1))
			Expect(held.Release(ctx)).To(Succeed())
			Eventually(waited).WithTimeout(5 * time.Second).Should(BeClosed())
			Expect(all(ctx)).To(BeEmpty())
			if o, counts := own.(*overriding); counts {
				Expect(o.Count()).To(BeNumerically(">", 2*n))
			}
		},
		Entry("as a struct", func() redislock.RedisClient { return embeddingCluster{client} }),
		Entry("as a redis.UniversalClient", func() redislock.RedisClient { return &embeddingUniversal{client} }),
		Entry("with an EvalSha of its own", func() redislock.RedisClient { return &overriding{UniversalMethods: client} }),
	)

	It("says what AcrossSlots needs to a type that does not say where keys are", func(ctx SpecContext) {
		for _, own := range []redislock.RedisClient{&hiding{client}, spec.Connect(&redis.Options{Addr: cluster.Addrs()[0]})} {
			_, err := redislock.New(own).ObtainMulti(ctx, []string{"a", "b"}, time.Minute, &redislock.Options{AcrossSlots: true})
			Expect(err).To(MatchError(redis.ErrCrossSlot))
			Expect(err).To(MatchError(ContainSubstring("pass a *redis.ClusterClient and set AcrossSlots")))
		}
	})

	It("keeps and moves locks through a slot migration", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "{m}:1", "{m}:2")
		migration, err := cluster.BeginMigration(redistest.SlotOf("{m}"))
		Expect(err).NotTo(HaveOccurred())

		By("while the keys are where they were")
		Expect(held.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
		_, err = locks.ObtainMulti(ctx, []string{"{m}:2", "{m}:1"}, time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		one := spec.Obtain(ctx, locks, time.Minute, nil, "{m}:new")
		_, err = locks.ObtainMulti(ctx, []string{"{m}:1", "{m}:3"}, time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("TRYAGAIN")), "Redis cannot tell, and so nor can we")

		By("when they have moved")
		Expect(migration.MoveKeys()).To(Succeed())
		Expect(held.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
		_, err = locks.Obtain(ctx, "{m}:1", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))

		By("when the slot has moved, of which this client learns by MOVED")
		Expect(migration.Finish()).To(Succeed())
		Expect(held.Refresh(ctx, time.Minute, nil)).To(Succeed())
		_, err = locks.ObtainMulti(ctx, []string{"{m}:3", "{m}:1"}, time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(held.Release(ctx)).To(Succeed())
		Expect(one.Release(ctx)).To(Succeed())
		Expect(all(ctx)).To(BeEmpty())
	})

	It("keeps who shares keys and holds permits through a slot migration", func(ctx SpecContext) {
		keys := []string{"{m}:alone", "{m}:shared", "{m}:permits"}
		opt := &redislock.Options{Shared: keys[1:2], Permits: map[string]int{keys[2]: 2}}
		held := spec.Obtain(ctx, locks, time.Minute, opt, keys...)
		migration, err := cluster.BeginMigration(redistest.SlotOf("{m}"))
		Expect(err).NotTo(HaveOccurred())

		By("while the keys are where they were")
		Expect(held.Refresh(ctx, time.Minute, nil)).To(Succeed())
		_, err = locks.Obtain(ctx, keys[1], time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))

		By("when they have moved")
		Expect(migration.MoveKeys()).To(Succeed())
		Expect(held.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(held.TTL(ctx)).To(BeNumerically("~", time.Minute, 10*time.Second))
		second := spec.Obtain(ctx, locks, time.Minute, opt, keys[1:]...)
		_, err = locks.ObtainMulti(ctx, keys[1:], time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained), "two hold permits")

		By("when the slot has moved")
		Expect(migration.Finish()).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
		third := spec.Obtain(ctx, locks, time.Minute, opt, keys...)
		Expect(second.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(second.Release(ctx)).To(Succeed())
		Expect(third.Release(ctx)).To(Succeed())
		Expect(all(ctx)).To(BeEmpty())
	})

	It("listens for messages to waiters on the node that has the key", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "first") // before the first answer, the library does not ask who has a key
		waiting, stop := context.WithCancel(ctx)
		var waiters sync.WaitGroup
		defer locks.Close()
		defer waiters.Wait()
		defer stop()
		nodes := map[*redistest.Server]bool{}
		for i := 0; len(nodes) < len(cluster.Nodes()); i++ {
			key := fmt.Sprint("key", i)
			master, err := cluster.MasterOf(key)
			Expect(err).NotTo(HaveOccurred())
			if nodes[master] {
				continue
			}
			nodes[master] = true
			spec.Obtain(ctx, locks, time.Minute, nil, key)
			waiters.Go(func() { _, _ = locks.Obtain(waiting, key, time.Minute, &redislock.Options{Queue: true}) })
			node := redis.NewClient(&redis.Options{Addr: master.Addr()})
			DeferCleanup(func() error { return node.Close() })
			Eventually(func() []string { return node.PubSubChannels(ctx, spec.Inboxes+"*").Val() }).Should(HaveLen(1), key)
		}
	})

	It("resends by itself, and go-redis does not", func(ctx SpecContext) {
		proxies := map[string]*faultproxy.Proxy{}
		for _, addr := range cluster.Addrs() {
			proxy, err := faultproxy.New(addr)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(proxy.Close)
			proxies[addr] = proxy
		}
		proxied := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs(),
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, proxies[addr].Addr())
			},
		})
		DeferCleanup(proxied.Close)
		locks := redislock.New(proxied)
		executed := func() (n int) {
			for _, proxy := range proxies {
				n += proxy.Executed(spec.Running("release"))
			}
			return n
		}
		fault := func(times int) {
			for _, proxy := range proxies {
				proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Times: times, Action: faultproxy.CutAfterReplyBytes(0)})
			}
		}
		Expect(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.ScriptLoad(ctx, spec.Source("release")).Err()
		})).To(Succeed())

		lock := spec.Obtain(ctx, locks, time.Minute, nil, "{a}:1", "{a}:2")
		fault(1)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(executed()).To(Equal(2))

		lock = spec.Obtain(ctx, locks, time.Minute, nil, "{a}:1", "{a}:2")
		fault(0)
		before := executed()
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("EOF")))
		Expect(executed() - before).To(Equal(1 + client.Options().MaxRedirects))
	})
})

// explainsRefusal checks what a refused obtain says about the holder of its last key, polling and in line.
func explainsRefusal(ctx context.Context, locks *redislock.Client, held *redislock.Lock, keys ...string) {
	GinkgoHelper()
	for _, opt := range []redislock.Options{{}, {Queue: true}} {
		opt.Explain = true
		limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		_, err := locks.ObtainMulti(limited, keys, time.Minute, &opt)
		cancel()
		refused := spec.Refusal(err)
		Expect(refused.Key).To(Equal(keys[len(keys)-1]))
		Expect(refused.Token).To(Equal(held.Token()))
		Expect(refused.Metadata).To(Equal("me"))
	}
}

var _ = Describe("On a Redis Cluster that has never answered", func() {
	It("an obtain returns when its ctx ends", func(ctx SpecContext) {
		spec.CheckLeaks()
		silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and nobody reads
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent.Addr().String()}, ReadTimeout: 3 * time.Second})
		DeferCleanup(client.Close)
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		for _, opt := range []*redislock.Options{nil, {Queue: true}} {
			limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			began := time.Now()
			_, err = locks.Obtain(limited, "key", time.Minute, opt)
			cancel()
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(time.Since(began)).To(BeNumerically("<", spec.Soon))
		}
	})
})

var _ = Describe("Behind Sentinel", Label(spec.OnServer), func() {
	It("obtains locks on the new master after a failover, with rising fencing tokens", func(ctx SpecContext) {
		spec.RequireServer()
		spec.CheckLeaks()
		sentinel, err := redistest.StartSentinel()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sentinel.Close)
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.MasterName(), SentinelAddrs: sentinel.Addrs(), DialTimeout: time.Second,
		})
		DeferCleanup(client.Close)
		locks := redislock.New(client)

		kept := spec.Obtain(ctx, locks, 2*time.Minute, &redislock.Options{FenceKey: "fence"}, "kept")
		replica := redis.NewClient(&redis.Options{Addr: sentinel.Replica().Addr()})
		DeferCleanup(replica.Close)
		Eventually(func() (int64, error) { return replica.Exists(ctx, "kept", "fence").Result() }).Should(BeNumerically("==", 2))
		Expect(sentinel.KillMaster()).To(Succeed())
		during := make(chan error, 1)
		go func() { // a caller that comes during the failover
			lock, err := locks.Obtain(spec.Within(ctx, 30*time.Second), "during", time.Minute, &redislock.Options{Queue: true})
			if err == nil {
				err = lock.Release(ctx)
			}
			during <- err
		}()

		Eventually(func() error {
			_, err := kept.TTL(ctx)
			return err
		}).WithTimeout(30*time.Second).WithPolling(50*time.Millisecond).Should(Succeed(), sentinel.Logs)
		Expect(kept.TTL(ctx)).To(BeNumerically(">", 0))
		Eventually(func() error { return kept.Refresh(ctx, time.Minute, nil) }).WithTimeout(10 * time.Second).Should(Succeed())
		_, err = locks.Obtain(ctx, "kept", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		next := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "next")
		Expect(next.FenceToken()).To(BeNumerically(">", kept.FenceToken()))
		Expect(kept.Release(ctx)).To(Succeed())
		Eventually(during).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
	})
})

var _ = Describe("On a Ring", Label(spec.OnServer), func() {
	var ring *redis.Ring
	var locks *redislock.Client
	var servers map[string]*redistest.Server
	var near, far string // keys on different shards

	BeforeEach(func() {
		spec.RequireServer()
		spec.CheckLeaks()
		servers = map[string]*redistest.Server{"one": spec.StartServer(), "two": spec.StartServer()}
		ring = redis.NewRing(&redis.RingOptions{
			Addrs:              map[string]string{"one": servers["one"].Addr(), "two": servers["two"].Addr()},
			HeartbeatFrequency: 50 * time.Millisecond,
		})
		DeferCleanup(func() error { return ring.Close() })
		locks = redislock.New(ring)
		near = "a"
		home, err := ring.GetShardClientForKey(near)
		Expect(err).NotTo(HaveOccurred())
		for i := 0; far == ""; i++ {
			shard, err := ring.GetShardClientForKey(fmt.Sprint(i))
			Expect(err).NotTo(HaveOccurred())
			if shard != home {
				far = fmt.Sprint(i)
			}
		}
	})

	It("explains a refusal", func(ctx SpecContext) {
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Metadata: "me"}, "{b}:stock")
		explainsRefusal(ctx, locks, held, "{b}:free", "{b}:stock")
	})

	It("locks keys of one shard", func(ctx SpecContext) {
		for _, tag := range []string{"{" + near + "}", "{" + far + "}"} {
			locksKeysOf(ctx, locks, tag)
		}
	})

	DescribeTable("needs one hash tag for the keys of a lock through types that embed it",
		func(ctx SpecContext, wrap func() redislock.RedisClient) {
			locks := redislock.New(wrap())
			DeferCleanup(locks.Close)
			_, err := locks.ObtainMulti(ctx, []string{near, far}, time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(err).To(MatchError(ContainSubstring("a Ring needs one hash tag for all keys of a lock")))
			held := spec.Obtain(ctx, locks, time.Minute, nil, "{tag}:"+near, "{tag}:"+far)
			_, err = locks.ObtainMulti(ctx, []string{"{tag}:" + far, "{tag}:" + near}, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(held.Release(ctx)).To(Succeed())
		},
		Entry("as a struct", func() redislock.RedisClient { return embeddingRing{ring} }),
		Entry("as a redis.UniversalClient", func() redislock.RedisClient { return &embeddingUniversal{ring} }),
		Entry("as a redis.Scripter", func() redislock.RedisClient { return &spec.Wrapper{Scripter: ring} }),
		Entry("with an EvalSha of its own", func() redislock.RedisClient { return &overriding{UniversalMethods: ring} }),
		Entry("with a prefix before its keys", func() redislock.RedisClient {
			return &overriding{UniversalMethods: ring, prefix: "tenant:"}
		}),
	)

	It("inspects keys of several shards", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "n"}, near)
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "f"}, far)
		statuses, err := locks.Inspect(ctx, far, near)
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses[0].Token + statuses[1].Token).To(Equal("fn"))
	})

	It("tries at the pace of the strategy while it waits in line, since no message can come", func(ctx SpecContext) {
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "{tag}:1", "{tag}:2")
		released := make(chan time.Time, 1)
		var releasing sync.WaitGroup
		releasing.Go(func() {
			defer GinkgoRecover()
			time.Sleep(200 * time.Millisecond)
			released <- time.Now()
			Expect(held.Release(ctx)).To(Succeed())
		})
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{
			Queue: true, RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond),
		}, "{tag}:1", "{tag}:2")
		Expect(time.Since(<-released)).To(BeNumerically("<", 200*time.Millisecond))
		releasing.Wait()
	})

	It("reports that no shard is left", func(ctx SpecContext) {
		for _, server := range servers {
			Expect(server.Kill()).To(Succeed())
		}
		Eventually(func() error {
			_, err := locks.Obtain(ctx, near, time.Minute, nil)
			return err
		}).WithTimeout(10 * time.Second).Should(MatchError(ContainSubstring("all ring shards are down")))
	})
})
