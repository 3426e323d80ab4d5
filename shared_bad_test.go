package redislock_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

const houseOfA = "a{a}:redislock:house"

var _ = spec.DescribeOnRedis("Keys that several may hold, asked for wrongly,", func(on *spec.Redis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})

	DescribeTable("are ErrInvalid, and nothing is sent", func(ctx SpecContext, opt redislock.Options, keys ...string) {
		sent := spec.CountCalls(on.Client)
		for _, opt.Queue = range []bool{false, true} {
			_, err := locks.ObtainMulti(ctx, keys, time.Minute, &opt)
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(locks.Do(ctx, keys, time.Minute, &opt, func(context.Context) error {
				Fail("called")
				return nil
			})).To(MatchError(redislock.ErrInvalid))
		}
		Expect(sent.Count()).To(BeZero())
		Expect(on.Keys(ctx)).To(BeEmpty())
	},
		Entry("no holder at all", redislock.Options{Permits: map[string]int{"a": 0}}, "a"),
		Entry("less than none", redislock.Options{Permits: map[string]int{"a": -1}}, "a"),
		Entry("above a million", redislock.Options{Permits: map[string]int{"a": 1_000_001}}, "a"),
		Entry("a permit of another key", redislock.Options{Permits: map[string]int{"b": 2}}, "a"),
		Entry("a permit of another key, for one", redislock.Options{Permits: map[string]int{"b": 1}}, "a"),
		Entry("another key is shared", redislock.Options{Shared: []string{"a", "b"}}, "a"),
		Entry("both", redislock.Options{Shared: []string{"a"}, Permits: map[string]int{"a": 2}}, "a"),
		Entry("both, for one", redislock.Options{Shared: []string{"a"}, Permits: map[string]int{"a": 1}}, "a"),
		Entry("a key without a house", redislock.Options{Shared: []string{"a{"}}, "a{"),
		Entry("a key without a line beside it", redislock.Options{Shared: []string{"a"}}, "a", "b}"),
		Entry("the name of a house", redislock.Options{Shared: []string{houseOfA}}, houseOfA),
		Entry("the name of a house is the fence key", redislock.Options{Shared: []string{"a"}, FenceKey: houseOfA}, "a"),
	)

	It("are ErrInvalid without a Client", func(ctx SpecContext) {
		var none *redislock.Client
		_, err := none.Obtain(ctx, "a", time.Minute, readers)
		Expect(err).To(MatchError(redislock.ErrInvalid))
		for _, client := range []*redislock.Client{nil, {}} {
			err = client.Do(ctx, []string{"a"}, time.Minute, readers, func(context.Context) error { return nil })
			Expect(err).To(MatchError(redislock.ErrInvalid))
		}
	})

	It("are ErrClosed after Close", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		Expect(locks.Close()).To(Succeed())
		_, err := locks.Obtain(ctx, "a", time.Minute, readers)
		Expect(err).To(MatchError(redislock.ErrClosed))
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, readers, func(context.Context) error { return nil })).
			To(MatchError(redislock.ErrClosed))
		Expect(one.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	for kind, create := range map[string]func(ctx context.Context, key string) error{
		"hash": func(ctx context.Context, key string) error { return on.Client.HSet(ctx, key, "f", "v").Err() },
		"list": func(ctx context.Context, key string) error { return on.Client.LPush(ctx, key, "v").Err() },
		"set":  func(ctx context.Context, key string) error { return on.Client.SAdd(ctx, key, "v").Err() },
		"zset": func(ctx context.Context, key string) error {
			return on.Client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "v"}).Err()
		},
		"string": func(ctx context.Context, key string) error { return on.Client.Set(ctx, key, "v", 0).Err() },
	} {
		It("leave a "+kind+" of somebody else at their name untouched", func(ctx SpecContext) {
			Expect(create(ctx, "a")).To(Succeed())
			before := on.Client.Dump(ctx, "a").Val()
			for range 2 {
				_, err := locks.ObtainMulti(ctx, []string{"b", "a"}, time.Minute, &redislock.Options{Shared: []string{"a", "b"}})
				if kind == "string" {
					Expect(err).To(MatchError(redislock.ErrNotObtained))
				} else {
					Expect(err).To(MatchError(ContainSubstring(`WRONGTYPE key "a" holds a ` + kind)))
				}
			}
			Expect(on.Keys(ctx)).To(Equal([]string{"a"}))
			Expect(on.Client.Dump(ctx, "a").Val()).To(Equal(before))
		})

		It("leave a "+kind+" of somebody else at the name of their house untouched", func(ctx SpecContext) {
			Expect(create(ctx, houseOfA)).To(Succeed())
			before := on.Client.Dump(ctx, houseOfA).Val()
			check := func() {
				GinkgoHelper()
				_, err := locks.ObtainMulti(ctx, []string{"b", "a"}, time.Minute, &redislock.Options{Shared: []string{"a"}, Explain: true})
				Expect(err).To(MatchError(ContainSubstring(`WRONGTYPE "` + houseOfA + `" holds a ` + kind)))
				_, err = locks.Inspect(ctx, "a", "b")
				Expect(err).NotTo(HaveOccurred())
				Expect(on.Client.Dump(ctx, houseOfA).Val()).To(Equal(before))
			}
			check()
			Expect(on.Keys(ctx)).To(Equal([]string{houseOfA}))
			writer := spec.Obtain(ctx, locks, time.Minute, nil, "a") // knows nothing of a house
			Expect(writer.Release(ctx)).To(Succeed())
			if kind == "zset" {
				return // beside a key that is shared, nothing tells it from its house
			}

			Expect(on.Client.Del(ctx, houseOfA).Err()).To(Succeed())
			one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
			Expect(on.Client.Del(ctx, houseOfA).Err()).To(Succeed())
			Expect(create(ctx, houseOfA)).To(Succeed())
			before = on.Client.Dump(ctx, houseOfA).Val()
			check()
			Expect(one.TTL(ctx)).To(BeZero())
			Expect(one.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
			Expect(one.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
			Expect(on.Client.Dump(ctx, houseOfA).Val()).To(Equal(before))
		})
	}
})

