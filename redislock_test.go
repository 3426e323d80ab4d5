package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

var _ = describe("Obtain", func(on *onRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.client)
	})

	It("stores the token, in 22 characters, until the ttl is over", func(ctx SpecContext) {
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		Expect(lock.Token()).To(MatchRegexp(`^[A-Za-z0-9_-]{22}$`))
		Expect(on.client.Get(ctx, "a").Val()).To(Equal(lock.Token()))
		Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, time.Second))
		on.age(ctx, time.Minute)
		Expect(on.keys(ctx)).To(BeEmpty())
	})

	It("stores metadata behind the token and a space", func(ctx SpecContext) {
		lock := obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me", Metadata: "x y\x00\xff z"}, "a", "b")
		Expect(on.client.Get(ctx, "a").Val()).To(Equal("me x y\x00\xff z"))
		Expect(on.client.Get(ctx, "b").Val()).To(Equal("me x y\x00\xff z"))
		Expect(lock.Metadata()).To(Equal("x y\x00\xff z"))
	})

	It("gives no two locks the same token", func(ctx SpecContext) {
		seen := map[string]bool{}
		for i := range 100 {
			seen[obtain(ctx, locks, time.Minute, nil, strconv.Itoa(i)).Token()] = true
		}
		Expect(seen).To(HaveLen(100))
	})

	It("sends one script, in one round trip", func(ctx SpecContext) {
		obtain(ctx, locks, time.Minute, nil, "warm up")
		sent := countCalls(on.client)
		obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a", "b", "c")
		Expect(sent.count()).To(Equal(1))
	})

	It("works through the package-level short-cuts", func(ctx SpecContext) {
		one, err := redislock.Obtain(ctx, on.client, "a", time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		both, err := redislock.ObtainMulti(ctx, on.client, []string{"b", "c"}, time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(one.Release(ctx)).To(Succeed())
		Expect(both.Release(ctx)).To(Succeed())
	})

	When("the script is not on the server", func() {
		It("loads it, as often as it was flushed", func(ctx SpecContext) {
			for range 3 {
				Expect(on.client.ScriptFlush(ctx).Err()).To(Succeed())
				lock := obtain(ctx, locks, time.Minute, nil, "a")
				Expect(on.client.ScriptFlush(ctx).Err()).To(Succeed())
				Expect(lock.Release(ctx)).To(Succeed())
			}
		})
	})

	When("one key of several is another's", func() {
		BeforeEach(func(ctx SpecContext) {
			obtain(ctx, locks, time.Minute, nil, "c")
		})

		It("refuses with the bare ErrNotObtained and takes none", func(ctx SpecContext) {
			_, err := locks.ObtainMulti(ctx, []string{"a", "b", "c"}, time.Minute, &redislock.Options{FenceKey: "f"})
			Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(on.keys(ctx)).To(ConsistOf("c"))
		})

		It("tries once without a strategy", func(ctx SpecContext) {
			sent := countCalls(on.client)
			_, err := locks.ObtainMulti(ctx, []string{"a", "c"}, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(sent.count()).To(Equal(1))
		})

		It("grants all once it is free", func(ctx SpecContext) {
			on.age(ctx, time.Minute)
			lock := obtain(ctx, locks, time.Minute, nil, "a", "b", "c")
			Expect(lock.Keys()).To(Equal([]string{"a", "b", "c"}))
			Expect(on.keys(ctx)).To(ConsistOf("a", "b", "c"))
		})
	})

	When("the keys hold the same custom token", func() {
		var first *redislock.Lock

		BeforeEach(func(ctx SpecContext) {
			first = obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me", Metadata: "one"}, "a")
		})

		It("grants them again, with the new metadata, and the earlier handle stays valid", func(ctx SpecContext) {
			again := obtain(ctx, locks, time.Hour, &redislock.Options{Token: "me", Metadata: "two"}, "a")
			Expect(again.Token()).To(Equal("me"))
			Expect(on.client.Get(ctx, "a").Val()).To(Equal("me two"))
			Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Hour, time.Second))
			Expect(first.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
			Expect(first.Refresh(ctx, time.Minute, nil)).To(Succeed())
		})

		It("never shortens what is left of their ttl", func(ctx SpecContext) {
			obtain(ctx, locks, time.Second, &redislock.Options{Token: "me", Metadata: "two"}, "a")
			Expect(on.client.Get(ctx, "a").Val()).To(Equal("me two"))
			Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, time.Second))
		})

		It("leaves a key without expiry so", func(ctx SpecContext) {
			on.client.Persist(ctx, "a")
			obtain(ctx, locks, time.Second, &redislock.Options{Token: "me"}, "a")
			Expect(on.client.PTTL(ctx, "a").Val()).To(Equal(time.Duration(-1)))
		})

		It("takes the free ones along", func(ctx SpecContext) {
			obtain(ctx, locks, time.Hour, &redislock.Options{Token: "me", Metadata: "two"}, "b", "a", "c")
			for _, key := range []string{"a", "b", "c"} {
				Expect(on.client.Get(ctx, key).Val()).To(Equal("me two"))
				Expect(on.client.PTTL(ctx, key).Val()).To(BeNumerically("~", time.Hour, time.Second))
			}
		})

		It("takes none if a further one is another's", func(ctx SpecContext) {
			obtain(ctx, locks, time.Minute, nil, "z")
			_, err := locks.ObtainMulti(ctx, []string{"a", "b", "z"}, time.Hour, &redislock.Options{Token: "me", Metadata: "two"})
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(on.keys(ctx)).To(ConsistOf("a", "z"))
			Expect(on.client.Get(ctx, "a").Val()).To(Equal("me one"))
			Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", time.Minute))
		})
	})

	DescribeTable("does not take a token for another that it begins with",
		func(ctx SpecContext, holder, other redislock.Options) {
			obtain(ctx, locks, time.Minute, &holder, "a")
			_, err := locks.Obtain(ctx, "a", time.Minute, &other)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		},
		Entry("shorter", redislock.Options{Token: "job-10"}, redislock.Options{Token: "job-1"}),
		Entry("longer", redislock.Options{Token: "job-1"}, redislock.Options{Token: "job-10"}),
		Entry("with metadata", redislock.Options{Token: "job-1", Metadata: "0"}, redislock.Options{Token: "job-10"}),
		Entry("as metadata", redislock.Options{Token: "x", Metadata: "job-1"}, redislock.Options{Token: "job-1"}),
	)

	It("merges keys named twice, in the caller's order", func(ctx SpecContext) {
		lock := obtain(ctx, locks, time.Minute, nil, "b", "a", "b", "b", "c", "a")
		Expect(lock.Keys()).To(Equal([]string{"b", "a", "c"}))
		Expect(lock.Key()).To(Equal("b"))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("keeps no hold on the caller's slice, and gives none on its own", func(ctx SpecContext) {
		keys := []string{"a", "b"}
		lock := obtain(ctx, locks, time.Minute, nil, keys...)
		keys[0], lock.Keys()[1] = "x", "y"
		Expect(lock.Keys()).To(Equal([]string{"a", "b"}))
	})

	It("locks 20,000 keys at once", func(ctx SpecContext) {
		if on.memory != nil {
			on.memory.ClockTTL(false) // it looks at every key at every command
		}
		keys := make([]string, 20_000)
		for i := range keys {
			keys[i] = "key:" + strconv.Itoa(i)
		}
		lock := obtain(ctx, locks, time.Minute, nil, keys...)
		Expect(on.client.DBSize(ctx).Val()).To(BeNumerically("==", 20_000))
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Minute, 10*time.Second))
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "m"})).To(Succeed())
		Expect(locks.Attach(ctx, keys, lock.Token())).NotTo(BeNil())
		_, err := locks.ObtainMulti(ctx, []string{"new", keys[19_999]}, time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.keys(ctx)).To(BeEmpty())

		obtain(ctx, locks, time.Minute, nil, keys[19_999])
		_, err = locks.ObtainMulti(ctx, keys, time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(on.keys(ctx)).To(ConsistOf(keys[19_999]))
	})

	It("lets exactly one of many have overlapping sets", func(ctx SpecContext) {
		var granted atomic.Int32
		var wait sync.WaitGroup
		for i := range 50 {
			wait.Go(func() {
				_, err := locks.ObtainMulti(ctx, []string{"shared", strconv.Itoa(i)}, time.Minute, nil)
				if err == nil {
					granted.Add(1)
				} else if err != redislock.ErrNotObtained {
					Fail(err.Error())
				}
			})
		}
		wait.Wait()
		Expect(granted.Load()).To(BeNumerically("==", 1))
		Expect(on.keys(ctx)).To(HaveLen(2))
	})

	When("a key holds something other than a string", func() {
		BeforeEach(func(ctx SpecContext) {
			on.client.RPush(ctx, "list", "x")
		})

		It("says which, and takes nothing", func(ctx SpecContext) {
			_, err := locks.ObtainMulti(ctx, []string{"a", "list", "b"}, time.Minute, nil)
			Expect(err).To(MatchError(ContainSubstring(`WRONGTYPE key "list" holds a list, not a lock`)))
			Expect(errors.Is(err, redislock.ErrNotObtained)).To(BeFalse())
			Expect(on.keys(ctx)).To(ConsistOf("list"))
		})

		It("says so for a FenceKey too", func(ctx SpecContext) {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{FenceKey: "list"})
			Expect(err).To(MatchError(ContainSubstring(`WRONGTYPE fence key "list"`)))
			Expect(on.keys(ctx)).To(ConsistOf("list"))
		})
	})
})

