package redislock_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeForgetful("WithGuard", func(on *spec.Forgetful) {
	scripts := func() int { return on.Requests(spec.IsScript) }
	expectInvalid := func(ctx context.Context, locks *redislock.Client, words string) {
		GinkgoHelper()
		lock, err := locks.Obtain(ctx, "a", time.Second, nil)
		Expect(lock).To(BeNil())
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(words)))
		_, err = locks.Inspect(ctx, "a")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		_, err = locks.Attach(ctx, []string{"a"}, "t")
		Expect(err).To(MatchError(redislock.ErrInvalid))
		Expect(scripts()).To(BeZero(), "nothing is sent")
		Expect(locks.Close()).To(Succeed())
	}
	quorum := func(opts ...redislock.ClientOption) *redislock.Client {
		clients := make([]redislock.RedisClient, 3)
		for i := range clients {
			client := on.MemoryServer.Connect(i+1, nil)
			DeferCleanup(client.Close)
			clients[i] = client
		}
		return redislock.NewQuorum(clients, opts...)
	}

	for who, connect := range map[string]func(opts ...redislock.ClientOption) *redislock.Client{
		"New": func(opts ...redislock.ClientOption) *redislock.Client { return on.Connect(opts...) }, "NewQuorum": quorum,
	} {
		DescribeTable("of "+who+" is ErrInvalid", func(ctx SpecContext, maxTTL, deposed time.Duration, words string) {
			expectInvalid(ctx, connect(redislock.WithGuard(maxTTL, deposed)), words)
		},
			Entry("without a maxTTL", time.Duration(0), time.Duration(0), "WithGuard: maxTTL 0s"),
			Entry("for a maxTTL under 2 ms", 2*time.Millisecond-1, time.Duration(0), "WithGuard: maxTTL 1.999999ms"),
			Entry("for a negative maxTTL", -time.Minute, time.Duration(0), "WithGuard: maxTTL -1m0s"),
			Entry("for a negative deposed", time.Minute, -time.Second, "WithGuard: deposed -1s"),
			Entry("for a maxTTL above 24 h", 24*time.Hour+1, time.Duration(0), "longer than 24h"),
			Entry("for a deposed above 24 h", time.Minute, 24*time.Hour+1, "longer than 24h"),
		)

		It("of "+who+", given twice, means the last one", func(ctx SpecContext) {
			good, bad := redislock.WithGuard(time.Minute, 0), redislock.WithGuard(0, 0)
			expectInvalid(ctx, connect(good, bad), "WithGuard")
			_, err := connect(bad, good).Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
			Expect(closedFor(err)).To(BeNumerically("~", time.Minute, time.Second))
			_, err = connect(good, redislock.WithGuard(time.Hour, 0)).Obtain(ctx, "a", time.Hour, &redislock.Options{Explain: true})
			Expect(closedFor(err)).To(BeNumerically("~", time.Hour, time.Second))
		})
	}

	It("takes the bounds themselves", func(ctx SpecContext) {
		for _, maxTTL := range []time.Duration{2 * time.Millisecond, 24 * time.Hour} {
			_, err := on.Connect(redislock.WithGuard(maxTTL, 24*time.Hour)).Obtain(ctx, "a", maxTTL, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
		}
	})

	DescribeTable("does not work", func(ctx SpecContext, client func() redislock.RedisClient, words string) {
		other := on.MemoryServer.Connect(1, nil)
		DeferCleanup(other.Close)
		guard := redislock.WithGuard(time.Minute, 0)
		expectInvalid(ctx, redislock.New(client(), guard), words)
		expectInvalid(ctx, redislock.NewQuorum([]redislock.RedisClient{other, client(), client()}, guard),
			"client 2 of the quorum: redislock: invalid argument: "+words)
	},
		Entry("on a Cluster", func() redislock.RedisClient {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
			DeferCleanup(client.Close)
			return client
		}, "WithGuard does not work on a Cluster"),
		Entry("on a Ring", func() redislock.RedisClient {
			client := redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"0": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour,
			})
			DeferCleanup(client.Close)
			return client
		}, "WithGuard does not work on a Ring"),
	)

	Describe("refuses what a lock cannot have:", func() {
		var locks *redislock.Client
		BeforeEach(func() { locks = on.Connect(redislock.WithGuard(time.Minute, 0)) })

		invalid := func(err error, words string) {
			GinkgoHelper()
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(err).To(MatchError(ContainSubstring(words)))
		}

		It("a ttl above maxTTL", func(ctx SpecContext) {
			const above = "ttl 1m0.000000001s is above the 1m0s that WithGuard allows"
			for _, locks := range []*redislock.Client{locks, quorum(redislock.WithGuard(time.Minute, 0))} {
				_, err := locks.Obtain(ctx, "a", time.Minute+1, nil)
				invalid(err, above)
				_, err = locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute+1, nil)
				invalid(err, above)
				invalid(locks.Do(ctx, []string{"a"}, time.Minute+1, nil, func(context.Context) error {
					Fail("Do has called it")
					return nil
				}), above)
				Expect(locks.Close()).To(Succeed())
			}
			Expect(scripts()).To(BeZero())
		})

		It("a ttl above maxTTL, in Refresh", func(ctx SpecContext) {
			on.Open(ctx, time.Minute, 0)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			before := scripts()
			invalid(lock.Refresh(ctx, time.Hour, nil), "ttl 1h0m0s is above the 1m0s that WithGuard allows")
			Expect(scripts()).To(Equal(before))
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		})

		It("AcrossSlots", func(ctx SpecContext) {
			_, err := locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, &redislock.Options{AcrossSlots: true})
			invalid(err, "AcrossSlots does not work with WithGuard")
			Expect(scripts()).To(BeZero())
		})

		It("the name of the marker, also without a guard", func(ctx SpecContext) {
			for _, locks := range []*redislock.Client{locks, on.Connect(), quorum()} {
				_, err := locks.ObtainMulti(ctx, []string{"a", "redislock:guard"}, time.Minute, nil)
				invalid(err, "redislock:guard")
				_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{FenceKey: "redislock:guard"})
				invalid(err, `FenceKey "redislock:guard" is reserved`)
				Expect(locks.Close()).To(Succeed())
			}
			Expect(scripts()).To(BeZero())
		})
	})

	It("costs nothing if it is not given: no script names the marker", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Connect(), time.Hour, nil, "a")
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Requests(spec.IsScript)).To(BeNumerically(">=", 3))
		named := func(args []string) bool { return strings.Contains(strings.Join(args, " "), keyname.GuardMarker) }
		Expect(on.Requests(named)).To(BeZero())
		Expect(on.Own.Keys(ctx, "*").Val()).To(BeEmpty())
	})
})