var _ = spec.DescribeOnRedis("Keys that several hold, after an operator's hand,", func(on *spec.Redis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})
	expiries := func(ctx context.Context) {
		GinkgoHelper()
		for _, key := range on.Keys(ctx) {
			Expect(on.Client.PTTL(ctx, key).Val()).To(BeNumerically(">", 0), key)
		}
	}

	It("are free if it has deleted the key, and nobody revives an old hold", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		Expect(one.TTL(ctx)).To(BeZero())
		writer := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(one.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(one.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(writer.Release(ctx)).To(Succeed())
		two := spec.Obtain(ctx, locks, time.Minute, pool, "a")
		Expect(one.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		status, err := locks.Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(status[0].HolderCount).To(Equal(1))
		Expect(status[0].Token).To(Equal(two.Token()))
		Expect(two.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("have no holders if it has deleted the house, and say so", func(ctx SpecContext) {
		one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
		Expect(on.Client.Del(ctx, houseOfA).Err()).To(Succeed())
		Expect(one.TTL(ctx)).To(BeZero())
		Expect(one.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		_, err := locks.Attach(ctx, []string{"a"}, one.Token())
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
		_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		refused := spec.Refusal(err)
		Expect(refused.Key).To(Equal("a"))
		Expect(err.Error()).NotTo(ContainSubstring("redislock:shared"))
		expiries(ctx)
		two := spec.Obtain(ctx, locks, time.Second, pool, "a")
		Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", time.Second))
		Expect(two.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	for _, what := range [][]string{{"a"}, {houseOfA}, {"a", houseOfA}} {
		It(fmt.Sprint("expire again if it has made them last for ever: ", what), func(ctx SpecContext) {
			persist := func() {
				GinkgoHelper()
				for _, key := range what {
					Expect(on.Client.Persist(ctx, key).Val()).To(BeTrue())
				}
			}
			one := spec.Obtain(ctx, locks, time.Minute, readers, "a")
			persist()
			Expect(one.TTL(ctx)).To(BeNumerically("~", time.Minute, time.Second))
			two := spec.Obtain(ctx, locks, time.Minute, readers, "a")
			expiries(ctx)
			persist()
			Expect(one.Refresh(ctx, time.Minute, nil)).To(Succeed())
			expiries(ctx)
			persist()
			Expect(two.Release(ctx)).To(Succeed())
			expiries(ctx)
			persist()
			Expect(one.Release(ctx)).To(Succeed())
			Expect(on.Keys(ctx)).To(BeEmpty())
			three := spec.Obtain(ctx, locks, 200*time.Millisecond, readers, "a")
			persist()
			time.Sleep(210 * time.Millisecond)
			Expect(three.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
			four := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Permits: map[string]int{"a": 2}}, "a")
			expiries(ctx)
			Expect(four.Release(ctx)).To(Succeed())
			Expect(on.Keys(ctx)).To(BeEmpty())
		})
	}

	It("end early if the clock is set forward, and not before they were to if it is set back", func(ctx SpecContext) {
		if on.Memory == nil {
			Skip("nobody sets the clock of the machine")
		}
		one := spec.Obtain(ctx, locks, time.Minute, pool, "a")
		two := spec.Obtain(ctx, locks, time.Hour, pool, "a")
		on.Memory.SetTime(time.Now().Add(10 * time.Minute))
		three := spec.Obtain(ctx, locks, time.Minute, pool, "a")
		Expect(one.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		on.Memory.SetTime(time.Now().Add(-10 * time.Minute))
		_, err := locks.Obtain(ctx, "a", time.Minute, pool)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(two.TTL(ctx)).To(BeNumerically(">", time.Hour))
		Expect(two.Refresh(ctx, time.Hour, nil)).To(Succeed())
		expiries(ctx)
		Expect(one.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(two.Release(ctx)).To(Succeed())
		Expect(three.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})
})

var _ = Describe("Keys that several may hold, on a server that refuses commands,", Label(spec.OnServer), Ordered, ContinueOnFailure, func() {
	var admin, client *redis.Client
	var locks *redislock.Client
	mix := &redislock.Options{Shared: []string{"{q}r"}, Permits: map[string]int{"{q}p": 2}, Metadata: "me"}
	keys := []string{"{q}x", "{q}r", "{q}p"}

	BeforeAll(func() {
		server := spec.StartServer("maxmemory-policy noeviction")
		admin = redis.NewClient(&redis.Options{Addr: server.Addr()})
		DeferCleanup(admin.Close)
	})
	BeforeEach(func(ctx SpecContext) {
		spec.CheckLeaks()
		Expect(admin.ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
		Expect(admin.FlushAll(ctx).Err()).To(Succeed())
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "reset", "on", "nopass", "+@all", "~*", "&*").Err()).To(Succeed())
		client = spec.Connect(&redis.Options{Addr: admin.Options().Addr, Username: "limited", Password: "any"})
		locks = redislock.New(client)
		DeferCleanup(locks.Close)
	})
	// sound expects that each key expires, and that each shared one has a house, and each house a key.
	sound := func(ctx context.Context) {
		GinkgoHelper()
		for _, key := range admin.Keys(ctx, "*").Val() {
			Expect(admin.PTTL(ctx, key).Val()).NotTo(BeEquivalentTo(-1), key) // -2 if it has just ended
		}
	}

	It("are refused when its memory is full, unless they are held already", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, mix, keys...)
		ended := spec.Obtain(ctx, locks, 30*time.Millisecond, mix, "{q}r", "{q}p")
		time.Sleep(40 * time.Millisecond)
		Expect(ended.TTL(ctx)).To(BeZero())
		Expect(admin.ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
		for _, opt := range []*redislock.Options{mix, {Shared: []string{"{q}r"}, Permits: map[string]int{"{q}p": 2}}} {
			for _, keys := range [][]string{{"{q}y", "{q}r", "{q}p"}, {"{q}r", "{q}p"}} {
				lock, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
				Expect(err).To(MatchError(ContainSubstring("OOM")), fmt.Sprint(keys, lock))
			}
		}
		_, err := locks.Obtain(ctx, "free", time.Minute, &redislock.Options{Shared: []string{"free"}})
		Expect(err).To(MatchError(ContainSubstring("OOM")))
		Expect(held.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(held.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "longer than before"})).To(Succeed())
		Expect(held.TTL(ctx)).To(BeNumerically("~", time.Hour, time.Second))
		sound(ctx)
		Expect(held.Release(ctx)).To(Succeed())
		Expect(admin.Keys(ctx, "*").Val()).To(BeEmpty())
	})

	for _, command := range []string{
		"zadd", "zrem", "zremrangebyscore", "pexpireat", "set", "del", "zcount", "type", "exists", "zrevrange", "zrangebyscore", "zscore",
		"zrevrangebyscore", "mget", "time", "pttl", "get", "zrange", "publish", "pubsub|numsub", "pexpire", "eval",
	} {
		It("leave nothing behind that does not end if an ACL forbids "+command, func(ctx SpecContext) {
			forbid := func(what string) {
				GinkgoHelper()
				Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", what+command).Err()).To(Succeed())
			}
			warm := spec.Obtain(ctx, locks, time.Minute, mix, keys...)
			Expect(warm.Release(ctx)).To(Succeed())
			other := redislock.New(admin)
			DeferCleanup(other.Close)
			attempt := func(what string) {
				GinkgoHelper()
				forbid("-")
				_, err := locks.ObtainMulti(spec.Within(ctx, time.Second), keys, time.Minute, mix)
				forbid("+")
				sound(ctx)
				if err != nil {
					Eventually(func() int64 { return admin.Exists(ctx, keys[0]).Val() }).WithTimeout(100*time.Millisecond).Should(BeZero(), what)
					Eventually(func() []redislock.Holder {
						status, err := other.Inspect(ctx, keys[1:]...)
						Expect(err).NotTo(HaveOccurred())
						return append(status[0].Holders, status[1].Holders...)
					}).Should(BeEmpty(), what)
				}
				status, err := other.Inspect(ctx, keys...)
				Expect(err).NotTo(HaveOccurred())
				for _, s := range status {
					if s.TTL != 0 {
						Expect(s.Token).NotTo(BeEmpty(), what+": "+s.Key+" is held by somebody")
					}
				}
				Expect(admin.FlushAll(ctx).Err()).To(Succeed())
			}
			attempt("free keys")

			// Beside another holder, and one whose hold has ended.
			first := spec.Obtain(ctx, other, time.Minute, mix, "{q}r", "{q}p")
			spec.Obtain(ctx, other, 30*time.Millisecond, mix, "{q}r", "{q}p")
			time.Sleep(40 * time.Millisecond)
			forbid("-")
			second, err := locks.ObtainMulti(spec.Within(ctx, time.Second), keys, time.Minute, mix)
			if err != nil {
				GinkgoWriter.Println(command, err)
				forbid("+")
				sound(ctx)
				Eventually(func() int64 { return admin.Exists(ctx, keys[0]).Val() }).WithTimeout(100 * time.Millisecond).Should(BeZero())
				second = spec.Obtain(ctx, locks, time.Minute, mix, keys...) // there is room
				forbid("-")
			}
			err = second.Refresh(spec.Within(ctx, time.Second), time.Hour, &redislock.Options{Metadata: "other"})
			GinkgoWriter.Println(command, "refresh:", err)
			sound(ctx)
			err = second.Release(spec.Within(ctx, time.Second))
			GinkgoWriter.Println(command, "release:", err)
			sound(ctx)
			forbid("+")
			if err != nil {
				err = second.Release(ctx)
				GinkgoWriter.Println(command, "release again:", err)
			}
			Expect(admin.Exists(ctx, keys[0]).Val()).To(BeZero(), "the exclusive key is held by nobody")
			status, err := other.Inspect(ctx, keys...)
			Expect(err).NotTo(HaveOccurred())
			for _, s := range status[1:] {
				Expect(s.HolderCount).To(Equal(1))
				Expect(s.TTL).To(BeNumerically("<=", time.Minute))
			}
			Expect(first.Release(ctx)).To(Succeed())
			Expect(admin.Keys(ctx, "*").Val()).To(BeEmpty())
		})
	}
})