var _ = describe("Fencing tokens", func(on *onRedis) {
	var locks *redislock.Client
	fenced := &redislock.Options{FenceKey: "fence"}

	BeforeEach(func() {
		locks = redislock.New(on.client)
	})

	It("are 0 without FenceKey", func(ctx SpecContext) {
		Expect(obtain(ctx, locks, time.Minute, nil, "a").FenceToken()).To(BeZero())
	})

	It("rise with every obtain, re-entry included, and are kept without expiry", func(ctx SpecContext) {
		last := int64(0)
		for i := range 20 {
			lock := obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence", Token: "t" + strconv.Itoa(i/2)}, "a")
			Expect(lock.FenceToken()).To(BeNumerically(">", last))
			last = lock.FenceToken()
			Expect(on.client.Get(ctx, "fence").Val()).To(Equal(strconv.FormatInt(last, 10)))
			Expect(on.client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)))
			if i%2 == 1 {
				Expect(lock.Release(ctx)).To(Succeed())
			}
		}
		Expect(on.keys(ctx)).To(ConsistOf("fence"))
	})

	It("go on rising after the counter was lost", func(ctx SpecContext) {
		before := obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()
		Expect(on.client.FlushDB(ctx).Err()).To(Succeed())
		time.Sleep(time.Millisecond) // a new counter begins at the server's time
		Expect(obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()).To(BeNumerically(">", before))
	})

	It("go on rising while the counter is ahead of the clock", func(ctx SpecContext) {
		on.client.Set(ctx, "fence", "9007199254740989", 0)
		Expect(obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()).To(BeNumerically("==", 9007199254740990))
		Expect(on.client.Get(ctx, "fence").Val()).To(Equal("9007199254740990"))
	})

	It("are not minted by a refusal", func(ctx SpecContext) {
		obtain(ctx, locks, time.Minute, nil, "a")
		_, err := locks.Obtain(ctx, "a", time.Minute, fenced)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(on.keys(ctx)).To(ConsistOf("a"))
	})

	DescribeTable("are refused before anything is written",
		func(ctx SpecContext, counter string) {
			on.client.Set(ctx, "fence", counter, 0)
			_, err := locks.Obtain(ctx, "a", time.Minute, fenced)
			Expect(err).To(MatchError(ContainSubstring(`fence key "fence" does not hold an integer below 2^53-1`)))
			Expect(on.keys(ctx)).To(ConsistOf("fence"))
			Expect(on.client.Get(ctx, "fence").Val()).To(Equal(counter))
		},
		Entry("no number", "many"),
		Entry("a fraction", "1.5"),
		Entry("an exponent", "1e3"),
		Entry("hexadecimal", "0x10"),
		Entry("empty", ""),
		Entry("at the limit", "9007199254740991"),
		Entry("past it", "99999999999999999999999"),
	)
})