var _ = spec.DescribeOn(spec.OnServer, "WithGuard under an ACL", func(*spec.Redis) {
	It("needs rights to the marker, and says so", func(ctx SpecContext) {
		server := spec.StartServer()
		admin := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "+@all", "~a*").Err()).To(Succeed())
		client := spec.Connect(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "x"})
		locks := redislock.New(client, redislock.WithGuard(time.Minute, 0))
		DeferCleanup(locks.Close)
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(And(ContainSubstring("NOPERM"), ContainSubstring(`under WithGuard to "redislock:guard"`))))
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "~redislock:guard").Err()).To(Succeed())
		_, err = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		Expect(closedFor(err)).To(BeNumerically(">", 0), "%v", err)
	})
})

const guardedTTL = 30 * time.Second // the maxTTL of the guards below

var _ = spec.DescribeForgetful("a closed guard", func(on *spec.Forgetful) {
	ctx := context.Background()
	var locks *redislock.Client
	events := func() []redislock.GuardClosed {
		time.Sleep(time.Millisecond) // the event comes from another goroutine
		return spec.EventsOf[redislock.GuardClosed](on.Seen)
	}

	BeforeEach(func() {
		locks = on.Connect(redislock.WithGuard(guardedTTL, 0))
	})

	Describe("refuses an obtain:", func() {
		It("and says for how long", func() {
			lock, err := locks.Obtain(ctx, "a", guardedTTL, nil)
			Expect(closedFor(err)).To(BeNumerically("~", guardedTTL, 5*time.Millisecond), "%v", err)
			Expect(lock).To(BeNil())
			_, err = locks.ObtainMulti(ctx, []string{"a", "b"}, guardedTTL, nil)
			Expect(closedFor(err)).To(BeNumerically("~", guardedTTL, 5*time.Millisecond), "%v", err)
			called := false
			err = locks.Do(ctx, []string{"a"}, guardedTTL, nil, func(context.Context) error { called = true; return nil })
			Expect(closedFor(err)).To(BeNumerically("~", guardedTTL, 5*time.Millisecond), "%v", err)
			Expect(called).To(BeFalse())
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})

		It("with Explain as well, and asks nobody else", func() {
			_, _ = locks.Obtain(ctx, "a", guardedTTL, nil)
			time.Sleep(10 * time.Second)
			Expect(on.Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
			_, err := locks.Obtain(ctx, "a", guardedTTL, &redislock.Options{Explain: true})
			Expect(closedFor(err)).To(BeNumerically("~", 20*time.Second, 5*time.Millisecond))
			Expect(err).To(And(MatchError(redislock.ErrNotObtained), Not(MatchError(redislock.ErrLockNotHeld))))
			Expect(err).To(MatchError(MatchRegexp(
				`^redislock: not obtained: the guard is closed for another (20|19\.99\d)s, because Redis may have forgotten locks; if`)))
			Expect(on.Requests(spec.Running("blocker"))).To(BeZero())
			refused := spec.EventsOf[redislock.Refused](on.Seen)
			Expect(refused).To(HaveLen(2))
			Expect(refused[0].Closed).To(BeZero(), "it did not ask")
			Expect(refused[1]).To(Equal(redislock.Refused{Keys: []string{"a"}, Try: 1, Closed: closedFor(err)}))
		})

		It("also of keys that the token holds", func() {
			on.Open(ctx, guardedTTL, 0)
			opt := &redislock.Options{Token: "me"}
			spec.Obtain(ctx, locks, guardedTTL, opt, "a")
			on.Identity.Begin() // a restart with all data
			_, err := locks.Obtain(ctx, "a", guardedTTL, opt)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
		})

		It("to a program without the guard, which cannot know: it breaks the promise for all", func() {
			spec.Obtain(ctx, on.Connect(), guardedTTL, nil, "a")
		})

		It("on a replica, with its error", func() {
			on.Open(ctx, guardedTTL, 0)
			on.Identity.Follow(on.Identity.ID())
			_, err := locks.Obtain(ctx, "a", time.Second, &redislock.Options{Explain: true})
			Expect(err).To(MatchError(ContainSubstring("READONLY a replica grants no locks")))
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})
	})

	It("opens when the longest lock has ended, and not a moment before", func() {
		began := time.Now()
		_, _ = locks.Obtain(ctx, "a", time.Second, nil)
		time.Sleep(time.Until(began.Add(guardedTTL - 2*time.Millisecond)))
		_, err := locks.Obtain(ctx, "a", time.Second, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		time.Sleep(4 * time.Millisecond)
		spec.Obtain(ctx, locks, time.Second, nil, "a")
	})

	DescribeTable("grants when it opens to an obtain that waits", func(opt redislock.Options, tries int) {
		began := time.Now()
		lock := spec.Obtain(spec.Within(ctx, time.Hour), locks, 2*time.Second, &opt, "a")
		Expect(time.Since(began)).To(BeNumerically("~", guardedTTL, time.Second))
		Expect(lock.Release(ctx)).To(Succeed())
		end := spec.EventsOf[redislock.ObtainEnd](on.Seen)
		Expect(end[0].Tries).To(BeNumerically("<=", tries))
	},
		Entry("with a strategy", redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)}, 32),
		Entry("in line, where it gives signs of life", redislock.Options{Queue: true}, 70),
	)

	It("is reported once for each term of the server, by each Client", func() {
		explained := &redislock.Options{Explain: true}
		for range 3 {
			_, _ = locks.Obtain(ctx, "a", time.Second, explained)
			time.Sleep(time.Second)
		}
		Expect(events()).To(HaveLen(1))
		Expect(events()[0].For).To(Equal(guardedTTL))
		Expect(events()[0].Server).NotTo(BeEmpty())
		_, _ = on.ConnectBy(spec.Theirs, redislock.WithGuard(guardedTTL, 0)).Obtain(ctx, "a", time.Second, nil)
		Expect(events()).To(HaveLen(2))
		time.Sleep(guardedTTL)
		spec.Obtain(ctx, locks, time.Second, nil, "a")
		Expect(events()).To(HaveLen(2))
		on.LoseMemory()
		_, _ = locks.Obtain(ctx, "a", time.Second, nil)
		_, _ = locks.Obtain(ctx, "a", time.Second, nil)
		Expect(events()).To(HaveLen(3))
	})

	It("is reported again if the server forgets again without a new term, as after FLUSHALL", func() {
		for i := range 3 {
			_, _ = locks.Obtain(ctx, "a", time.Second, nil)
			Expect(events()).To(HaveLen(i + 1))
			time.Sleep(guardedTTL + time.Second)
			Expect(spec.Obtain(ctx, locks, time.Second, nil, "a").Release(ctx)).To(Succeed())
			on.Memory.FlushAll()
		}
	})

	Describe("and waiters in line:", func() {
		var order []string
		var mark func(name string, lock *redislock.Lock, err error)
		var ended chan struct{}
		BeforeEach(func() {
			order, ended = nil, make(chan struct{}, 10)
			mark = func(name string, lock *redislock.Lock, err error) {
				defer GinkgoRecover()
				defer func() { ended <- struct{}{} }()
				Expect(err).NotTo(HaveOccurred())
				order = append(order, name) // one at a time, because each holds the lock
				time.Sleep(10 * time.Millisecond)
				Expect(lock.Release(ctx)).To(Succeed())
			}
		})
		join := func(names ...string) {
			GinkgoHelper()
			for _, name := range names {
				before := spec.CountWaiters(ctx, locks, "a")
				go func() {
					lock, err := locks.Obtain(spec.Within(ctx, time.Hour), "a", guardedTTL, &redislock.Options{Queue: true, Metadata: name})
					mark(name, lock, err)
				}()
				Eventually(spec.CountWaiters).WithArguments(ctx, locks, "a").Should(Equal(before + 1))
			}
		}
		await := func(n int) {
			for range n {
				<-ended
			}
		}

		It("they take their positions, and are granted in that order when it opens", func() {
			began := time.Now()
			join("one", "two", "three")
			await(3)
			Expect(order).To(Equal([]string{"one", "two", "three"}))
			Expect(time.Since(began)).To(BeNumerically("~", guardedTTL, time.Second))
		})

		It("they keep their order although the server forgets the line", func() {
			on.Open(ctx, guardedTTL, 0)
			held := spec.Obtain(ctx, locks, guardedTTL, nil, "a")
			join("one", "two", "three")
			time.Sleep(2 * time.Second)
			on.LoseMemory()
			time.Sleep(2 * time.Second) // all have given a sign of life
			Expect(spec.CountWaiters(ctx, locks, "a")).To(Equal(3))
			join("four")
			Expect(held.Release(ctx)).To(Succeed())
			await(4)
			Expect(order).To(Equal([]string{"one", "two", "three", "four"}))
		})

		It("no lock is handed over; when the guard has opened, the line goes on", func() {
			on.Open(ctx, guardedTTL, 0)
			held := spec.Obtain(ctx, locks, guardedTTL, nil, "a")
			join("one", "two")
			spec.AwaitSubscriptions(ctx, on.Own, "a")
			on.Identity.Begin() // a restart with all data, so the line is complete
			began := time.Now()
			Expect(held.Release(ctx)).To(Succeed())
			time.Sleep(guardedTTL - time.Second)
			Expect(order).To(BeEmpty())
			Expect(on.Own.Exists(ctx, "a").Val()).To(BeZero())
			await(2)
			Expect(order).To(Equal([]string{"one", "two"}))
			Expect(time.Since(began)).To(BeNumerically("~", guardedTTL, time.Second))
		})

		It("their error says that the guard is closed, if ctx ends first", func() {
			_, err := locks.Obtain(spec.Within(ctx, 10*time.Second), "a", guardedTTL, &redislock.Options{Queue: true, Explain: true})
			Expect(err).To(And(MatchError(redislock.ErrNotObtained), MatchError(context.DeadlineExceeded)))
			Expect(closedFor(err)).To(BeNumerically("~", 20*time.Second, time.Second))
		})
	})

	Describe("and held locks:", func() {
		var lock *redislock.Lock
		var kept context.Context
		lost := func() []redislock.Lost { return spec.EventsOf[redislock.Lost](on.Seen) }
		stranger := func() error {
			_, err := on.ConnectBy(spec.Theirs, redislock.WithGuard(guardedTTL, 0)).Obtain(ctx, "a", time.Second, nil)
			return err
		}
		keep := func(on *spec.Forgetful, ttl time.Duration, opt *redislock.Options) {
			GinkgoHelper()
			on.Open(ctx, guardedTTL, 0)
			lock = spec.Obtain(ctx, locks, ttl, opt, "a", "b")
			var stop context.CancelFunc
			kept, stop = lock.KeepAlive(ctx)
			DeferCleanup(func() { stop() })
		}

		It("a kept lock survives a server that forgets: its keys come back, and nobody gets the lock meanwhile", func() {
			keep(on, 15*time.Second, &redislock.Options{Metadata: "me"})
			for range 3 {
				on.LoseMemory()
				began := time.Now()
				Expect(stranger()).To(MatchError(redislock.ErrNotObtained))
				time.Sleep(6 * time.Second) // a renewal was due
				for _, key := range lock.Keys() {
					Expect(on.Own.Get(ctx, key).Val()).To(Equal(lock.Token() + " me"))
				}
				for time.Since(began) < guardedTTL+5*time.Second {
					Expect(stranger()).To(MatchError(redislock.ErrNotObtained))
					time.Sleep(500 * time.Millisecond)
				}
				Expect(kept.Err()).NotTo(HaveOccurred())
			}
			Expect(spec.EventsOf[redislock.Restored](on.Seen)).To(Equal(
				[]redislock.Restored{{lock.Keys(), lock.Keys()}, {lock.Keys(), lock.Keys()}, {lock.Keys(), lock.Keys()}}))
			Expect(lost()).To(BeEmpty())
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})

		It("without the guard, the same schedule loses the lock, and another gets it meanwhile", func() {
			locks = on.Connect()
			keep(on, 15*time.Second, &redislock.Options{Metadata: "me"})
			on.LoseMemory()
			second, err := on.ConnectBy(spec.Theirs).Obtain(ctx, "a", time.Second, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(kept.Err()).NotTo(HaveOccurred(), "two callers hold the lock")
			Expect(lock.Until()).To(BeTemporally(">", second.Until()))
			time.Sleep(6 * time.Second)
			Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		})

		It("Do goes on over a server that forgets", func() {
			on.Open(ctx, guardedTTL, 0)
			Expect(locks.Do(ctx, []string{"a"}, 15*time.Second, nil, func(ctx context.Context) error {
				on.LoseMemory()
				Expect(stranger()).To(MatchError(redislock.ErrNotObtained))
				time.Sleep(time.Minute)
				return context.Cause(ctx)
			})).To(Succeed())
			Expect(spec.EventsOf[redislock.Restored](on.Seen)).To(HaveLen(1))
		})

		It("a Refresh puts the keys back, with its metadata and its ttl", func() {
			on.Open(ctx, guardedTTL, 0)
			lock = spec.Obtain(ctx, locks, 15*time.Second, &redislock.Options{Metadata: "one"}, "a", "b")
			on.LoseMemory()
			Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
			Expect(on.Own.Get(ctx, "b").Val()).To(Equal(lock.Token() + " one"))
			on.LoseMemory()
			Expect(lock.Refresh(ctx, 25*time.Second, &redislock.Options{Metadata: "two"})).To(Succeed())
			Expect(on.Own.Get(ctx, "a").Val()).To(Equal(lock.Token() + " two"))
			Expect(on.Own.PTTL(ctx, "a").Val()).To(BeNumerically("~", 25*time.Second, 2*time.Millisecond))
			on.LoseMemory()
			Expect(lock.Refresh(ctx, 25*time.Second, nil)).To(Succeed())
			Expect(on.Own.Get(ctx, "a").Val()).To(Equal(lock.Token() + " two"))
			Expect(spec.EventsOf[redislock.Restored](on.Seen)).To(HaveLen(3))
		})

		It("Restored names the keys that came back, which may be some of them", func() {
			keep(on, 15*time.Second, nil)
			on.Identity.Begin()
			on.Memory.Del("b")
			time.Sleep(6 * time.Second)
			Expect(spec.EventsOf[redislock.Restored](on.Seen)).To(Equal([]redislock.Restored{{lock.Keys(), []string{"b"}}}))
		})

		It("if another has one of the keys, none comes back, and the lock is lost", func() {
			keep(on, 15*time.Second, nil)
			on.LoseMemory()
			Expect(on.Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			time.Sleep(6 * time.Second)
			Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
			Expect(on.Own.Exists(ctx, "a").Val()).To(BeZero())
			Expect(lost()).To(HaveLen(1))
		})

		It("keys that are deleted while the guard is open do not come back", func() {
			keep(on, 15*time.Second, nil)
			on.Memory.Del("a")
			on.Memory.Del("b")
			time.Sleep(6 * time.Second)
			Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})

		It("TTL is 0 while the keys are forgotten, and Until stays", func() {
			on.Open(ctx, guardedTTL, 0)
			lock = spec.Obtain(ctx, locks, 15*time.Second, nil, "a")
			until := lock.Until()
			on.LoseMemory()
			Expect(lock.TTL(ctx)).To(BeZero())
			Expect(lock.Until()).To(Equal(until))
			Expect(lock.Refresh(ctx, 15*time.Second, nil)).To(Succeed())
			Expect(lock.TTL(ctx)).To(BeNumerically(">", 14*time.Second))
		})

		DescribeTable("Release of forgotten keys is no loss", func(separate bool, keys ...string) {
			opts := []redislock.ClientOption{redislock.WithGuard(guardedTTL, 0)}
			if separate {
				opts = append(opts, redislock.WithSeparateCalls())
			}
			locks = on.Connect(opts...)
			on.Open(ctx, guardedTTL, 0)
			var all []*redislock.Lock
			for i := range 40 { // at the same time, so that some share a script
				var own []string
				for _, key := range keys {
					own = append(own, key+strings.Repeat("x", i))
				}
				all = append(all, spec.Obtain(ctx, locks, 15*time.Second, nil, own...))
			}
			on.LoseMemory()
			errs := make(chan error)
			for _, lock := range all {
				go func() { errs <- lock.Release(ctx) }()
			}
			for range all {
				Expect(<-errs).NotTo(HaveOccurred())
			}
			Expect(lost()).To(BeEmpty())
			Expect(spec.EventsOf[redislock.Released](on.Seen)).To(HaveLen(40))
			Expect(all[0].Refresh(ctx, time.Second, nil)).To(MatchError(redislock.ErrNotObtained))
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		},
			Entry("of one key", false, "a"), Entry("of one key, by itself", true, "a"), Entry("of two keys", false, "a", "b"),
		)

		It("Release of keys that were deleted while the guard is open is a loss", func() {
			on.Open(ctx, guardedTTL, 0)
			lock = spec.Obtain(ctx, locks, 15*time.Second, nil, "a")
			on.Memory.Del("a")
			Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		})

		It("Release of keys that another has is a loss", func() {
			on.Open(ctx, guardedTTL, 0)
			lock = spec.Obtain(ctx, locks, 15*time.Second, nil, "a", "b")
			on.LoseMemory()
			Expect(on.Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
		})

		It("Attach is refused, and works when the guard has opened", func() {
			keep(on, 15*time.Second, nil)
			on.Identity.Begin()
			_, err := locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).To(And(MatchError(redislock.ErrNotObtained), Not(MatchError(redislock.ErrLockNotHeld))))
			Expect(err).To(MatchError(ContainSubstring("the guard is closed for another 30s")))
			Expect(lost()).To(BeEmpty())
			time.Sleep(guardedTTL + time.Millisecond)
			attached, err := locks.Attach(ctx, lock.Keys(), lock.Token())
			Expect(err).NotTo(HaveOccurred())
			Expect(attached.Until()).To(BeTemporally(">", time.Now()))
			Expect(attached.Release(ctx)).To(Succeed())
		})

		It("Inspect goes on", func() {
			keep(on, 15*time.Second, nil)
			on.Identity.Begin()
			statuses, err := locks.Inspect(ctx, "a")
			Expect(err).NotTo(HaveOccurred())
			Expect(statuses[0].Token).To(Equal(lock.Token()))
		})
	})
})

var _ = spec.DescribeOnRedis("With a guard,", func(on *spec.Redis) {
	It("a kept lock survives a FLUSHALL, and nobody gets it meanwhile", func(ctx SpecContext) {
		const ttl = 2 * time.Second
		if on.Kind == spec.InMemory {
			Skip("the specs above show it")
		}
		locks := redislock.New(on.Client, redislock.WithGuard(ttl, 0))
		DeferCleanup(locks.Close)
		Expect(spec.OpenGuard(ctx, on.Client, ttl, 0)).To(Succeed())
		lock := spec.Obtain(ctx, locks, ttl, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
		limited := spec.Within(ctx, 3*ttl/2)
		opt := &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}
		_, err := locks.Obtain(limited, "a", ttl, opt)
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(on.Client.Get(ctx, "a").Val()).To(Equal(lock.Token()))
		Expect(on.Client.Exists(ctx, keyname.GuardMarker).Val()).To(BeEquivalentTo(1))
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

// closedFor returns the Closed of the RefusedError that an error is; 0 if it is another error.
func closedFor(err error) time.Duration {
	var refused *redislock.RefusedError
	if !errors.As(err, &refused) {
		return 0
	}
	return refused.Closed
}
