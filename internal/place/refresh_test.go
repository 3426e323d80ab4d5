package place_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeFaulty("Refresh", func(on *spec.FaultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.ConnectBy(nil)
	})

	var lock *redislock.Lock

	// with obtains the lock through a client of its own.
	with := func(ctx context.Context, locks *redislock.Client) {
		GinkgoHelper()
		lock = spec.Obtain(ctx, locks, 10*time.Second, nil, "a", "b")
	}

	DescribeTable("succeeds in spite of it", func(ctx SpecContext, action faultproxy.Action) {
		with(ctx, on.TimingOut(100*time.Millisecond))
		on.Broken("refresh", 2, action)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(on.Requested("refresh")).To(Equal(3))
		Expect(on.Client.PTTL(ctx, "b").Val()).To(BeNumerically("~", time.Minute, time.Second))
		on.Truthful(ctx, lock)
	},
		Entry("the reply is swallowed", faultproxy.SwallowReply()),
		Entry("the connection is cut", faultproxy.CutAfterReplyBytes(2)),
		Entry("the request is cut", faultproxy.CutAfterRequestBytes(30)),
		Entry("a black hole", faultproxy.BlackHole()),
		Entry("the server is not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")),
	)

	It("leaves metadata that an earlier sending of the obtain does not replace", func(ctx SpecContext) {
		late := on.Broken("obtain", 1, faultproxy.RepeatRequestAfter(100*time.Millisecond))
		lock = spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Metadata: "one"}, "a", "b")
		Expect(late.Count()).To(Equal(1))
		Expect(lock.Refresh(ctx, 10*time.Second, &redislock.Options{Metadata: "two"})).To(Succeed())
		Eventually(func() time.Duration { return on.Client.PTTL(ctx, "b").Val() }).Should(BeNumerically(">", 50*time.Second))
		Expect(on.Client.MGet(ctx, "a", "b").Val()).To(HaveEach(lock.Token() + " two"))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("does not count a reply that came after the ttl", func(ctx SpecContext) {
		with(ctx, locks)
		on.Broken("refresh", 1, faultproxy.DelayReply(150*time.Millisecond))
		Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).To(Equal(redislock.ErrNotObtained))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})

	It("does not count one that came after the ttl of another, which may be executed later", func(ctx SpecContext) {
		with(ctx, locks)
		on.Broken("refresh", 1, faultproxy.DelayRequest(time.Second))
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // ends when the refresh is on its way
			defer GinkgoRecover()
			Eventually(func() int { return on.Requested("refresh") }).Should(Equal(1))
			cancel()
		}()
		Expect(lock.Refresh(limited, 100*time.Millisecond, nil)).To(MatchError(context.Canceled))
		on.Broken("refresh", 1, faultproxy.DelayReply(150*time.Millisecond))
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Equal(redislock.ErrNotObtained))
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	})

	DescribeTable("returns at once when ctx ends", func(ctx SpecContext, action faultproxy.Action) {
		with(ctx, on.TimingOut(2*spec.Soon))
		on.Broken("refresh", 1, action)
		start := time.Now()
		err := lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Minute, nil)
		Expect(time.Since(start)).To(BeNumerically("<", spec.Soon))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		on.Truthful(ctx, lock)
		on.Proxy.CutAll()
	},
		Entry("the reply is swallowed", faultproxy.SwallowReply()),
		Entry("a black hole", faultproxy.BlackHole()),
	)

	It("fails after one round of resends without a strategy, and goes on with one", func(ctx SpecContext) {
		with(ctx, on.ConnectBy(func(opt *redis.Options) { opt.MaxRetries = -1 }))
		refused := faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down")
		on.Broken("refresh", 1, refused)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(ContainSubstring(`refresh "a" and 1 more: MASTERDOWN`)))
		on.Broken("refresh", 5, refused)
		Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Millisecond),
		})).To(Succeed())
		Expect(on.Requested("refresh")).To(Equal(1 + 6))
	})

	It("does not go on for longer than the lock is valid", func(ctx SpecContext) {
		with(ctx, locks)
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
		until := lock.Until()
		on.Broken("refresh", 0, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		Expect(lock.Refresh(ctx, time.Hour, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Millisecond),
		})).To(MatchError(ContainSubstring("MASTERDOWN")))
		Expect(time.Now()).To(BeTemporally("<", until.Add(spec.Soon)))
		Expect(lock.Until()).To(BeTemporally("==", until))
	})

	When("the server hangs, and ctx never ends", func() {
		It("returns when the lock is valid no longer", func(ctx SpecContext) {
			short := spec.Obtain(ctx, locks, 400*time.Millisecond, nil, "short")
			on.Broken("refresh", 0, faultproxy.BlackHole())
			until := short.Until()
			err := short.Refresh(context.Background(), time.Minute, nil)
			Expect(time.Now()).To(And(BeTemporally(">", until), BeTemporally("<", until.Add(spec.Soon))))
			Expect(err).To(MatchError(redislock.ErrLapsed))
			Expect(err).To(MatchError(`redislock: refresh "short": redislock: the lease ran out unrenewed, and Redis has not answered the refresh`))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			Expect(err).NotTo(MatchError(context.Canceled))
			Expect(short.Until()).To(BeTemporally("==", until))
			on.Proxy.CutAll()
		})

		It("returns no later if it had to wait for its turn", func(ctx SpecContext) {
			with(ctx, locks)
			on.Broken("refresh", 0, faultproxy.BlackHole())
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), 300*time.Millisecond, nil)).To(MatchError(context.DeadlineExceeded))
			until := lock.Until()
			Expect(lock.Refresh(context.Background(), time.Minute, nil)).To(MatchError(redislock.ErrLapsed))
			Expect(time.Now()).To(BeTemporally("<", until.Add(spec.Bound(on.Kind, 251*time.Millisecond, 400*time.Millisecond))))
			on.Proxy.CutAll()
		})

		It("is sent once even past Until, and waits a moment", func(ctx SpecContext) {
			short := spec.Obtain(ctx, locks, 50*time.Millisecond, nil, "short")
			Eventually(func() bool { return time.Now().After(short.Until()) }).Should(BeTrue())
			on.Client.Set(ctx, "short", short.Token(), time.Minute)
			on.Broken("refresh", 1, faultproxy.DelayReply(50*time.Millisecond))
			Expect(short.Refresh(context.Background(), time.Minute, nil)).To(Succeed())
			on.Truthful(ctx, short)
		})

		It("counts an answer that comes a moment after Until", func(ctx SpecContext) {
			short := spec.Obtain(ctx, locks, 300*time.Millisecond, nil, "short")
			on.Broken("refresh", 1, faultproxy.DelayReply(400*time.Millisecond))
			Expect(short.Refresh(context.Background(), time.Minute, nil)).To(Succeed())
			on.Truthful(ctx, short)
		})

		It("goes on for as long as renewals prolong the lock", func(ctx SpecContext) {
			short := spec.Obtain(ctx, on.TimingOut(1500*time.Millisecond), 500*time.Millisecond, nil, "short")
			kept, stop := short.KeepAlive(ctx)
			defer stop()
			on.Proxy.Add(faultproxy.Rule{Match: func(args []string) bool {
				return spec.Running("refresh")(args) && args[len(args)-3] == "1000" // no renewal
			}, Times: 1, Action: faultproxy.SwallowReply()})
			err := short.Refresh(context.Background(), time.Second, nil)
			Expect(err).To(MatchError(os.ErrDeadlineExceeded), "the ReadTimeout of the client")
			Expect(err).NotTo(MatchError(redislock.ErrLapsed))
			Expect(kept.Err()).NotTo(HaveOccurred())
		})

		It("does not wait for a turn for longer, and promises no more than the one ahead leaves", func(ctx SpecContext) {
			with(ctx, locks)
			on.Broken("refresh", 1, faultproxy.DelayRequest(2*time.Second))
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			until := lock.Until()
			sent := time.Now()
			Expect(lock.Refresh(context.Background(), time.Minute, nil)).To(Succeed())
			Expect(time.Now()).To(BeTemporally("<", until.Add(spec.Soon)))
			Expect(lock.Until()).To(BeTemporally(">", until))
			Expect(lock.Until()).To(BeTemporally("<", sent.Add(3*time.Second)), "the shorter one is on its way")
			Eventually(func() int { return on.Executed("refresh") }).WithTimeout(3 * time.Second).Should(Equal(2))
			on.Truthful(ctx, lock)
		})
	})

	It("promises no more than one that was executed after it and answered before it", func(ctx SpecContext) {
		with(ctx, locks)
		on.Broken("refresh", 1, faultproxy.DelayRequest(1080*time.Millisecond))
		Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
		on.Broken("refresh", 1, faultproxy.DelayReply(170*time.Millisecond))
		Expect(lock.Refresh(ctx, 30*time.Second, nil)).To(Succeed()) // sent at 0.99 s, although its turn had not come
		Expect(on.Executed("refresh")).To(Equal(2))
		on.Truthful(ctx, lock)
	})

	When("one is held up before it is sent", func() {
		var hold atomic.Bool

		BeforeEach(func(ctx SpecContext) {
			client := spec.Connect(&redis.Options{Addr: on.Proxy.Addr()})
			client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
				if spec.Running("refresh")(spec.Words(cmd)) && hold.Swap(false) {
					time.Sleep(300 * time.Millisecond)
				}
			}})
			held := redislock.New(client)
			DeferCleanup(held.Close)
			with(ctx, held)
			hold.Store(true)
		})

		It("does not bring back a validity that the next one may have shortened", func(ctx SpecContext) {
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			on.Broken("refresh", 1, faultproxy.SwallowReply())
			Expect(lock.Refresh(spec.Within(ctx, 100*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			time.Sleep(300 * time.Millisecond)
			on.Truthful(ctx, lock)
			on.Proxy.CutAll()
		})

		It("does not bring back a lock that the next one has found lost", func(ctx SpecContext) {
			Expect(on.Client.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
			Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), 50*time.Millisecond, nil)).To(MatchError(context.DeadlineExceeded))
			time.Sleep(60 * time.Millisecond)
			Expect(lock.Refresh(ctx, 50*time.Millisecond, nil)).To(MatchError(redislock.ErrNotObtained))
			time.Sleep(300 * time.Millisecond)
			Expect(lock.Until()).To(BeTemporally("<", time.Now()))
		})
	})

	DescribeTable("does not shorten the ttl of the next lock with its token when it is executed late",
		func(ctx SpecContext, token string, givesUp bool) {
			locks = on.ConnectBy(func(opt *redis.Options) { opt.ContextTimeoutEnabled = givesUp })
			lock := spec.Obtain(ctx, locks, 10*time.Second, &redislock.Options{Token: token}, "a")
			on.Broken("refresh", 1, faultproxy.DelayRequest(300*time.Millisecond))
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			next := spec.Obtain(ctx, locks, 10*time.Second, &redislock.Options{Token: lock.Token()}, "a")
			Eventually(func() int { return on.Executed("refresh") }).Should(Equal(1))
			on.Truthful(ctx, next)
		},
		Entry("a custom one", "mine", false),
		Entry("a custom one, with ContextTimeoutEnabled", "mine", true),
		Entry("a random one, which the caller passes on", "", false),
	)

	It("does not hold up an obtain with its token that began before it", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		spec.Obtain(ctx, locks, time.Minute, opt, "a")
		on.Broken("refresh", 0, faultproxy.DelayReply(10*time.Millisecond))
		end := spec.Within(ctx, spec.Soon)
		var wait sync.WaitGroup
		for range 2 { // at any time, one of them is under way
			handle, err := locks.Attach(ctx, []string{"a"}, "mine")
			Expect(err).NotTo(HaveOccurred())
			wait.Go(func() {
				for end.Err() == nil {
					_ = handle.Refresh(end, time.Minute, nil)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		_, err := locks.Obtain(end, "a", time.Minute, opt)
		Expect(err).NotTo(HaveOccurred())
		wait.Wait()
	})

	It("does not hold up an obtain with its token past Close", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "mine"}
		lock := spec.Obtain(ctx, locks, time.Minute, opt, "a")
		on.Broken("refresh", 1, faultproxy.BlackHole())
		Expect(lock.Refresh(spec.Within(ctx, 200*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
		closed := time.AfterFunc(50*time.Millisecond, func() { _ = locks.Close() })
		DeferCleanup(closed.Stop)
		start := time.Now()
		_, err := locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrClosed))
		Expect(time.Since(start)).To(BeNumerically("<", spec.Soon))
		on.Proxy.CutAll()
	})

	It("is not held back by one that is lost on the wire", func(ctx SpecContext) {
		soon := spec.Bound(on.Kind, spec.Soon, 4*spec.Soon)
		with(ctx, on.TimingOut(2*soon))
		on.Broken("refresh", 1, faultproxy.SwallowReply())
		Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), 10*time.Second, nil)).To(MatchError(context.DeadlineExceeded))
		Expect(lock.Refresh(spec.Within(ctx, soon), 10*time.Second, nil)).To(Succeed())
		Expect(lock.Refresh(spec.Within(ctx, soon), 5*time.Second, nil)).To(Succeed())
		on.Truthful(ctx, lock)
		on.Proxy.CutAll()
	})

	It("restores Until where a shorter one could not be sent", func(ctx SpecContext) {
		with(ctx, locks)
		until := lock.Until()
		on.Disconnect(ctx)
		Expect(lock.Refresh(ctx, 100*time.Millisecond, nil)).NotTo(Succeed())
		Expect(lock.Until()).To(Equal(until))
	})

	It("lowers Until for a shorter ttl before it is sent", func(ctx SpecContext) {
		with(ctx, on.TimingOut(100*time.Millisecond))
		on.Broken("refresh", 0, faultproxy.SwallowReply())
		Expect(lock.Refresh(ctx, time.Second, nil)).NotTo(Succeed())
		on.Truthful(ctx, lock)
	})

	When("a longer one overtakes a shorter one", func() {
		It("waits for the shorter one to end", func(ctx SpecContext) {
			with(ctx, locks)
			on.Broken("refresh", 1, faultproxy.DelayRequest(200*time.Millisecond))
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			Expect(on.Requested("refresh")).To(Equal(1))
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(on.Client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, time.Second))
			Expect(lock.Until()).To(BeTemporally("~", time.Now().Add(59400*time.Millisecond), time.Second))
			on.Truthful(ctx, lock)
		})

		It("does not wait past its own ctx", func(ctx SpecContext) {
			with(ctx, on.TimingOut(2*spec.Soon))
			on.Broken("refresh", 1, faultproxy.BlackHole())
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Second, nil)).To(MatchError(context.DeadlineExceeded))
			start := time.Now()
			Expect(lock.Refresh(spec.Within(ctx, 50*time.Millisecond), time.Minute, nil)).To(MatchError(context.DeadlineExceeded))
			Expect(time.Since(start)).To(BeNumerically("<", spec.Soon))
			Expect(on.Requested("refresh")).To(Equal(1))
			on.Proxy.CutAll()
		})

		It("promises no more than the shorter one leaves, if that may still arrive", func(ctx SpecContext) {
			with(ctx, on.ConnectBy(func(opt *redis.Options) { opt.ReadTimeout, opt.MaxRetries = 100*time.Millisecond, -1 }))
			on.Broken("refresh", 1, faultproxy.DelayRequest(400*time.Millisecond))
			Expect(lock.Refresh(ctx, 2*time.Second, nil)).NotTo(Succeed())
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(on.Executed("refresh")).To(Equal(1), "the shorter one is on its way")
			until := lock.Until()
			Eventually(func() int { return on.Executed("refresh") }).Should(Equal(2))
			Eventually(func() time.Duration { return on.Client.PTTL(ctx, "a").Val() }).Should(BeNumerically("<=", 2*time.Second))
			Expect(lock.Until()).To(Equal(until))
			on.Truthful(ctx, lock)
		})
	})
})
