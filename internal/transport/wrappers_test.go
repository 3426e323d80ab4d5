package transport_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

// hiding runs the scripts of a client, and hides everything else.
type hiding struct{ client redis.Scripter }

func (h *hiding) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return h.client.EvalSha(ctx, sha, keys, args...)
}

func (h *hiding) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return h.client.Eval(ctx, script, keys, args...)
}
func (h *hiding) EvalRO(context.Context, string, []string, ...any) *redis.Cmd    { panic("not called") }
func (h *hiding) EvalShaRO(context.Context, string, []string, ...any) *redis.Cmd { panic("not called") }
func (h *hiding) ScriptExists(context.Context, ...string) *redis.BoolSliceCmd    { panic("not called") }
func (h *hiding) ScriptLoad(context.Context, string) *redis.StringCmd            { panic("not called") }

// overriding embeds a client and has an EvalSha of its own, to count calls, and to put a prefix before keys.
type overriding struct {
	UniversalMethods

	prefix string
	spec.CallCount
}

func (o *overriding) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	o.Add(1)
	return o.UniversalMethods.EvalSha(ctx, sha, o.prefixed(keys), args...)
}

func (o *overriding) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return o.UniversalMethods.Eval(ctx, script, o.prefixed(keys), args...)
}

func (o *overriding) prefixed(keys []string) []string {
	if o.prefix == "" {
		return keys
	}
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = o.prefix + key
	}
	return all
}

// waitInLine makes n callers wait for a key behind a holder. It returns how long it takes from the release of the holder
// until each of them has had the lock.
func waitInLine(ctx context.Context, locks *redislock.Client, n int, key string, opt redislock.Options) time.Duration {
	GinkgoHelper()
	opt.Queue = true
	held := spec.Obtain(ctx, locks, time.Minute, nil, key)
	var served sync.WaitGroup
	for range n {
		served.Go(func() {
			defer GinkgoRecover()
			Expect(spec.Obtain(ctx, locks, time.Minute, &opt, key).Release(ctx)).To(Succeed())
		})
	}
	Eventually(func() int {
		status, err := locks.Inspect(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		return status[0].Waiters
	}).WithTimeout(10 * time.Second).Should(Equal(n))
	begun := time.Now()
	Expect(held.Release(ctx)).To(Succeed())
	served.Wait()
	return time.Since(begun)
}

var _ = spec.DescribeOnRedis("A type that embeds a *redis.Client", func(on *spec.Redis) {
	DescribeTable("wakes waiters as that does", func(ctx SpecContext, wrap func() redislock.RedisClient) {
		locks := redislock.New(wrap())
		DeferCleanup(locks.Close)
		const n = 30 // without messages, this takes 15 s
		Expect(waitInLine(ctx, locks, n, "a", redislock.Options{})).To(BeNumerically("<", spec.Bound(on.Kind, time.Millisecond, 5*time.Second)))
	},
		Entry("as a struct", func() redislock.RedisClient { return embedding{on.Client} }),
		Entry("as a pointer to one", func() redislock.RedisClient { return &embedding{on.Client} }),
		Entry("by another struct", func() redislock.RedisClient {
			return embeddingUniversal{&embedding{on.Client}}
		}),
		Entry("as a redis.UniversalClient", func() redislock.RedisClient { return embeddingUniversal{on.Client} }),
		Entry("with an EvalSha of its own", func() redislock.RedisClient { return &overriding{UniversalMethods: on.Client} }),
		Entry("with a prefix for keys", func() redislock.RedisClient {
			return &overriding{UniversalMethods: on.Client, prefix: "tenant:"}
		}),
	)

	It("has each call go through its own EvalSha, also those that others would share", func(ctx SpecContext) {
		sent, beats := spec.CountCalls(on.Client), spec.CountBeats(on.Client)
		own := &overriding{UniversalMethods: on.Client, prefix: "tenant:"}
		locks := redislock.New(own)
		DeferCleanup(locks.Close)
		kept := spec.Obtain(ctx, locks, 3*time.Second, nil, "kept")
		_, stop := kept.KeepAlive(ctx)
		defer stop()
		waitInLine(ctx, locks, 30, "a", redislock.Options{})
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				defer GinkgoRecover()
				lock := spec.Obtain(ctx, locks, time.Minute, nil, fmt.Sprint("key-", i))
				Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
				Expect(lock.Release(ctx)).To(Succeed())
			})
		}
		callers.Wait()
		before := own.Count()
		Eventually(own.Count).WithTimeout(10 * time.Second).Should(BeNumerically(">", before+1)) // it is renewed
		stop()
		Expect(kept.Release(ctx)).To(Succeed())
		Expect(locks.Close()).To(Succeed())
		Expect(own.Count()).To(BeNumerically(">", 300))
		Expect(own.Count()).To(Equal(sent.Count() + beats.Count()))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("hands keys over, and they are those with the prefix", func(ctx SpecContext) {
		own := &overriding{UniversalMethods: on.Client, prefix: "tenant:"}
		locks := redislock.New(own)
		DeferCleanup(locks.Close)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		got := make(chan *redislock.Lock, 1)
		go func() {
			defer GinkgoRecover()
			got <- spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true}, "a")
		}()
		Eventually(handsOver).WithArguments(ctx, on.Client, "tenant:a{a}:redislock:line").Should(BeTrue())
		before := own.Count()
		Expect(held.Release(ctx)).To(Succeed())
		var lock *redislock.Lock
		Eventually(got).Should(Receive(&lock))
		Expect(own.Count()-before).To(Equal(1), "the waiter sends nothing")
		Expect(on.Client.Get(ctx, "tenant:a").Val()).To(Equal(lock.Token()))
	})

	It("needs no subscription", func(ctx SpecContext) {
		conn := on.Client.Conn()
		DeferCleanup(conn.Close)
		for _, client := range []redislock.RedisClient{&spec.Wrapper{Scripter: on.Client}, conn, &spec.Wrapper{Scripter: conn}} {
			locks := redislock.New(client)
			opt := redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}
			Expect(waitInLine(ctx, locks, 10, "a", opt)).To(BeNumerically("<", spec.Bound(on.Kind, 500*time.Millisecond, 5*time.Second)))
			Expect(locks.Close()).To(Succeed())
		}
	})

	It("may be one connection, which many use at a time", func(ctx SpecContext) {
		conn := on.Client.Conn()
		DeferCleanup(conn.Close)
		locks := redislock.New(conn)
		DeferCleanup(locks.Close)
		cancellable, cancel := context.WithCancel(ctx)
		defer cancel()
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				defer GinkgoRecover()
				for range 5 {
					lock := spec.Obtain(cancellable, locks, time.Minute, nil, fmt.Sprint("key-", i))
					Expect(lock.Refresh(cancellable, time.Hour, nil)).To(Succeed())
					Expect(lock.Release(cancellable)).To(Succeed())
				}
			})
		}
		callers.Wait()
		Expect(on.Keys(ctx)).To(BeEmpty())
	})
})

// handsOver reports whether a line has a waiter whose subscription is open.
func handsOver(ctx context.Context, client *redis.Client, line string) bool {
	for _, mark := range client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: line, ByScore: true, Start: "-inf", Stop: "(0"}).Val() {
		if int64(client.ZScore(ctx, line, mark).Val())%2 != 0 {
			return true
		}
	}
	return false
}
