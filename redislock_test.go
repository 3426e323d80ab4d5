package redislock_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Obtain", func(on *spec.Redis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.Client)
	})

	It("stores the token, in 22 characters, until the ttl is over", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(lock.Token()).To(MatchRegexp(`^[A-Za-z0-9_-]{22}$`))
		Expect(on.Client.Get(ctx, "a").Val()).To(Equal(lock.Token()))
		Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, time.Second))
		on.Age(ctx, time.Minute)
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("stores metadata behind the token and a space", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me", Metadata: "x y\x00\xff z"}, "a", "b")
		Expect(on.Client.Get(ctx, "a").Val()).To(Equal("me x y\x00\xff z"))
		Expect(on.Client.Get(ctx, "b").Val()).To(Equal("me x y\x00\xff z"))
		Expect(lock.Metadata()).To(Equal("x y\x00\xff z"))
	})

	It("gives no two locks the same token", func(ctx SpecContext) {
		seen := map[string]bool{}
		for i := range 100 {
			seen[spec.Obtain(ctx, locks, time.Minute, nil, strconv.Itoa(i)).Token()] = true
		}
		Expect(seen).To(HaveLen(100))
	})

	It("sends one script, in one round trip", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "warm up")
		sent := spec.CountCalls(on.Client)
		spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence"}, "a", "b", "c")
		Expect(sent.Count()).To(Equal(1))
	})

	It("works through the package-level short-cuts", func(ctx SpecContext) {
		one, err := redislock.Obtain(ctx, on.Client, "a", time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		both, err := redislock.ObtainMulti(ctx, on.Client, []string{"b", "c"}, time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(one.Release(ctx)).To(Succeed())
		Expect(both.Release(ctx)).To(Succeed())
	})

	When("the script is not on the server", func() {
		It("loads it, as often as it was flushed", func(ctx SpecContext) {
			for range 3 {
				Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
				lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
				Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
				Expect(lock.Release(ctx)).To(Succeed())
			}
		})
	})

	When("one key of several is another's", func() {
		BeforeEach(func(ctx SpecContext) {
			spec.Obtain(ctx, locks, time.Minute, nil, "c")
		})

		It("refuses with plain ErrNotObtained and takes none", func(ctx SpecContext) {
			_, err := locks.ObtainMulti(ctx, []string{"a", "b", "c"}, time.Minute, &redislock.Options{FenceKey: "f"})
			Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(on.Keys(ctx)).To(ConsistOf("c"))
		})

		It("tries once without a strategy", func(ctx SpecContext) {
			sent := spec.CountCalls(on.Client)
			_, err := locks.ObtainMulti(ctx, []string{"a", "c"}, time.Minute, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(sent.Count()).To(Equal(1))
		})

		It("grants all once it is free", func(ctx SpecContext) {
			on.Age(ctx, time.Minute)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b", "c")
			Expect(lock.Keys()).To(Equal([]string{"a", "b", "c"}))
			Expect(on.Keys(ctx)).To(ConsistOf("a", "b", "c"))
		})
	})

	When("the keys hold the same custom token", func() {
		var first *redislock.Lock

		BeforeEach(func(ctx SpecContext) {
			first = spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me", Metadata: "one"}, "a")
		})

		It("grants them again, with the new metadata, and the earlier handle stays valid", func(ctx SpecContext) {
			again := spec.Obtain(ctx, locks, time.Hour, &redislock.Options{Token: "me", Metadata: "two"}, "a")
			Expect(again.Token()).To(Equal("me"))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("me two"))
			Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Hour, time.Second))
			Expect(first.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
			Expect(first.Refresh(ctx, time.Minute, nil)).To(Succeed())
		})

		It("never shortens what is left of their ttl", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, time.Second, &redislock.Options{Token: "me", Metadata: "two"}, "a")
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("me two"))
			Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, time.Second))
		})

		It("gives a key without expiry their ttl", func(ctx SpecContext) {
			for _, metadata := range []string{"one", "two"} {
				Expect(on.Client.Persist(ctx, "a").Val()).To(BeTrue())
				spec.Obtain(ctx, locks, time.Second, &redislock.Options{Token: "me", Metadata: metadata}, "a")
				Expect(on.Client.PTTL(ctx, "a").Val()).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
			}
		})

		It("takes the free ones along", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, time.Hour, &redislock.Options{Token: "me", Metadata: "two"}, "b", "a", "c")
			for _, key := range []string{"a", "b", "c"} {
				Expect(on.Client.Get(ctx, key).Val()).To(Equal("me two"))
				Expect(on.Client.PTTL(ctx, key).Val()).To(BeNumerically("~", time.Hour, time.Second))
			}
		})

		It("takes none if a further one is another's", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, time.Minute, nil, "z")
			_, err := locks.ObtainMulti(ctx, []string{"a", "b", "z"}, time.Hour, &redislock.Options{Token: "me", Metadata: "two"})
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(on.Keys(ctx)).To(ConsistOf("a", "z"))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("me one"))
			Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", time.Minute))
		})
	})

	DescribeTable("does not take a token for another that it begins with",
		func(ctx SpecContext, holder, other redislock.Options) {
			spec.Obtain(ctx, locks, time.Minute, &holder, "a")
			_, err := locks.Obtain(ctx, "a", time.Minute, &other)
			Expect(err).To(Equal(redislock.ErrNotObtained))
		},
		Entry("shorter", redislock.Options{Token: "job-10"}, redislock.Options{Token: "job-1"}),
		Entry("longer", redislock.Options{Token: "job-1"}, redislock.Options{Token: "job-10"}),
		Entry("with metadata", redislock.Options{Token: "job-1", Metadata: "0"}, redislock.Options{Token: "job-10"}),
		Entry("as metadata", redislock.Options{Token: "x", Metadata: "job-1"}, redislock.Options{Token: "job-1"}),
	)

	It("merges keys named twice, in the caller's order", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "b", "a", "b", "b", "c", "a")
		Expect(lock.Keys()).To(Equal([]string{"b", "a", "c"}))
		Expect(lock.Key()).To(Equal("b"))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("copies the caller's slice of keys, and returns copies of its own", func(ctx SpecContext) {
		keys := []string{"a", "b"}
		lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
		keys[0], lock.Keys()[1] = "x", "y"
		Expect(lock.Keys()).To(Equal([]string{"a", "b"}))
	})

	It("locks 20,000 keys at once", func(ctx SpecContext) {
		if on.Memory != nil {
			on.Memory.ClockTTL(false) // it looks at every key at every command
		}
		keys := make([]string, 20_000)
		for i := range keys {
			keys[i] = "key:" + strconv.Itoa(i)
		}
		lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
		Expect(on.Client.DBSize(ctx).Val()).To(BeNumerically("==", 20_000))
		Expect(lock.TTL(ctx)).To(BeNumerically("~", time.Minute, 10*time.Second))
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "m"})).To(Succeed())
		Expect(locks.Attach(ctx, keys, lock.Token())).NotTo(BeNil())
		_, err := locks.ObtainMulti(ctx, []string{"new", keys[19_999]}, time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())

		spec.Obtain(ctx, locks, time.Minute, nil, keys[19_999])
		_, err = locks.ObtainMulti(ctx, keys, time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(on.Keys(ctx)).To(ConsistOf(keys[19_999]))
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
		Expect(on.Keys(ctx)).To(HaveLen(2))
	})

	When("a key holds something other than a string", func() {
		BeforeEach(func(ctx SpecContext) {
			on.Client.RPush(ctx, "list", "x")
		})

		It("says which, and takes nothing", func(ctx SpecContext) {
			_, err := locks.ObtainMulti(ctx, []string{"a", "list", "b"}, time.Minute, nil)
			Expect(err).To(MatchError(ContainSubstring(`WRONGTYPE key "list" holds a list, not a lock`)))
			Expect(errors.Is(err, redislock.ErrNotObtained)).To(BeFalse())
			Expect(on.Keys(ctx)).To(ConsistOf("list"))
		})

		It("says so for a FenceKey too", func(ctx SpecContext) {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{FenceKey: "list"})
			Expect(err).To(MatchError(ContainSubstring(`WRONGTYPE fence key "list"`)))
			Expect(on.Keys(ctx)).To(ConsistOf("list"))
		})
	})
})
