package redislock_test

import (
	"math"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Inspect", func(on *spec.Redis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.Client)
	})

	It("says who holds each key, in order, in one round trip", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me", Metadata: "x y"}, "a", "c")
		on.Client.Set(ctx, "d", "plain", 0)
		Expect(locks.Inspect(ctx, "a")).To(HaveLen(1)) // loads the script
		sent := spec.CountCalls(on.Client)
		statuses, err := locks.Inspect(ctx, "c", "b", "a", "d", "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(sent.Count()).To(Equal(1))
		aboutAMinute := BeNumerically("~", time.Minute, time.Second)
		Expect(statuses).To(HaveLen(5))
		for i, want := range []redislock.Status{
			{Key: "c", Token: "me", Metadata: "x y"},
			{Key: "b"},
			{Key: "a", Token: "me", Metadata: "x y"},
			{Key: "d", Token: "plain", TTL: -1},
			{Key: "a", Token: "me", Metadata: "x y"},
		} {
			if want.Token == "me" {
				Expect(statuses[i].TTL).To(aboutAMinute)
				want.TTL = statuses[i].TTL
			}
			Expect(statuses[i]).To(Equal(want))
		}
	})

	It("does not call a key free that holds an empty value", func(ctx SpecContext) {
		on.Client.Set(ctx, "empty", "", 0)
		Expect(locks.Inspect(ctx, "empty")).To(Equal([]redislock.Status{{Key: "empty", TTL: -1}}))
	})

	It("does not call a key free that is not a string", func(ctx SpecContext) {
		on.Client.RPush(ctx, "list", "x")
		Expect(locks.Inspect(ctx, "list", "free")).To(Equal([]redislock.Status{{Key: "list", TTL: -1}, {Key: "free"}}))
	})

	It("refuses unusable keys", func(ctx SpecContext) {
		_, err := locks.Inspect(ctx)
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Inspect(ctx, "a", "")
		Expect(err).To(MatchError(redislock.ErrInvalid))
	})

	It("looks at more keys than unpack can take", func(ctx SpecContext) {
		keys := make([]string, 8_200)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me"}, keys[8_199])
		statuses, err := locks.Inspect(ctx, keys...)
		Expect(err).NotTo(HaveOccurred())
		Expect(statuses).To(HaveLen(8_200))
		Expect(statuses[0]).To(Equal(redislock.Status{Key: "0"}))
		Expect(statuses[8_199].Token).To(Equal("me"))
	})
})

var _ = spec.DescribeOnRedis("Attach", func(on *spec.Redis) {
	var locks *redislock.Client
	var lock *redislock.Lock

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		lock = spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Metadata: "left by\x00me", FenceKey: "fence"}, "a", "b")
	})

	It("returns a handle with metadata and Until, which works like the first", func(ctx SpecContext) {
		on.Client.PExpire(ctx, "b", 20*time.Second)
		keys := []string{"b", "a", "b"}
		attached, err := redislock.New(on.Client).Attach(ctx, keys, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		keys[0] = "x"
		Expect(attached.Keys()).To(Equal([]string{"b", "a"}))
		Expect(attached.Token()).To(Equal(lock.Token()))
		Expect(attached.Metadata()).To(Equal("left by\x00me"))
		Expect(attached.FenceToken()).To(BeZero())
		Expect(attached.Until()).To(BeTemporally("~", time.Now().Add(19800*time.Millisecond), time.Second))
		Expect(attached.TTL(ctx)).To(BeNumerically("~", 20*time.Second, time.Second))
		Expect(attached.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
		Expect(attached.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})

	It("changes nothing", func(ctx SpecContext) {
		before := on.Client.Get(ctx, "a").Val()
		_, err := locks.Attach(ctx, []string{"a", "b"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(on.Client.Get(ctx, "a").Val()).To(Equal(before))
		Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", time.Minute))
	})

	It("promises nothing of a key without expiry, which may get any ttl", func(ctx SpecContext) {
		on.Client.Persist(ctx, "a")
		for _, keys := range [][]string{{"a"}, {"a", "b"}, {"b", "a"}} {
			attached, err := locks.Attach(ctx, keys, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			Expect(attached.Until()).To(BeTemporally("<=", time.Now()))
			Expect(attached.TTL(ctx)).To(BeNumerically(">", 0))
		}
		attached, err := locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.TTL(ctx)).To(Equal(time.Duration(math.MaxInt64)))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(attached.Until()).To(BeTemporally("~", time.Now().Add(59400*time.Millisecond), time.Second))
		Expect(attached.TTL(ctx)).To(BeNumerically("~", time.Minute, time.Second))
	})

	It("returns plain ErrLockNotHeld if the token holds none of the keys", func(ctx SpecContext) {
		for _, token := range []string{"x", lock.Token()[:21], lock.Token() + "0"} {
			_, err := locks.Attach(ctx, []string{"a", "b"}, token)
			Expect(err).To(BeIdenticalTo(redislock.ErrLockNotHeld))
		}
	})

	It("says which keys the token does not hold if it holds others", func(ctx SpecContext) {
		on.Client.RPush(ctx, "list", "x")
		_, err := locks.Attach(ctx, []string{"a", "free", "b", "list"}, lock.Token())
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(spec.LostKeys(err)).To(Equal([]string{"free", "list"}))
	})

	DescribeTable("refuses unusable arguments", func(ctx SpecContext, keys []string, token string) {
		_, err := locks.Attach(ctx, keys, token)
		Expect(err).To(MatchError(redislock.ErrInvalid))
	},
		Entry("no keys", nil, "t"),
		Entry("an empty key", []string{""}, "t"),
		Entry("no token", []string{"a"}, ""),
		Entry("a token with a space", []string{"a"}, "t x"),
	)
})
