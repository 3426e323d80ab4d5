package several_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// refusing is a hook that refuses releases of a key.
type refusing struct {
	spec.AroundHook

	key      string
	releases atomic.Bool
}

// ProcessHook refuses them.
func (r *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.releases.Load() && spec.IsRelease(cmd) && slices.Contains(cmd.Args(), any(r.key)) {
			cmd.SetErr(permission("NOPERM this user has no permissions"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// permission is an error of Redis.
type permission string

func (p permission) Error() string { return string(p) }
func (permission) RedisError()     {}

// acrossSlots runs specs of locks across slots. connect returns one more client, and nodes are all masters or shards.
func acrossSlots(connect func() redislock.RedisClient, nodes func() []*redis.Client) {
	var client redislock.RedisClient
	var locks *redislock.Client
	keys := []string{"a", "b", "c", "d", "e", "f"}
	across := &redislock.Options{AcrossSlots: true}

	BeforeEach(func(ctx SpecContext) {
		spec.CheckLeaks()
		for _, node := range nodes() {
			Expect(node.FlushAll(ctx).Err()).To(Succeed())
		}
		client = connect()
		locks = redislock.New(client)
		DeferCleanup(func() error { return locks.Close() })
	})

	left := func(ctx context.Context) []string {
		var all []string
		for _, node := range nodes() {
			all = append(all, node.Keys(ctx, "*").Val()...)
		}
		return all
	}

	It("are refused without the option, which the error names", func(ctx SpecContext) {
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("AcrossSlots")))
	})

	It("live as others do", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Second, &redislock.Options{AcrossSlots: true, Metadata: "me", FenceKey: "fence"}, keys...)
		Expect(lock.Keys()).To(Equal(keys))
		Expect(lock.FenceToken()).To(BeNumerically(">", 0))
		Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(900*time.Millisecond), 100*time.Millisecond))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for _, key := range keys {
			_, err := locks.ObtainMulti(ctx, []string{"g", key, "h"}, time.Minute, across)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		}
		time.Sleep(1500 * time.Millisecond)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(left(ctx)).To(HaveLen(len(keys) + 1))
		Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "you"})).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Minute, time.Second))
		found, err := locks.Attach(ctx, keys, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Metadata()).To(Equal("you"))
		statuses, err := locks.Inspect(ctx, keys...)
		Expect(err).NotTo(HaveOccurred())
		for i, status := range statuses {
			Expect(status.Key).To(Equal(keys[i]))
			Expect(status.Token).To(Equal(lock.Token()))
		}
		_, err = locks.ObtainMulti(ctx, []string{"g", "c"}, time.Minute, &redislock.Options{AcrossSlots: true, Explain: true})
		refused := spec.Refusal(err)
		Expect(refused.Key).To(Equal("c"))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(left(ctx)).To(Equal([]string{"fence"}))
		again := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{AcrossSlots: true, FenceKey: "fence"}, "b", "a")
		Expect(again.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
	})

	It("name the keys of all lost parts, and free the others before they return", func(ctx SpecContext) {
		for range 20 {
			lock := spec.Obtain(ctx, locks, time.Minute, across, keys...)
			for _, node := range nodes() {
				node.Del(ctx, "b")
				node.Del(ctx, "e") // one at a time: they are in different slots
			}
			Expect(spec.LostKeys(lock.Refresh(ctx, time.Minute, nil))).To(ConsistOf("b", "e"))
			Expect(lock.TTL(ctx)).To(BeZero())
			Expect(spec.LostKeys(lock.Release(ctx))).To(ConsistOf("b", "e"))
			Expect(left(ctx)).To(BeEmpty())
		}
	})

	It("can be released again when one is lost and another could not be freed", func(ctx SpecContext) {
		refuse := &refusing{key: "b"}
		client.(interface{ AddHook(hook redis.Hook) }).AddHook(refuse)
		lock := spec.Obtain(ctx, locks, time.Minute, across, "a", "b", "c")
		for _, node := range nodes() {
			node.Del(ctx, "a")
		}
		refuse.releases.Store(true)
		err := lock.Release(ctx)
		Expect(spec.LostKeys(err)).To(ConsistOf("a"))
		Expect(err).To(MatchError(ContainSubstring("NOPERM")))
		Expect(left(ctx)).To(ConsistOf("b"))
		refuse.releases.Store(false)
		Expect(spec.LostKeys(lock.Release(ctx))).To(ConsistOf("a"))
		Expect(left(ctx)).To(BeEmpty())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("are lost as a whole when one part is, and say so to who keeps them", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, 300*time.Millisecond, across, keys...)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for _, node := range nodes() {
			node.Del(ctx, "c")
		}
		Eventually(kept.Done()).Should(BeClosed())
		Expect(spec.LostKeys(context.Cause(kept))).To(ContainElement("c"))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})

	It("take turns, whatever the order of their keys is, and leave nothing behind", func(ctx SpecContext) {
		sets := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"c", "b", "a"}, {"d", "a", "c"}}
		for _, opt := range []*redislock.Options{
			{AcrossSlots: true, Queue: true, FenceKey: "fence"},
			{AcrossSlots: true, RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond), FenceKey: "fence"},
		} {
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			var mu sync.Mutex // protects holders and last
			holders, last := map[string]int{}, map[string]int64{}
			var wait sync.WaitGroup
			for i := range 10 {
				wait.Go(func() {
					defer GinkgoRecover()
					for range 5 {
						lock, err := locks.ObtainMulti(limited, sets[i%len(sets)], 20*time.Second, opt)
						Expect(err).NotTo(HaveOccurred())
						mu.Lock()
						for _, key := range lock.Keys() {
							holders[key]++
							Expect(holders[key]).To(Equal(1))
							Expect(lock.FenceToken()).To(BeNumerically(">", last[key]))
							last[key] = lock.FenceToken()
						}
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						for _, key := range lock.Keys() {
							holders[key]--
						}
						mu.Unlock()
						Expect(lock.Release(ctx)).To(Succeed())
					}
				})
			}
			wait.Wait()
			cancel()
			Eventually(left).WithArguments(ctx).WithTimeout(5 * time.Second).Should(Equal([]string{"fence"}))
		}
	})

	Describe("with a Tracer, which", func() {
		inSlots := func() int { return len(keys) } // each in a slot of its own
		tellsOnce(keys, inSlots, *across, func(t *redislock.Tracer) (traced, other *redislock.Client) {
			traced = redislock.New(client, redislock.WithTracer(t))
			DeferCleanup(traced.Close)
			return traced, locks
		}, func(ctx context.Context, key string) {
			for _, node := range nodes() {
				node.Del(ctx, key) // a node of a Cluster refuses the keys of others
			}
		})
	})

	It("wait in line for one slot without asking for the others again and again", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, across, "b", "c")
		other := spec.Obtain(ctx, locks, time.Minute, across, "a")
		tries := 0
		traced := redislock.New(client, redislock.WithTracer(&redislock.Tracer{
			ObtainEnd: func(_ context.Context, end redislock.ObtainEnd) { tries = end.Tries },
		}))
		DeferCleanup(traced.Close)
		ended := make(chan error)
		go func() {
			_, err := traced.ObtainMulti(spec.Within(ctx, 4*time.Second), []string{"a", "b", "d"}, time.Minute,
				&redislock.Options{AcrossSlots: true, Queue: true})
			ended <- err
		}()
		time.Sleep(500 * time.Millisecond)
		Expect(other.Release(ctx)).To(Succeed())
		Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(MatchError(context.DeadlineExceeded)))
		Expect(tries).To(BeNumerically("<", 12)) // about one a second
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(left).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("of a hundred slots leave nothing behind when they are refused", func(ctx SpecContext) {
		many := make([]string, 100)
		for i := range many {
			many[i] = "key:" + string(rune('A'+i))
		}
		lock := spec.Obtain(ctx, locks, time.Minute, across, many...)
		_, err := redislock.ObtainMulti(ctx, client, append([]string{"x", "y", "z"}, many[99]), time.Minute, across)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(left).WithArguments(ctx).Should(BeEmpty())
	})
}

var _ = Describe("Locks across the slots of a Cluster of three masters", Ordered, Label(spec.OnServer), func() {
	var cluster *redistest.Cluster
	var masters []*redis.Client

	BeforeAll(func() {
		cluster = spec.StartCluster()
		for _, addr := range cluster.Addrs() {
			master := redis.NewClient(&redis.Options{Addr: addr})
			masters = append(masters, master)
			DeferCleanup(master.Close)
		}
	})

	acrossSlots(func() redislock.RedisClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(client.Close)
		return client
	}, func() []*redis.Client { return masters })
})
