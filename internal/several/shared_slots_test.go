package several_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// sharedInCluster runs specs of keys that several may hold. connect returns one more client, and nodes are all masters or shards.
// If across is set, the keys may be in different slots.
func sharedInCluster(across bool, connect func() redislock.RedisClient, nodes func() []*redis.Client) {
	var locks *redislock.Client
	account, other, catalog, pool := "{q}:account", "{q}:other", "{q}:catalog", "{q}:gpu"
	if across {
		account, other, catalog, pool = "account", "other", "catalog", "gpu"
	}
	mix := func(opt redislock.Options) *redislock.Options {
		opt.AcrossSlots, opt.Shared, opt.Permits = across, []string{catalog}, map[string]int{pool: 2}
		return &opt
	}
	readers := func(queue bool) *redislock.Options {
		return &redislock.Options{AcrossSlots: across, Shared: []string{account, catalog}, Queue: queue}
	}
	writers := func(queue bool) *redislock.Options { return &redislock.Options{AcrossSlots: across, Queue: queue} }

	BeforeEach(func(ctx SpecContext) {
		spec.CheckLeaks()
		for _, node := range nodes() {
			Expect(node.FlushAll(ctx).Err()).To(Succeed())
		}
		locks = redislock.New(connect())
		DeferCleanup(func() error { return locks.Close() })
	})
	left := func(ctx context.Context) (all []string) {
		for _, node := range nodes() {
			all = append(all, node.Keys(ctx, "*").Val()...)
		}
		return all
	}
	AfterEach(func(ctx SpecContext) {
		Eventually(left).WithArguments(ctx).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("are part of one lock with exclusive ones, all or none", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, mix(redislock.Options{Metadata: "one"}), account, catalog, pool)
		two := spec.Obtain(ctx, locks, time.Hour, mix(redislock.Options{Metadata: "two"}), other, catalog, pool)
		spec.Refused(ctx, locks, mix(redislock.Options{}), "{q}:third", catalog, pool) // across slots, in one of its own
		status, err := locks.Inspect(ctx, account, other, catalog, pool, "{q}:third")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].Token).To(Equal(one.Token()))
		Expect(status[1].Token).To(Equal(two.Token()))
		Expect(status[2].HolderCount).To(Equal(2))
		Expect(status[3].HolderCount).To(Equal(2))
		Expect(status[3].Holders[0].Limit).To(Equal(2))
		Expect(status[3].Holders[0].Metadata).To(Equal("two"))
		Expect(status[4].TTL).To(BeZero())
		_, err = locks.ObtainMulti(ctx, []string{catalog, pool}, time.Minute, &redislock.Options{
			AcrossSlots: across, Explain: true, Shared: []string{catalog}, Permits: map[string]int{pool: 2},
		})
		why := spec.Refusal(err)
		Expect(why.Key).To(Equal(pool))
		Expect(why.Holders).To(Equal(2))

		Expect(one.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "new"})).To(Succeed())
		found, err := locks.Attach(ctx, []string{account, catalog, pool}, one.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Metadata()).To(Equal("new"))
		Expect(found.TTL(ctx)).To(BeNumerically("~", time.Hour, 5*time.Second))
		Expect(found.Refresh(ctx, time.Minute, nil)).To(Succeed())
		spec.Release(ctx, found)
		Expect(one.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(two.TTL(ctx)).To(BeNumerically("~", time.Hour, 5*time.Second))
		three := spec.Obtain(ctx, locks, time.Minute, mix(redislock.Options{}), account, catalog, pool)
		spec.Release(ctx, two, three)
	})

	It("name a lost hold, and leave the others", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, mix(redislock.Options{}), account, catalog, pool)
		two := spec.Obtain(ctx, locks, time.Minute, mix(redislock.Options{}), other, catalog, pool)
		house := "catalog{catalog}:redislock:house"
		if !across {
			house = catalog + ":redislock:house"
		}
		for _, node := range nodes() {
			node.ZRem(ctx, house, one.Token())
		}
		Expect(spec.LostKeys(one.Refresh(ctx, time.Minute, nil))).To(Equal([]string{catalog}))
		Expect(one.TTL(ctx)).To(BeZero())
		Expect(spec.LostKeys(one.Release(ctx))).To(Equal([]string{catalog}))
		Expect(two.Refresh(ctx, time.Minute, nil)).To(Succeed())
		spec.Release(ctx, two)
	})

	It("wait in line for all of them: readers together, a writer alone", func(ctx SpecContext) {
		keys := []string{account, catalog}
		writer := spec.Obtain(ctx, locks, time.Minute, writers(false), keys...)
		one := spec.StartWaiter(ctx, locks, time.Minute, readers(true), keys...)
		two := spec.StartWaiter(ctx, locks, time.Minute, readers(true), keys...)
		three := spec.StartWaiter(ctx, locks, time.Minute, writers(true), keys...)
		four := spec.StartWaiter(ctx, locks, time.Minute, readers(true), keys...)
		spec.Release(ctx, writer)
		first, second := one.Granted(), two.Granted()
		spec.Refused(ctx, locks, readers(false), keys...)
		spec.Release(ctx, first)
		Consistently(three.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, second)
		third := three.Granted()
		Consistently(four.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, third)
		spec.Release(ctx, four.Granted())
	})

	It("step back from some keys, and stand in line for them as before", func(ctx SpecContext) {
		keys := []string{account, catalog, pool}
		blocking := spec.Obtain(ctx, locks, time.Minute, nil, pool)
		one := spec.StartWaiter(ctx, locks, time.Minute, mix(redislock.Options{Queue: true}), keys...)
		Eventually(func() int { return spec.CountWaiters(ctx, locks, catalog) }).WithTimeout(5 * time.Second).Should(Equal(1))
		// A reader behind a reader that waits for another key.
		second := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Shared: []string{catalog}, Queue: true}, catalog)
		three := spec.StartWaiter(ctx, locks, time.Minute, &redislock.Options{Queue: true}, catalog)
		spec.Release(ctx, second)
		Consistently(three.Done).WithTimeout(100 * time.Millisecond).ShouldNot(BeClosed())
		spec.Release(ctx, blocking)
		first := one.Granted()
		spec.Release(ctx, first)
		spec.Release(ctx, three.Granted())
	})

	It("never have more holders than they may, while all callers are served", func(ctx SpecContext) {
		var inside, writing atomic.Int32
		const callers = 12
		done := make(chan error, callers)
		until := time.Now().Add(3 * time.Second)
		for i := range callers {
			go func() {
				var err error
				for err == nil && time.Now().Before(until) {
					opt, keys := mix(redislock.Options{Queue: i%3 > 0}), []string{catalog, pool}
					alone := i%4 == 0
					if alone {
						opt = writers(true)
					}
					if !opt.Queue {
						opt.RetryStrategy = redislock.LinearBackoff(time.Millisecond)
					}
					var lock *redislock.Lock
					if lock, err = locks.ObtainMulti(spec.Within(ctx, 30*time.Second), keys, 20*time.Second, opt); err != nil {
						break
					}
					n, w := inside.Add(1), writing.Load()
					if alone {
						w = writing.Add(1)
					}
					if n > 2 || w > 0 && n > 1 {
						err = errors.New("too many holders")
					}
					time.Sleep(rand.N(5 * time.Millisecond))
					if alone {
						writing.Add(-1)
					}
					inside.Add(-1)
					err = errors.Join(err, lock.Release(ctx))
				}
				done <- err
			}()
		}
		for range callers {
			Expect(<-done).To(Succeed())
		}
	})

	It("have a higher fencing token with each grant", func(ctx SpecContext) {
		fence := "{q}:fence"
		opt := mix(redislock.Options{FenceKey: fence})
		one := spec.Obtain(ctx, locks, time.Minute, opt, account, catalog, pool)
		two := spec.Obtain(ctx, locks, time.Minute, opt, other, catalog, pool)
		Expect(two.FenceToken()).To(BeNumerically(">", one.FenceToken()))
		spec.Release(ctx, one, two)
		for _, node := range nodes() {
			node.Del(ctx, fence)
		}
	})
}