var _ = describe("Arguments", func(on *onRedis) {
	var locks *redislock.Client
	var sent *calls

	BeforeEach(func() {
		locks = redislock.New(on.client)
		sent = countCalls(on.client)
	})

	AfterEach(func(ctx SpecContext) {
		Expect(sent.count()).To(BeZero(), "nothing is sent")
		Expect(on.keys(ctx)).To(BeEmpty(), "nothing is written")
	})

	DescribeTable("that cannot be used are ErrInvalid, with words",
		func(ctx SpecContext, words string, keys []string, ttl time.Duration, opt *redislock.Options) {
			lock, err := locks.ObtainMulti(ctx, keys, ttl, opt)
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(err).To(MatchError(ContainSubstring(words)))
			Expect(lock).To(BeNil())
		},
		Entry("nil keys", "no keys", nil, time.Minute, nil),
		Entry("no keys", "no keys", []string{}, time.Minute, nil),
		Entry("an empty key", "key 2 of 2 is empty", []string{"a", ""}, time.Minute, nil),
		Entry("a reserved key", `names that end in ":redislock:line" are reserved`, []string{"a:redislock:line"}, time.Minute, nil),
		Entry("no ttl", "ttl 0s is under 2ms", []string{"a"}, time.Duration(0), nil),
		Entry("a ttl under 2 ms", "ttl 1.999999ms is under 2ms", []string{"a"}, 2*time.Millisecond-1, nil),
		Entry("a negative ttl", "ttl -1s is under 2ms", []string{"a"}, -time.Second, nil),
		Entry("a token with a space", `token "a b" holds white space`, []string{"a"}, time.Minute, &redislock.Options{Token: "a b"}),
		Entry("a token with a line break", `holds white space`, []string{"a"}, time.Minute, &redislock.Options{Token: "a\n"}),
		Entry("a token with a control character", `control character`, []string{"a"}, time.Minute, &redislock.Options{Token: "a\x00"}),
		Entry("a token with a wide space", `holds white space`, []string{"a"}, time.Minute, &redislock.Options{Token: "a\u2003b"}),
		Entry("FenceKey among the keys", `FenceKey "b" is also a key`, []string{"a", "b"}, time.Minute, &redislock.Options{FenceKey: "b"}),
		Entry("a reserved FenceKey", `are reserved`, []string{"a"}, time.Minute, &redislock.Options{FenceKey: "f:redislock:line"}),
	)

	It("refuses a nil ctx everywhere", func(ctx SpecContext) {
		_, err := locks.Obtain(nil, "a", time.Minute, nil) //nolint:staticcheck // on purpose
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Inspect(nil, "a") //nolint:staticcheck // on purpose
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Attach(nil, []string{"a"}, "t") //nolint:staticcheck // on purpose
		Expect(err).To(MatchError(redislock.ErrInvalid))
	})

	DescribeTable("a client that cannot run scripts is refused", func(ctx SpecContext, client func() *redislock.Client, words string) {
		locks := client()
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(words)))
		_, err = locks.Inspect(ctx, "a")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Attach(ctx, []string{"a"}, "t")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(locks.Close()).To(Succeed())
	},
		Entry("nil", func() *redislock.Client { return redislock.New(nil) }, "the Redis client is nil"),
		Entry("a nil *redis.Client", func() *redislock.Client { return redislock.New((*redis.Client)(nil)) }, "is nil"),
		Entry("a nil *redis.ClusterClient", func() *redislock.Client { return redislock.New((*redis.ClusterClient)(nil)) }, "is nil"),
		Entry("a nil *redis.Ring", func() *redislock.Client { return redislock.New((*redis.Ring)(nil)) }, "is nil"),
		Entry("a Pipeliner", func() *redislock.Client { return redislock.New(on.client.Pipeline()) }, "queues scripts instead of running them"),
		Entry("a transaction", func() *redislock.Client { return redislock.New(on.client.TxPipeline()) }, "queues scripts"),
		Entry("a nil *Client", func() *redislock.Client { return nil }, "not made by New"),
		Entry("a zero Client", func() *redislock.Client { return &redislock.Client{} }, "not made by New"),
	)

	It("ends at once when ctx has ended before", func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		cause := errors.New("shutting down")
		cancel(cause)
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).To(MatchError(cause))
		_, err = locks.Inspect(ctx, "a")
		Expect(err).To(MatchError(context.Canceled))
		_, err = locks.Attach(ctx, []string{"a"}, "t")
		Expect(err).To(MatchError(context.Canceled))
	})
})

