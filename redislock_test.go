package redislock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
	"github.com/redislock/redislock/internal/transport"
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

var _ = spec.DescribeOnRedis("Arguments", func(on *spec.Redis) {
	var locks *redislock.Client
	var sent *spec.CallCount

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		sent = spec.CountCalls(on.Client)
	})

	AfterEach(func(ctx SpecContext) {
		Expect(sent.Count()).To(BeZero(), "nothing is sent")
		Expect(on.Keys(ctx)).To(BeEmpty(), "nothing is written")
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
		Entry("a plain number for seconds", "ttl 10ns is under 2ms; did you mean 10*time.Second?", []string{"a"}, time.Duration(10), nil),
		Entry("a plain number for milliseconds", "ttl 30µs is under 2ms; did you mean 30000*time.Millisecond?", []string{"a"},
			time.Duration(30000), nil),
		Entry("a negative ttl", "ttl -1s is under 2ms", []string{"a"}, -time.Second, nil),
		Entry("a token with a space", `token "a b" holds white space`, []string{"a"}, time.Minute, &redislock.Options{Token: "a b"}),
		Entry("a token with a line break", `holds white space`, []string{"a"}, time.Minute, &redislock.Options{Token: "a\n"}),
		Entry("a token with a control character", `control character`, []string{"a"}, time.Minute, &redislock.Options{Token: "a\x00"}),
		Entry("a token with a wide space", `holds white space`, []string{"a"}, time.Minute, &redislock.Options{Token: "a\u2003b"}),
		Entry("FenceKey among the keys", `FenceKey "b" is also a key`, []string{"a", "b"}, time.Minute, &redislock.Options{FenceKey: "b"}),
		Entry("a key that would share a line", `repeats itself as its hash tag`, []string{"a{a}"}, time.Minute, &redislock.Options{Queue: true}),
		Entry("another reserved key", `names that end in ":redislock:note" are reserved`, []string{"a:redislock:note"}, time.Minute, nil),
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
		Entry("a Pipeliner", func() *redislock.Client { return redislock.New(on.Client.Pipeline()) }, "queues scripts instead of running them"),
		Entry("a transaction", func() *redislock.Client { return redislock.New(on.Client.TxPipeline()) }, "queues scripts"),
		Entry("a type that embeds a nil client", func() *redislock.Client { return redislock.New(&embedding{(*redis.Client)(nil)}) },
			"the redis.Scripter that a *redislock_test.embedding embeds is nil"),
		Entry("a type that embeds a nil interface", func() *redislock.Client { return redislock.New(embedding{}) },
			"the redis.Scripter that a redislock_test.embedding embeds is nil"),
		Entry("a quorum with one that embeds a nil client", func() *redislock.Client {
			return redislock.NewQuorum([]redislock.RedisClient{&embedding{}, embedding{}, embedding{&embedding{}}})
		}, "embeds is nil"),
		Entry("a type that embeds a Pipeliner", func() *redislock.Client {
			return redislock.New(embedding{on.Client.Pipeline()})
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

// What is decided from the names of the keys alone, on every kind of Redis that can have a lock at several places.
var _ = Describe("A lock that cannot be where its keys are", Label(spec.InMemory, spec.Quorums), func() {
	var servers []*spec.MemoryServer
	var sent atomic.Int64 // to all servers
	var rings int         // that were made

	BeforeEach(func() {
		servers, rings = nil, 0
		for range 3 {
			server := spec.NewMemoryServer()
			DeferCleanup(server.End)
			server.Decide(func(m faultproxy.Message) faultproxy.Action {
				if !m.Reply {
					sent.Add(1)
				}
				return faultproxy.Action{}
			})
			servers = append(servers, server)
		}
	})

	begin := func(client redislock.RedisClient, opts ...redislock.RedisClient) *redislock.Client {
		locks := redislock.NewQuorum(append([]redislock.RedisClient{client}, opts...))
		DeferCleanup(locks.Close)
		return locks
	}
	quorum := func() *redislock.Client {
		var clients []redislock.RedisClient
		for _, server := range servers {
			client := server.Connect(0, nil)
			DeferCleanup(client.Close)
			clients = append(clients, client)
		}
		return begin(clients[0], clients[1:]...)
	}
	cluster := func() *redis.ClusterClient {
		client := spec.NewMemoryCluster(servers, 0, nil)
		DeferCleanup(client.Close)
		return client
	}
	ring := func() *redis.Ring {
		db := rings // of its own: the Rings of a quorum must not share a key
		rings++
		client := redis.NewRing(&redis.RingOptions{
			Addrs:              map[string]string{"0": "node-0:6379", "1": "node-1:6379", "2": "node-2:6379"},
			HeartbeatFrequency: time.Hour,
			NewClient: func(opt *redis.Options) *redis.Client {
				return servers[opt.Addr[len("node-")]-'0'].Connect(0, func(opt *redis.Options) { opt.DB = db })
			},
		})
		DeferCleanup(client.Close)
		return client
	}
	var sameSlot string // a key in the slot of "a"
	for i := 0; transport.Slot(sameSlot) != transport.Slot("a"); i++ {
		sameSlot = strconv.Itoa(i)
	}

	token, across := &redislock.Options{Token: "me"}, &redislock.Options{Token: "me", AcrossSlots: true}
	const attach = "let the library choose the token, and resume or share the lock with Attach"
	for _, on := range []struct {
		name  string
		locks func() *redislock.Client
		keys  []string
		opt   *redislock.Options
		words string
	}{
		{"a token on a quorum", quorum, []string{"a"}, token, "Token does not work with a quorum of servers; " + attach},
		{"a token on a quorum, for several keys", quorum, []string{"{a}1", "{a}2"}, token, attach},
		{"a token across slots", func() *redislock.Client { return begin(cluster()) }, []string{"a", "b"}, across,
			"Token does not work with AcrossSlots for keys without a common hash tag; " + attach},
		{"a token across slots, through a type that embeds a Cluster", func() *redislock.Client {
			return begin(embedding{cluster()})
		}, []string{"a", "b"}, across, attach},
		{"a token across slots, with a FenceKey elsewhere", func() *redislock.Client { return begin(cluster()) }, []string{"a"},
			&redislock.Options{Token: "me", AcrossSlots: true, FenceKey: "fence"}, attach},
		{"a token across slots, for keys that happen to be in one slot", func() *redislock.Client { return begin(cluster()) },
			[]string{"a", sameSlot}, across, attach},
		{"several keys on a Ring", func() *redislock.Client { return begin(ring()) }, []string{"a", "b"}, nil,
			"a Ring needs one hash tag for all keys of a lock, and for its FenceKey, as in {order:7}:stock"},
		{"several keys on a Ring, with one tag and another", func() *redislock.Client { return begin(ring()) },
			[]string{"{a}1", "{a}2", "{b}1"}, nil, "a Ring needs one hash tag"},
		{"several keys on a Ring, across slots", func() *redislock.Client { return begin(ring()) }, []string{"a", "b"},
			&redislock.Options{AcrossSlots: true}, "a Ring needs one hash tag"},
		{"a FenceKey elsewhere on a Ring", func() *redislock.Client { return begin(ring()) }, []string{"a"},
			&redislock.Options{FenceKey: "fence"}, "a Ring needs one hash tag"},
		{"several keys on a quorum of Rings", func() *redislock.Client { return begin(ring(), ring(), ring()) },
			[]string{"a", "b"}, nil, "a quorum of Rings needs one hash tag"},
	} {
		Context(on.name, func() {
			var locks *redislock.Client
			BeforeEach(func() {
				locks = on.locks()
				sent.Store(0)
			})

			expectRefused := func(err error) {
				GinkgoHelper()
				Expect(err).To(MatchError(redislock.ErrInvalid))
				Expect(err).To(MatchError(ContainSubstring(on.words)))
			}

			It("is refused by Obtain and ObtainMulti, and nothing is sent", func(ctx SpecContext) {
				_, err := locks.ObtainMulti(ctx, on.keys, time.Minute, on.opt)
				expectRefused(err)
				if len(on.keys) == 1 {
					_, err = locks.Obtain(ctx, on.keys[0], time.Minute, on.opt)
					expectRefused(err)
				}
				Expect(sent.Load()).To(BeZero())
			})

			It("is refused by Do, and nothing is sent", func(ctx SpecContext) {
				expectRefused(locks.Do(ctx, on.keys, time.Minute, on.opt, func(context.Context) error {
					Fail("fn is called")
					return nil
				}))
				Expect(sent.Load()).To(BeZero())
			})

			It("is refused by a Do inside others that hold some keys, or all", func(ctx SpecContext) {
				inner := func(outer context.Context) {
					time.Sleep(50 * time.Millisecond) // the outer Do need not wait for each place
					before := sent.Load()
					expectRefused(locks.Do(outer, on.keys, time.Minute, on.opt, func(context.Context) error {
						Fail("fn is called")
						return nil
					}))
					Expect(sent.Load()).To(Equal(before))
				}
				var within func(outer context.Context, keys []string) error
				within = func(outer context.Context, keys []string) error {
					if len(keys) == 0 {
						return nil
					}
					return locks.Do(outer, keys[:1], time.Minute, nil, func(outer context.Context) error {
						inner(outer)
						return within(outer, keys[1:])
					})
				}
				Expect(within(ctx, on.keys)).To(Succeed())
			})

			It("is looked at as a whole by Attach, which asks for one hash tag where that is needed", func(ctx SpecContext) {
				_, err := locks.Attach(ctx, on.keys, "me")
				if on.opt != nil && on.opt.Token != "" || len(on.keys) == 1 {
					Expect(err).To(MatchError(redislock.ErrLockNotHeld))
					return
				}
				expectRefused(err)
				Expect(sent.Load()).To(BeZero())
			})
		})
	}

	It("can be there with a token if its keys have one hash tag, or if it has one key", func(ctx SpecContext) {
		locks := begin(cluster())
		for _, keys := range [][]string{{"{a}1", "{a}2"}, {"b"}} {
			lock := spec.Obtain(ctx, locks, time.Minute, across, keys...)
			Expect(spec.Obtain(ctx, locks, time.Hour, across, keys...).Token()).To(Equal("me"))
			Expect(lock.TTL(ctx)).To(BeNumerically(">", time.Minute))
			Expect(lock.Release(ctx)).To(Succeed())
		}
		locks = begin(ring())
		for _, opt := range []*redislock.Options{nil, token, across, {FenceKey: "{a}fence"}} {
			lock := spec.Obtain(ctx, locks, time.Minute, opt, "{a}1", "{a}2")
			found, err := locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			Expect(found.Release(ctx)).To(Succeed())
		}
	})
})

// A million keys take a second of CPU time, so internal/script checks the limit itself. ctx has ended: nothing is sent.
var _ = Describe("More than a million keys", func() {
	It("are an error on one server, on a quorum and in one slot", func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		keys := make([]string, 1_000_001)
		for i := range keys {
			keys[i] = "{a}" + strconv.Itoa(i)
		}
		expectTooMany := func(err error) {
			GinkgoHelper()
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(err).To(MatchError(ContainSubstring("1000001 keys are more than the 1000000")))
		}
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
		DeferCleanup(cluster.Close)
		one, other := spec.Connect(&redis.Options{}), spec.Connect(&redis.Options{})

		_, err := redislock.New(one).ObtainMulti(ended, keys, time.Minute, nil)
		expectTooMany(err)
		_, err = redislock.New(cluster).ObtainMulti(ended, keys, time.Minute, &redislock.Options{AcrossSlots: true})
		expectTooMany(err)
		quorum := redislock.NewQuorum([]redislock.RedisClient{one, other})
		_, err = quorum.ObtainMulti(ended, keys, time.Minute, nil)
		expectTooMany(err)
		_, err = quorum.Inspect(ended, keys...)
		expectTooMany(err)
		_, err = redislock.New(one).Attach(ended, keys, "token")
		expectTooMany(err)

		for i := range 900_000 { // a key that is named twice counts once
			keys[i] = keys[0]
		}
		_, err = redislock.New(one).ObtainMulti(ended, keys, time.Minute, nil)
		Expect(err).To(MatchError(context.Canceled))
	})
})

var _ = spec.DescribeOnRedis("Close", func(on *spec.Redis) {
	It("refuses new locks, leaves the held ones usable, and can be called again", func(ctx SpecContext) {
		locks := redislock.New(on.Client)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
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

var _ = spec.DescribeOnRedis("A client of the caller's own", func(on *spec.Redis) {
	It("sees every call through EvalSha and Eval", func(ctx SpecContext) {
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		const lines, besides = "a{a}:redislock:line b{b}:redislock:line", "a{a}:redislock:house a{a}:redislock:line a{a}:redislock:note"
		own := &spec.Wrapper{Scripter: on.Client}
		sent := spec.CountCalls(on.Client)
		locks := redislock.New(own)
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "t"}, "a", "b")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(locks.Inspect(ctx, "a")).To(HaveLen(1))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(own.Seen).To(Equal([]string{
			"evalsha [a b " + lines + "] [t  60000 2 0 1]", "eval [a b " + lines + "] [t  60000 2 0 1]",
			"evalsha [a b] [t 60000  0]", "eval [a b] [t 60000  0]",
			"evalsha [a b] [t]", "eval [a b] [t]",
			"evalsha [a " + besides + "] [1 1=1 0  100]", "eval [a " + besides + "] [1 1=1 0  100]",
			"evalsha [a b " + lines + "] [t 2]", "eval [a b " + lines + "] [t 2]",
		}))
		Expect(sent.Count()).To(Equal(5))
	})

	DescribeTable("obtains nothing with a reply that makes no sense", func(ctx SpecContext, reply any) {
		_, err := redislock.New(&replying{Scripter: on.Client, reply: reply}).Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("unexpected reply")))
	},
		Entry("a text", "QUEUED"),
		Entry("a text in a list", []any{"QUEUED"}),
		Entry("a refusal with a part missing", []any{int64(-1), int64(5)}),
	)

	It("leaves nothing behind after a reply that makes no sense", func(ctx SpecContext) {
		_, err := redislock.New(&garbling{Scripter: on.Client}).Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("unexpected reply")))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

// embedding is a type of a user's own that embeds a client.
type embedding struct{ redis.Scripter }

// garbling is a client that garbles the first reply.
type garbling struct {
	redis.Scripter
	once sync.Once
}

func (g *garbling) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return g.garbled(g.Scripter.EvalSha(ctx, sha, keys, args...))
}

func (g *garbling) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return g.garbled(g.Scripter.Eval(ctx, script, keys, args...))
}

func (g *garbling) garbled(cmd *redis.Cmd) *redis.Cmd {
	if cmd.Err() == nil {
		g.once.Do(func() { cmd.SetVal("QUEUED") })
	}
	return cmd
}

// replying is a client that gives every script the same reply.
type replying struct {
	redis.Scripter
	reply any
}

func (r *replying) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(r.reply, nil)
}
