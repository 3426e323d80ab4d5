package redislock_test

import (
	"context"
	"errors"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

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
		Entry("a key that would share a line", `repeats itself as its hash tag`, []string{"a{a}"}, time.Minute, &redislock.Options{Queue: true}),
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
		Entry("a type that embeds a nil client", func() *redislock.Client { return redislock.New(&embedding{}) },
			"the *redis.Client that a *redislock_test.embedding embeds is nil"),
		Entry("a type that embeds a nil interface", func() *redislock.Client { return redislock.New(embeddingUniversal{}) },
			"the redis.UniversalClient that a redislock_test.embeddingUniversal embeds is nil"),
		Entry("a quorum with one that embeds a nil client", func() *redislock.Client {
			return redislock.NewQuorum([]redislock.RedisClient{&embedding{}, embedding{}, embeddingTwice{}})
		}, "embeds is nil"),
		Entry("a type that embeds a Pipeliner", func() *redislock.Client {
			return redislock.New(struct{ redis.Pipeliner }{on.client.Pipeline()})
		}, "queues scripts"),
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

// A script with so many keys is never sent: ctx has ended before.
var _ = Describe("The number of keys", func() {
	const most = 1_000_000
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	tooMany := And(MatchError(redislock.ErrInvalid), MatchError(ContainSubstring("1000001 keys are more than the 1000000")))
	// numbered returns so many keys with one of the tags each.
	numbered := func(n int, tags ...string) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = tags[i%len(tags)] + strconv.Itoa(i)
		}
		return keys
	}
	// attempts are what each method that takes many keys says.
	attempts := func(locks *redislock.Client, keys []string, opt *redislock.Options) map[string]error {
		_, obtained := locks.ObtainMulti(ended, keys, time.Minute, opt)
		_, inspected := locks.Inspect(ended, keys...)
		_, attached := locks.Attach(ended, keys, "token")
		return map[string]error{"ObtainMulti": obtained, "Inspect": inspected, "Attach": attached}
	}

	It("is at most a million on one server", func() {
		locks := redislock.New(connect(&redis.Options{}))
		for method, err := range attempts(locks, numbered(most+1, ""), nil) {
			Expect(err).To(tooMany, method)
		}
		for method, err := range attempts(locks, numbered(most, ""), nil) {
			Expect(err).To(MatchError(context.Canceled), method)
		}
		_, err := locks.ObtainMulti(ended, append(numbered(most, ""), "0"), time.Minute, nil)
		Expect(err).To(MatchError(context.Canceled), "a key that is named twice counts once")
	})

	It("is at most a million on each server of a quorum", func() {
		one, two, three := connect(&redis.Options{}), connect(&redis.Options{}), connect(&redis.Options{})
		locks := redislock.NewQuorum([]redislock.RedisClient{one, two, three})
		for method, err := range attempts(locks, numbered(most+1, ""), nil) {
			Expect(err).To(tooMany, method)
		}
	})

	It("is at most a million in each slot", func() {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
		DeferCleanup(client.Close)
		across := &redislock.Options{AcrossSlots: true}
		for method, err := range attempts(redislock.New(client), numbered(most+1, "{a}"), across) {
			Expect(err).To(tooMany, method)
		}
		for method, err := range attempts(redislock.New(client), numbered(most+1, "{a}", "{b}"), across) {
			Expect(err).To(MatchError(context.Canceled), method)
		}
	})
})
