package redislock_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
)

// running matches the requests that run one of our scripts, or its joint one.
func running(name string) func(args []string) bool {
	var names []string // by which a request goes
	for _, file := range []string{name, name + "_each"} {
		text, err := os.ReadFile(file + ".lua")
		if file != name && os.IsNotExist(err) {
			continue
		} else if err != nil {
			panic(err)
		}
		sum := sha1.Sum(text)
		names = append(names, "evalsha "+hex.EncodeToString(sum[:]), "eval "+string(text))
	}
	return func(args []string) bool {
		return len(args) > 1 && slices.Contains(names, strings.ToLower(args[0])+" "+args[1])
	}
}

// soon is how long a call may take to return after its ctx has ended. It takes a few milliseconds; the rest is for busy
// machines. The client's own timeouts are longer.
const soon = time.Second

var _ = describe("Through a faulty network,", func(on *onRedis) {
	var proxy *faultproxy.Proxy
	var last *redis.Client // the one that client made last
	var locks *redislock.Client

	// broken makes the next times runs of a script suffer the fault, and all of them if times is 0.
	broken := func(script string, times int, action faultproxy.Action) *faultproxy.Fault {
		GinkgoHelper()
		return proxy.Add(faultproxy.Rule{Match: running(script), Times: times, Action: action})
	}
	executed := func(script string) int { return proxy.Executed(running(script)) }
	requested := func(script string) int { return proxy.Requests(running(script)) }
	// client returns a locking client through the proxy.
	client := func(change func(*redis.Options)) *redislock.Client {
		opt := &redis.Options{Addr: proxy.Addr(), ReadTimeout: 5 * time.Second}
		change(opt)
		last = connect(opt)
		locks := redislock.New(last)
		DeferCleanup(locks.Close) // so that cleanups under way need not wait
		return locks
	}
	timingOut := func(after time.Duration) *redislock.Client {
		return client(func(opt *redis.Options) { opt.ReadTimeout = after })
	}
	// within returns a ctx that ends after d.
	within := func(ctx context.Context, d time.Duration) context.Context {
		limited, cancel := context.WithTimeout(ctx, d)
		DeferCleanup(cancel)
		return limited
	}
	// disconnect ends all connections and refuses new ones. The client knows it: by itself, go-redis sees an idle
	// connection break only where that is a socket of Unix.
	disconnect := func(ctx context.Context) {
		proxy.RefuseConnections(true)
		proxy.CutAll()
		for last.PoolStats().TotalConns > 0 {
			_ = last.Ping(within(ctx, 10*time.Millisecond))
		}
	}
	// truthful checks that a lock does not claim to last longer than its keys do.
	truthful := func(ctx context.Context, lock *redislock.Lock) {
		GinkgoHelper()
		for _, key := range lock.Keys() {
			if until := lock.Until(); until.After(time.Now()) {
				left := on.client.PTTL(ctx, key).Val()
				Expect(until).To(BeTemporally("<=", time.Now().Add(left+time.Millisecond)))
			}
		}
	}

	BeforeEach(func(ctx SpecContext) {
		var err error
		proxy, err = faultproxy.New(on.addr)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Close)
		for _, script := range []string{"obtain", "obtain_each", "refresh", "release", "release_each", "pttl", "inspect"} {
			Expect(on.client.ScriptLoad(ctx, source(script)).Err()).To(Succeed())
		}
		locks = client(func(*redis.Options) {})
	})

	Describe("Obtain", func() {
		It("is granted although the first reply was swallowed", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.SwallowReply())
			lock := obtain(ctx, timingOut(50*time.Millisecond), time.Minute, nil, "a", "b")
			Expect(executed("obtain")).To(Equal(2))
			truthful(ctx, lock)
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(on.keys(ctx)).To(BeEmpty())
		})

		It("is granted although the connection was cut in the reply", func(ctx SpecContext) {
			broken("obtain", 2, faultproxy.CutAfterReplyBytes(3))
			lock := obtain(ctx, locks, time.Minute, nil, "a", "b")
			Expect(executed("obtain")).To(Equal(3))
			truthful(ctx, lock)
		})

		It("is granted although the connection was cut in the request", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.CutAfterRequestBytes(40))
			obtain(ctx, locks, time.Minute, nil, "a", "b")
			Expect(executed("obtain")).To(Equal(1))
		})

		It("waits a moment out in which the server is not ready", func(ctx SpecContext) {
			broken("obtain", 2, faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"))
			obtain(ctx, locks, time.Minute, nil, "a")
			Expect(requested("obtain")).To(Equal(3))
		})

		It("is never sent twice by go-redis behind our back", func(ctx SpecContext) {
			broken("obtain", 0, faultproxy.CutAfterReplyBytes(0))
			never := client(func(opt *redis.Options) { opt.MaxRetries = -1 })
			_, err := never.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
			Expect(err).To(MatchError(ContainSubstring(`redislock: obtain "a" and 1 more: EOF`)))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			Expect(requested("obtain")).To(Equal(1))
			Eventually(func() []string { return on.keys(ctx) }).Should(BeEmpty(), "what it took is cleaned up")
		})

		It("is sent as often as the client's MaxRetries allow, and then cleaned up", func(ctx SpecContext) {
			broken("obtain", 0, faultproxy.CutAfterReplyBytes(0))
			_, err := locks.Obtain(ctx, "a", time.Minute, nil)
			Expect(err).To(MatchError(ContainSubstring("EOF")))
			Expect(requested("obtain")).To(Equal(1 + 3))
			Eventually(func() []string { return on.keys(ctx) }).Should(BeEmpty())
		})

		It("does not call a lock what was granted too late, and gives it back", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
			_, err := locks.Obtain(ctx, "a", 100*time.Millisecond, nil)
			Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
			Eventually(func() int { return executed("release") }).Should(BeNumerically(">=", 1))
			Expect(locks.Close()).To(Succeed())
		})

		It("tries again after a grant that came too late", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
			lock := obtain(within(ctx, 10*time.Second), locks, 100*time.Millisecond, &redislock.Options{
				RetryStrategy: redislock.LinearBackoff(time.Millisecond),
			}, "a")
			Expect(lock.Until()).To(BeTemporally(">", time.Now()))
			truthful(ctx, lock)
			Expect(locks.Close()).To(Succeed())
		})

		It("gives back what a custom token was granted too late, before it tries again", func(ctx SpecContext) {
			held := obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me"}, "held")
			broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
			_, err := locks.ObtainMulti(ctx, []string{"held", "new"}, 100*time.Millisecond, &redislock.Options{Token: "me"})
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(on.keys(ctx)).To(ConsistOf("held"))
			Expect(executed("release")).To(Equal(1))
			Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
		})

		It("gives back a grant that came too late, although an earlier sending took the keys", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.CutAfterReplyBytes(0))
			broken("obtain", 1, faultproxy.DelayReply(300*time.Millisecond))
			on.client.Set(ctx, "a", "t", time.Minute)
			late := make(chan struct{})
			go func() { // the keys outlast the ttl, as if the server had stood still
				defer close(late)
				Eventually(func() int { return executed("obtain") }).WithPolling(time.Millisecond).Should(Equal(2))
				on.client.Persist(ctx, "b")
			}()
			_, err := locks.Obtain(ctx, "b", 200*time.Millisecond, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			<-late
			Eventually(func() []string { return on.keys(ctx) }).Should(ConsistOf("a"))
			Expect(locks.Close()).To(Succeed())
		})

		It("gives back a grant that came too late, however often that takes", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond))
			broken("release", 4, faultproxy.CutAfterRequestBytes(20))
			_, err := locks.Obtain(ctx, "a", 250*time.Millisecond, nil)
			Expect(err).To(Equal(redislock.ErrNotObtained))
			Expect(on.keys(ctx)).To(ConsistOf("a"))
			on.client.Persist(ctx, "a")
			Eventually(func() []string { return on.keys(ctx) }).Should(BeEmpty())
			Expect(requested("release")).To(BeNumerically(">", 4))
		})

		It("whose first sending comes in after the Release leaves nothing behind", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond))
			lock := obtain(ctx, timingOut(100*time.Millisecond), time.Minute, nil, "a")
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(func() []string { return on.keys(ctx) }).Should(ConsistOf("a"))
			Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
		})

		DescribeTable("returns at once when ctx ends, and leaves nothing behind",
			func(ctx SpecContext, action faultproxy.Action) {
				broken("obtain", 1, action)
				limited := within(ctx, 50*time.Millisecond)
				start := time.Now()
				_, err := timingOut(300*time.Millisecond).ObtainMulti(limited, []string{"a", "b"}, time.Minute, nil)
				Expect(time.Since(start)).To(BeNumerically("<", 290*time.Millisecond))
				Expect(err).To(MatchError(redislock.ErrNotObtained))
				Expect(err).To(MatchError(context.DeadlineExceeded))
				Expect(requested("release")).To(BeZero(), "nothing overtakes the obtain")
				Eventually(func() int { return executed("release") }).Should(BeNumerically(">=", 1))
				Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
			},
			Entry("the reply is swallowed", faultproxy.SwallowReply()),
			Entry("the reply is delayed", faultproxy.DelayReply(200*time.Millisecond)),
			Entry("everything is swallowed", faultproxy.BlackHole()),
			Entry("the request arrives after the connection was given up", faultproxy.DelayRequest(600*time.Millisecond)),
		)

		It("is not sent any more when ctx has ended during a slow dial", func(ctx SpecContext) {
			proxy.DelayDial(200 * time.Millisecond)
			_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "a", time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Consistently(func() int { return requested("obtain") + requested("release") }).
				WithTimeout(400 * time.Millisecond).Should(BeZero())
		})

		It("is not sent any more when ctx has ended while the pool was full", func(ctx SpecContext) {
			if redislock.AlwaysTogether {
				Skip("go-redis has other connections for pipelines")
			}
			narrow := connect(&redis.Options{Addr: proxy.Addr(), PoolSize: 1})
			go narrow.BLPop(ctx, time.Second, "queue")
			Eventually(func() int { return proxy.Requests(faultproxy.Command("blpop")) }).Should(Equal(1))
			_, err := redislock.New(narrow).Obtain(within(ctx, 50*time.Millisecond), "a", time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Consistently(func() int { return requested("obtain") + requested("release") }).
				WithTimeout(1200 * time.Millisecond).Should(BeZero())
		})

		When("ctx ends while Redis is away", func() {
			strategies := map[string]*redislock.Options{
				"with one try":     nil,
				"with a strategy":  {RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)},
				"in line":          {Queue: true},
				"by its own token": {Token: "me"},
			}
			outage := func(ctx context.Context, locks *redislock.Client, opt *redislock.Options) error {
				GinkgoHelper()
				limited := within(ctx, 300*time.Millisecond)
				_, err := locks.ObtainMulti(limited, []string{"a", "b"}, time.Minute, opt)
				Expect(err).To(MatchError(redislock.ErrNotObtained))
				Expect(err).To(MatchError(context.DeadlineExceeded))
				return err
			}
			for name, opt := range strategies {
				It("tells that nobody listens, "+name, func(ctx SpecContext) {
					dead := redislock.New(connect(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: 100}))
					DeferCleanup(dead.Close)
					Expect(outage(ctx, dead, opt)).To(MatchError(syscall.ECONNREFUSED))
				})

				It("tells that there was no answer where go-redis itself still dials, "+name, func(ctx SpecContext) {
					dead := redislock.New(connect(&redis.Options{Addr: "127.0.0.1:1"}))
					DeferCleanup(dead.Close)
					Expect(outage(ctx, dead, opt)).To(MatchError(ContainSubstring("no answer from Redis")))
				})

				It("tells that the server does not answer, "+name, func(ctx SpecContext) {
					broken("obtain", 0, faultproxy.BlackHole())
					Expect(outage(ctx, locks, opt)).To(MatchError(ContainSubstring("the last try: " +
						`redislock: obtain "a" and 1 more: no answer from Redis`)))
					proxy.CutAll()
				})
			}

			It("tells so after a wait in line, too", func(ctx SpecContext) {
				obtain(ctx, locks, time.Minute, nil, "a")
				limited := within(ctx, 2500*time.Millisecond)
				failed := make(chan error, 1)
				go func() {
					_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
					failed <- err
				}()
				Eventually(func() int { return executed("obtain") }).Should(BeNumerically(">", 2))
				broken("obtain", 0, faultproxy.BlackHole())
				var err error
				Eventually(failed).WithTimeout(5 * time.Second).Should(Receive(&err))
				Expect(err).To(MatchError(redislock.ErrNotObtained))
				Expect(err).To(MatchError(context.DeadlineExceeded))
				Expect(err).To(MatchError(ContainSubstring("no answer from Redis")))
				proxy.CutAll()
			})

			It("tells nothing but the refusal, if that was the last answer", func(ctx SpecContext) {
				obtain(ctx, locks, time.Minute, nil, "a")
				_, err := locks.Obtain(within(ctx, 300*time.Millisecond), "a", time.Minute, &redislock.Options{
					RetryStrategy: redislock.LinearBackoff(time.Minute),
				})
				Expect(err).To(MatchError("redislock: not obtained: context deadline exceeded"))
			})
		})

		It("needs no cleanup when it could not be sent", func(ctx SpecContext) {
			proxy.RefuseConnections(true)
			_, err := locks.Obtain(ctx, "a", time.Minute, nil)
			Expect(err).To(HaveOccurred())
			proxy.RefuseConnections(false)
			Consistently(func() int { return requested("release") }).Should(BeZero())
		})
	})

	Describe("The cleanup of an abandoned obtain", func() {
		abandon := func(ctx context.Context, locks *redislock.Client) {
			GinkgoHelper()
			broken("obtain", 1, faultproxy.SwallowReply())
			_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "a", time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
		}
		cleaned := func(ctx context.Context) {
			GinkgoHelper()
			Expect(on.keys(ctx)).To(ConsistOf("a"))
			Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
		}

		DescribeTable("gets through", func(ctx SpecContext, action faultproxy.Action) {
			broken("release", 2, action)
			abandon(ctx, timingOut(100*time.Millisecond))
			cleaned(ctx)
		},
			Entry("when its reply is swallowed", faultproxy.SwallowReply()),
			Entry("when its reply is delayed", faultproxy.DelayReply(200*time.Millisecond)),
			Entry("when its connection is cut", faultproxy.CutAfterReplyBytes(0)),
			Entry("when its request is cut", faultproxy.CutAfterRequestBytes(20)),
			Entry("when it meets a black hole", faultproxy.BlackHole()),
			Entry("when the server is not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")),
		)

		It("goes through a slow dial", func(ctx SpecContext) {
			locks := timingOut(200 * time.Millisecond)
			abandonedFor := 150 * time.Millisecond
			abandon(ctx, locks)
			proxy.DelayDial(abandonedFor)
			cleaned(ctx)
		})

		It("waits until connections are possible again", func(ctx SpecContext) {
			abandon(ctx, timingOut(100*time.Millisecond))
			proxy.RefuseConnections(true)
			Consistently(func() []string { return on.keys(ctx) }).WithTimeout(500 * time.Millisecond).Should(ConsistOf("a"))
			proxy.RefuseConnections(false)
			cleaned(ctx)
		})

		It("waits for a place in a full pool", func(ctx SpecContext) {
			narrow := connect(&redis.Options{
				Addr: proxy.Addr(), PoolSize: 1, ReadTimeout: 100 * time.Millisecond, PoolTimeout: 50 * time.Millisecond,
			})
			Expect(narrow.Ping(ctx).Err()).To(Succeed())
			abandon(ctx, redislock.New(narrow))
			taken := make(chan error, 1)
			go func() { taken <- narrow.BLPop(ctx, time.Second, "queue").Err() }()
			cleaned(ctx)
			Eventually(taken).WithTimeout(20 * time.Second).Should(Receive())
		})

		It("ends with the ttl", func(ctx SpecContext) {
			broken("release", 0, faultproxy.CutAfterRequestBytes(0))
			broken("obtain", 1, faultproxy.SwallowReply())
			locks := timingOut(100 * time.Millisecond)
			_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "a", 400*time.Millisecond, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Eventually(func() int { return requested("release") }).Should(BeNumerically(">", 1))
			time.Sleep(2 * time.Second) // the second sweep is past the ttl, too
			sent := requested("release")
			Consistently(func() int { return requested("release") }).WithTimeout(time.Second).Should(Equal(sent))
		})

		It("is waited for by Close, for a while", func(ctx SpecContext) {
			locks := timingOut(200 * time.Millisecond)
			abandon(ctx, locks)
			Expect(on.keys(ctx)).To(ConsistOf("a"))
			Expect(locks.Close()).To(Succeed())
			Expect(on.keys(ctx)).To(BeEmpty())
		})
	})

	Describe("Re-entry by a custom token", func() {
		var held *redislock.Lock
		me := &redislock.Options{Token: "me"}

		BeforeEach(func(ctx SpecContext) {
			held = obtain(ctx, locks, time.Minute, me, "held")
		})

		It("given up in flight releases what a late reply says was newly taken, and nothing else", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
			_, err := locks.ObtainMulti(within(ctx, 50*time.Millisecond), []string{"new", "held"}, time.Minute, me)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Eventually(func() []string { return on.keys(ctx) }).Should(ConsistOf("held"))
			Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
		})

		It("is not undone by the cleanup of an earlier one", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
			_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "new", time.Minute, me)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			lock := obtain(ctx, locks, time.Minute, me, "new")
			Consistently(func() []string { return on.keys(ctx) }).WithTimeout(500 * time.Millisecond).Should(ConsistOf("held", "new"))
			truthful(ctx, lock)
		})

		It("is not undone by a Release that was given up", func(ctx SpecContext) {
			proxy.CutAll()
			proxy.RefuseConnections(true)
			Expect(held.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			proxy.RefuseConnections(false)
			lock := obtain(ctx, locks, time.Minute, me, "held")
			Consistently(func() []string { return on.keys(ctx) }).WithTimeout(time.Second).Should(ConsistOf("held"))
			truthful(ctx, lock)
		})

		It("waits for a cleanup that is on the wire, but not past its ctx", func(ctx SpecContext) {
			broken("release", 1, faultproxy.DelayReply(300*time.Millisecond))
			Expect(held.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			_, err := locks.Obtain(within(ctx, 50*time.Millisecond), "held", time.Minute, me)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			truthful(ctx, obtain(ctx, locks, time.Minute, me, "held"))
			Expect(on.keys(ctx)).To(ConsistOf("held"))
		})

		It("given up without a reply releases nothing, for it may be an earlier hold's", func(ctx SpecContext) {
			broken("obtain", 1, faultproxy.SwallowReply())
			_, err := timingOut(100*time.Millisecond).Obtain(within(ctx, 50*time.Millisecond), "held", time.Minute, me)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Consistently(func() int { return requested("release") }).WithTimeout(1500 * time.Millisecond).Should(BeZero())
			Expect(held.Release(ctx)).To(Succeed())
		})
	})

	Describe("Refresh", func() {
		var lock *redislock.Lock

		// with obtains the lock through a client of its own.
		with := func(ctx context.Context, locks *redislock.Client) {
			GinkgoHelper()
			lock = obtain(ctx, locks, 10*time.Second, nil, "a", "b")
		}

		DescribeTable("succeeds in spite of it", func(ctx SpecContext, action faultproxy.Action) {
			with(ctx, timingOut(100*time.Millisecond))
			broken("refresh", 2, action)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(requested("refresh")).To(Equal(3))
			Expect(on.client.PTTL(ctx, "b").Val()).To(BeNumerically("~", time.Minute, time.Second))
			truthful(ctx, lock)
		},
			Entry("the reply is swallowed", faultproxy.SwallowReply()),
			Entry("the connection is cut", faultproxy.CutAfterReplyBytes(2)),
			Entry("the request is cut", faultproxy.CutAfterRequestBytes(30)),
			Entry("a black hole", faultproxy.BlackHole()),
			Entry("the server is not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")),
		)

		It("does not count a reply that came after the ttl", func(ctx SpecContext) {
			with(ctx, locks)
			broken("refresh", 1, faultproxy.DelayReply(150*time.Millisecond))
			Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).To(Equal(redislock.ErrNotObtained))
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		})

		DescribeTable("returns at once when ctx ends", func(ctx SpecContext, action faultproxy.Action) {
			with(ctx, timingOut(2*soon))
			broken("refresh", 1, action)
			start := time.Now()
			err := lock.Refresh(within(ctx, 50*time.Millisecond), time.Minute, nil)
			Expect(time.Since(start)).To(BeNumerically("<", soon))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			truthful(ctx, lock)
			proxy.CutAll()
		},
			Entry("the reply is swallowed", faultproxy.SwallowReply()),
			Entry("a black hole", faultproxy.BlackHole()),
		)

		It("fails after one round of resends without a strategy, and goes on with one", func(ctx SpecContext) {
			with(ctx, client(func(opt *redis.Options) { opt.MaxRetries = -1 }))
			refused := faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down")
			broken("refresh", 1, refused)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(ContainSubstring(`refresh "a" and 1 more: MASTERDOWN`)))
			broken("refresh", 5, refused)
			Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{
				RetryStrategy: redislock.LinearBackoff(time.Millisecond),
			})).To(Succeed())
			Expect(requested("refresh")).To(Equal(1 + 6))
		})

		It("does not go on for longer than the lock is valid", func(ctx SpecContext) {
			with(ctx, locks)
			Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
			until := lock.Until()
			broken("refresh", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
			Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{
				RetryStrategy: redislock.LinearBackoff(time.Millisecond),
			})).To(MatchError(ContainSubstring("MASTERDOWN")))
			Expect(time.Now()).To(BeTemporally("<", until.Add(soon)))
			Expect(lock.Until()).To(BeTemporally("==", until))
		})

		When("the server hangs, and ctx never ends", func() {
			It("returns when the lock is valid no longer", func(ctx SpecContext) {
				short := obtain(ctx, locks, 400*time.Millisecond, nil, "short")
				broken("refresh", 0, faultproxy.BlackHole())
				until := short.Until()
				err := short.Refresh(context.Background(), time.Minute, nil)
				Expect(time.Now()).To(And(BeTemporally(">", until), BeTemporally("<", until.Add(soon))))
				Expect(err).To(MatchError(redislock.ErrLapsed))
				Expect(err).To(MatchError(`redislock: refresh "short": redislock: the lease ran out unrenewed, and Redis has not answered the refresh`))
				Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
				Expect(err).NotTo(MatchError(context.Canceled))
				Expect(short.Until()).To(BeTemporally("==", until))
				proxy.CutAll()
			})

			It("is sent once even past Until, and waits a moment", func(ctx SpecContext) {
				short := obtain(ctx, locks, 50*time.Millisecond, nil, "short")
				Eventually(func() bool { return time.Now().After(short.Until()) }).Should(BeTrue())
				on.client.Set(ctx, "short", short.Token(), time.Minute)
				broken("refresh", 1, faultproxy.DelayReply(50*time.Millisecond))
				Expect(short.Refresh(context.Background(), time.Minute, nil)).To(Succeed())
				truthful(ctx, short)
			})

			It("counts an answer that comes a moment after Until", func(ctx SpecContext) {
				short := obtain(ctx, locks, 300*time.Millisecond, nil, "short")
				broken("refresh", 1, faultproxy.DelayReply(400*time.Millisecond))
				Expect(short.Refresh(context.Background(), time.Minute, nil)).To(Succeed())
				truthful(ctx, short)
			})

			It("goes on for as long as renewals prolong the lock", func(ctx SpecContext) {
				short := obtain(ctx, timingOut(1500*time.Millisecond), 500*time.Millisecond, nil, "short")
				kept, stop := short.KeepAlive(ctx)
				defer stop()
				proxy.Add(faultproxy.Rule{Match: func(args []string) bool {
					return running("refresh")(args) && args[len(args)-1] == "0" // no renewal
				}, Times: 1, Action: faultproxy.SwallowReply()})
				err := short.Refresh(context.Background(), time.Second, nil)
				Expect(err).To(MatchError(os.ErrDeadlineExceeded), "the ReadTimeout of the client")
				Expect(err).NotTo(MatchError(redislock.ErrLapsed))
				Expect(kept.Err()).NotTo(HaveOccurred())
			})

			It("does not wait for a turn for longer, and promises no more than the one ahead leaves", func(ctx SpecContext) {
				with(ctx, locks)
				broken("refresh", 1, faultproxy.DelayRequest(2*time.Second))
				Expect(lock.Refresh(within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
				until := lock.Until()
				sent := time.Now()
				Expect(lock.Refresh(context.Background(), time.Minute, nil)).To(Succeed())
				Expect(time.Now()).To(BeTemporally("<", until.Add(soon)))
				Expect(lock.Until()).To(BeTemporally(">", until))
				Expect(lock.Until()).To(BeTemporally("<", sent.Add(3*time.Second)), "the shorter one is on its way")
				Eventually(func() int { return executed("refresh") }).WithTimeout(3 * time.Second).Should(Equal(2))
				truthful(ctx, lock)
			})
		})

		It("is not kept from the wire by one that is lost there", func(ctx SpecContext) {
			with(ctx, timingOut(2*soon))
			broken("refresh", 1, faultproxy.SwallowReply())
			Expect(lock.Refresh(within(ctx, 50*time.Millisecond), 10*time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			Expect(lock.Refresh(within(ctx, soon), 10*time.Second, nil)).To(Succeed())
			Expect(lock.Refresh(within(ctx, soon), 5*time.Second, nil)).To(Succeed())
			truthful(ctx, lock)
			proxy.CutAll()
		})

		It("restores Until where a shorter one could not be sent", func(ctx SpecContext) {
			with(ctx, locks)
			until := lock.Until()
			disconnect(ctx)
			Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).NotTo(Succeed())
			Expect(lock.Until()).To(Equal(until))
		})

		It("lowers Until for a shorter ttl before it is sent", func(ctx SpecContext) {
			with(ctx, timingOut(100*time.Millisecond))
			broken("refresh", 0, faultproxy.SwallowReply())
			Expect(lock.Refresh(ctx, time.Second, nil)).NotTo(Succeed())
			truthful(ctx, lock)
		})

		When("a longer one overtakes a shorter one", func() {
			It("waits for the shorter one to end", func(ctx SpecContext) {
				with(ctx, locks)
				broken("refresh", 1, faultproxy.DelayRequest(200*time.Millisecond))
				Expect(lock.Refresh(within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
				Expect(requested("refresh")).To(Equal(1))
				Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
				Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, time.Second))
				Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(59400*time.Millisecond), time.Second))
				truthful(ctx, lock)
			})

			It("does not wait past its own ctx", func(ctx SpecContext) {
				with(ctx, timingOut(2*soon))
				broken("refresh", 1, faultproxy.BlackHole())
				Expect(lock.Refresh(within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
				start := time.Now()
				Expect(lock.Refresh(within(ctx, 50*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
				Expect(time.Since(start)).To(BeNumerically("<", soon))
				Expect(requested("refresh")).To(Equal(1))
				proxy.CutAll()
			})

			It("promises no more than the shorter one leaves, if that may still arrive", func(ctx SpecContext) {
				with(ctx, client(func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 100*time.Millisecond, -1 }))
				broken("refresh", 1, faultproxy.DelayRequest(400*time.Millisecond))
				Expect(lock.Refresh(ctx, 2*time.Second, nil)).NotTo(Succeed())
				Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
				Expect(executed("refresh")).To(Equal(1), "the shorter one is on its way")
				until := lock.Until()
				Eventually(func() int { return executed("refresh") }).Should(Equal(2))
				Eventually(func() time.Duration { return on.client.PTTL(ctx, "a").Val() }).Should(BeNumerically("<=", 2*time.Second))
				Expect(lock.Until()).To(Equal(until))
				truthful(ctx, lock)
			})
		})
	})

	Describe("Release", func() {
		var lock *redislock.Lock

		with := func(ctx context.Context, locks *redislock.Client) {
			GinkgoHelper()
			lock = obtain(ctx, locks, 10*time.Second, nil, "a", "b")
		}

		DescribeTable("succeeds in spite of it", func(ctx SpecContext, action faultproxy.Action) {
			with(ctx, timingOut(100*time.Millisecond))
			broken("release", 2, action)
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(requested("release")).To(Equal(3))
			Expect(on.keys(ctx)).To(BeEmpty())
		},
			Entry("the reply is swallowed, so that the next try finds the keys gone", faultproxy.SwallowReply()),
			Entry("the connection is cut in the reply", faultproxy.CutAfterReplyBytes(2)),
			Entry("the request is cut", faultproxy.CutAfterRequestBytes(30)),
			Entry("a black hole", faultproxy.BlackHole()),
			Entry("the server is not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")),
		)

		It("tells the loss if its first try left after Until", func(ctx SpecContext) {
			short := obtain(ctx, timingOut(100*time.Millisecond), 50*time.Millisecond, nil, "short")
			Eventually(func() bool { return time.Now().After(short.Until()) }).Should(BeTrue())
			on.client.Set(ctx, "short", short.Token(), time.Minute)
			broken("release", 1, faultproxy.SwallowReply())
			Expect(short.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
			Expect(requested("release")).To(Equal(2))
		})

		It("tells the loss that it finds with its first try", func(ctx SpecContext) {
			with(ctx, locks)
			on.client.Del(ctx, "a", "b")
			Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		})

		It("returns nil if an earlier call freed the keys without an answer", func(ctx SpecContext) {
			with(ctx, client(func(opt *redis.Options) { opt.MaxRetries = -1 }))
			broken("release", 1, faultproxy.CutAfterReplyBytes(0))
			Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("EOF")))
			Expect(lock.Release(ctx)).To(Succeed())
		})

		It("tells what an earlier call did that was given up, though Until has passed since", func(ctx SpecContext) {
			short := obtain(ctx, timingOut(2*soon), 200*time.Millisecond, nil, "short")
			broken("release", 1, faultproxy.DelayReply(400*time.Millisecond))
			Expect(short.Release(within(ctx, 300*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			Expect(short.Release(ctx)).To(Succeed())
			Expect(requested("release")).To(Equal(1), "the second call joins the first")
			Expect(short.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		})

		It("does not take credit for what it never sent", func(ctx SpecContext) {
			with(ctx, locks)
			disconnect(ctx)
			Expect(lock.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			on.client.Del(ctx, "a", "b")
			proxy.RefuseConnections(false)
			Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		})

		It("returns when ctx ends, and goes on in the background", func(ctx SpecContext) {
			with(ctx, timingOut(300*time.Millisecond))
			broken("release", 6, faultproxy.BlackHole()) // more often than MaxRetries
			start := time.Now()
			err := lock.Release(within(ctx, 50*time.Millisecond))
			Expect(time.Since(start)).To(BeNumerically("<", 290*time.Millisecond))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
			Expect(on.keys(ctx)).To(HaveLen(2))
			Eventually(func() []string { return on.keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
			Expect(lock.Release(ctx)).To(Succeed(), "the one in the background did it")
		})

		It("that joins one in the background returns as a first one would, and leaves that going on", func(ctx SpecContext) {
			with(ctx, locks)
			proxy.CutAll()
			proxy.RefuseConnections(true)
			Expect(lock.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			for range 3 {
				start := time.Now()
				err := lock.Release(context.Background())
				Expect(time.Since(start)).To(BeNumerically("<", soon))
				Expect(err).To(MatchError(HavePrefix(`redislock: release "a" and 1 more: `)))
				Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
				time.Sleep(200 * time.Millisecond)
			}
			proxy.RefuseConnections(false)
			Eventually(func() []string { return on.keys(ctx) }).WithTimeout(8 * time.Second).Should(BeEmpty())
			Expect(lock.Release(ctx)).To(Succeed(), "the one in the background did it")
			Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		})

		It("that joins one in the background begins the next round of that", func(ctx SpecContext) {
			with(ctx, locks)
			proxy.CutAll()
			proxy.RefuseConnections(true)
			Expect(lock.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			time.Sleep(2 * time.Second) // by now seconds lie between two rounds
			proxy.RefuseConnections(false)
			Expect(lock.Release(within(ctx, soon/2))).To(Succeed())
			Expect(requested("release")).To(Equal(1))
		})

		It("knows what an earlier round has freed, in whatever call", func(ctx SpecContext) {
			with(ctx, timingOut(100*time.Millisecond))
			swallowed := broken("release", 1, faultproxy.SwallowReply())
			Expect(lock.Release(within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
			Expect(swallowed.Count()).To(Equal(1))
			Expect(on.keys(ctx)).To(BeEmpty())
			proxy.CutAll()
			proxy.RefuseConnections(true)
			Expect(lock.Release(context.Background())).NotTo(Succeed())
			proxy.RefuseConnections(false)
			Expect(lock.Release(context.Background())).To(Succeed())
			Expect(lock.Release(context.Background())).To(Equal(redislock.ErrLockNotHeld))
		})

		It("waits a second for the answer when ctx had ended before", func(ctx SpecContext) {
			with(ctx, locks)
			slow := broken("release", 1, faultproxy.DelayReply(300*time.Millisecond))
			ended, cancel := context.WithCancel(ctx)
			cancel()
			Expect(lock.Release(ended)).To(Succeed())
			Expect(slow.Count()).To(Equal(1))
		})

		It("waits no longer than that, nor past Until", func(ctx SpecContext) {
			with(ctx, locks)
			short := obtain(ctx, locks, 300*time.Millisecond, nil, "short")
			broken("release", 0, faultproxy.BlackHole())
			ended, cancel := context.WithCancel(ctx)
			cancel()
			until := short.Until()
			Expect(short.Release(ended)).To(MatchError(context.Canceled))
			Expect(time.Now()).To(BeTemporally("<", until.Add(500*time.Millisecond)))
			start := time.Now()
			Expect(lock.Release(ended)).To(MatchError(context.Canceled))
			Expect(time.Since(start)).To(BeNumerically("~", 1250*time.Millisecond, 250*time.Millisecond))
			proxy.CutAll()
			Expect(proxy.Close()).To(Succeed())
		})
	})

	Describe("TTL, Attach and Inspect", func() {
		It("return at once when ctx ends, and are resent when they can be", func(ctx SpecContext) {
			lock := obtain(ctx, locks, time.Minute, nil, "a")
			broken("pttl", 1, faultproxy.CutAfterReplyBytes(0))
			broken("inspect", 1, faultproxy.CutAfterReplyBytes(0))
			Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
			Expect(locks.Inspect(ctx, "a")).To(HaveLen(1))

			broken("pttl", 1, faultproxy.BlackHole())
			broken("inspect", 2, faultproxy.BlackHole())
			start := time.Now()
			_, err := lock.TTL(within(ctx, 50*time.Millisecond))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).To(MatchError(ContainSubstring(`redislock: ttl "a"`)))
			_, err = locks.Inspect(within(ctx, 50*time.Millisecond), "a")
			Expect(err).To(MatchError(context.DeadlineExceeded))
			_, err = locks.Attach(within(ctx, 50*time.Millisecond), []string{"a"}, lock.Token())
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(time.Since(start)).To(BeNumerically("<", soon))
			proxy.CutAll()
		})
	})
})

var _ = describeOn(onServer, "While the server hangs", func(_ *onRedis) {
	It("every method returns when its ctx ends", func(ctx SpecContext) {
		server := startServer()
		client := connect(&redis.Options{Addr: server.Addr()})
		locks := redislock.New(client)
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		Expect(server.Pause()).To(Succeed())
		DeferCleanup(server.Resume)
		for _, method := range []struct {
			name string
			call func(context.Context) error
		}{
			{"Obtain", func(ctx context.Context) error { _, err := locks.Obtain(ctx, "b", time.Minute, nil); return err }},
			{"TTL", func(ctx context.Context) error { _, err := lock.TTL(ctx); return err }},
			{"Inspect", func(ctx context.Context) error { _, err := locks.Inspect(ctx, "a"); return err }},
			{"Attach", func(ctx context.Context) error { _, err := locks.Attach(ctx, []string{"a"}, "t"); return err }},
			{"Refresh", func(ctx context.Context) error { return lock.Refresh(ctx, time.Minute, nil) }},
			{"Release", lock.Release}, // the last, for it gives the lock up
		} {
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			err := method.call(limited)
			deadline, _ := limited.Deadline()
			late := time.Since(deadline)
			cancel()
			Expect(err).To(MatchError(context.DeadlineExceeded), method.name)
			Expect(late).To(BeNumerically("<", soon), method.name)
			AddReportEntry(method.name, late.String())
		}
		Expect(server.Resume()).To(Succeed())
		Eventually(func() []string { return client.Keys(ctx, "*").Val() }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})