var _ = describe("Waiting by a strategy", func(on *onRedis) {
	var locks *redislock.Client
	var held *redislock.Lock
	var sent *calls

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.client)
		held = obtain(ctx, locks, time.Minute, nil, "a")
		sent = countCalls(on.client)
	})

	It("tries as often as the strategy says, and no more", func(ctx SpecContext) {
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{
			RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(time.Millisecond), 4),
		})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(sent.count()).To(Equal(5))
	})

	DescribeTable("tries once where a strategy limits or spreads nil", func(ctx SpecContext, s redislock.RetryStrategy) {
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: s})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(sent.count()).To(Equal(1))
	},
		Entry("LimitRetry", redislock.LimitRetry(nil, 3)),
		Entry("Jitter", redislock.Jitter(nil, 0.5)),
	)

	It("starts afresh with every call, so that Options can be shared", func(ctx SpecContext) {
		shared := &redislock.Options{RetryStrategy: redislock.LimitRetry(
			redislock.Jitter(redislock.ExponentialBackoff(0, time.Millisecond), 0.5), 3)}
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				defer GinkgoRecover()
				_, err := locks.Obtain(ctx, "a", time.Minute, shared)
				Expect(err).To(Equal(redislock.ErrNotObtained))
			})
		}
		wait.Wait()
		Expect(sent.count()).To(Equal(5 * 4))
	})

	It("uses a strategy of the caller's own as it is", func(ctx SpecContext) {
		own := &countdown{left: 2}
		opt := &redislock.Options{RetryStrategy: own}
		_, err := locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		_, err = locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(sent.count()).To(Equal(3 + 1))
	})

	It("gets the lock once it is released", func(ctx SpecContext) {
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
			got <- err
		}()
		Eventually(sent.count).Should(BeNumerically(">", 3))
		Expect(got).NotTo(Receive())
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(got).Should(Receive(BeNil()))
	})

	It("ends with ctx, whose error and cause it tells", func(ctx SpecContext) {
		cause := errors.New("shutting down")
		ended, cancel := context.WithCancelCause(ctx)
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ended, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Hour)})
			got <- err
		}()
		Eventually(sent.count).Should(Equal(1))
		cancel(cause)
		var err error
		Eventually(got).Should(Receive(&err))
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).To(MatchError(cause))
	})

	It("ends after one ttl where ctx has no deadline", func() {
		start := time.Now()
		_, err := locks.Obtain(context.Background(), "a", 50*time.Millisecond, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Millisecond),
		})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(start)).To(BeNumerically(">=", 50*time.Millisecond))
	})

	It("ends with ErrClosed when the Client is closed", func(ctx SpecContext) {
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Hour)})
			got <- err
		}()
		Eventually(sent.count).Should(Equal(1))
		Expect(locks.Close()).To(Succeed())
		Eventually(got).Should(Receive(Equal(redislock.ErrClosed)))
	})
})