var _ = Describe("Keys that several may hold, in a real Cluster,", Label(spec.OnServer), Ordered, ContinueOnFailure, func() {
	var cluster *redistest.Cluster
	var masters []*redis.Client

	BeforeAll(func() {
		cluster = spec.StartCluster()
		for _, addr := range cluster.Addrs() {
			masters = append(masters, redis.NewClient(&redis.Options{Addr: addr}))
		}
		DeferCleanup(func() {
			for _, master := range masters {
				_ = master.Close()
			}
		})
	})
	connect := func() redislock.RedisClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(client.Close)
		return client
	}
	nodes := func() []*redis.Client { return masters }
	Context("with one hash tag", func() { sharedInCluster(false, connect, nodes) })
	Context("across slots", func() { sharedInCluster(true, connect, nodes) })
})

var _ = Describe("Keys that several may hold, on a Ring,", Label(spec.OnServer), Ordered, ContinueOnFailure, func() {
	addrs := map[string]string{}
	var shards []*redis.Client

	BeforeAll(func() {
		for _, name := range []string{"one", "two"} {
			server := spec.StartServer()
			addrs[name] = server.Addr()
			shards = append(shards, redis.NewClient(&redis.Options{Addr: server.Addr()}))
		}
		DeferCleanup(func() {
			for _, shard := range shards {
				_ = shard.Close()
			}
		})
	})
	sharedInCluster(false, func() redislock.RedisClient {
		client := redis.NewRing(&redis.RingOptions{Addrs: addrs})
		DeferCleanup(client.Close)
		return client
	}, func() []*redis.Client { return shards })
})