// countdown is a strategy of a caller's own, which cannot be started afresh.
type countdown struct{ left int }

func (c *countdown) NextBackoff() time.Duration {
	if c.left--; c.left < 0 {
		return 0
	}
	return time.Millisecond
}

var _ = describe("Close", func(on *onRedis) {
	It("refuses new locks, leaves the held ones usable, and can be called again", func(ctx SpecContext) {
		locks := redislock.New(on.client)
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		Expect(locks.Close()).To(Succeed())
		Expect(locks.Close()).To(Succeed())
		_, err := locks.Obtain(ctx, "b", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = locks.Inspect(ctx, "a")
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).To(Equal(redislock.ErrClosed))
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect((*redislock.Client)(nil).Close()).To(Succeed())
	})
})

// wrapper is a client of a caller's own, which must see every call.
type wrapper struct {
	redis.Scripter
	mu   sync.Mutex // protects seen
	seen []string
}

func (w *wrapper) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, fmt.Sprint("evalsha ", keys, " ", args))
	return w.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (w *wrapper) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, fmt.Sprint("eval ", keys, " ", args))
	return w.Scripter.Eval(ctx, script, keys, args...)
}

var _ = describe("A client of the caller's own", func(on *onRedis) {
	It("sees every call through EvalSha and Eval", func(ctx SpecContext) {
		Expect(on.client.ScriptFlush(ctx).Err()).To(Succeed())
		const lines = "a{a}:redislock:line b{b}:redislock:line"
		own := &wrapper{Scripter: on.client}
		sent := countCalls(on.client)
		locks := redislock.New(own)
		lock := obtain(ctx, locks, time.Minute, &redislock.Options{Token: "t"}, "a", "b")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(locks.Inspect(ctx, "a")).To(HaveLen(1))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(own.seen).To(Equal([]string{
			"evalsha [a b " + lines + "] [t  60000 2 0]", "eval [a b " + lines + "] [t  60000 2 0]",
			"evalsha [a b] [t 60000  0]", "eval [a b] [t 60000  0]",
			"evalsha [a b] [t]", "eval [a b] [t]",
			"evalsha [a a{a}:redislock:line] [1]", "eval [a a{a}:redislock:line] [1]",
			"evalsha [a b " + lines + "] [t 2]", "eval [a b " + lines + "] [t 2]",
		}))
		Expect(sent.count()).To(Equal(5))
	})
})
