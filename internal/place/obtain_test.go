package place_test

import (
	"context"
	"encoding"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeFaulty("Obtain", func(on *spec.FaultyRedis) {
	var locks *redislock.Client

	BeforeEach(func() {
		locks = on.ConnectBy(nil)
	})

	It("is granted although the first reply was swallowed", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.SwallowReply())
		lock := spec.Obtain(ctx, on.TimingOut(50*time.Millisecond), time.Minute, nil, "a", "b")
		Expect(on.Executed("obtain")).To(Equal(2))
		on.Truthful(ctx, lock)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("is granted although the connection was cut in the reply", func(ctx SpecContext) {
		on.Broken("obtain", 2, faultproxy.CutAfterReplyBytes(3))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		Expect(on.Executed("obtain")).To(Equal(3))
		on.Truthful(ctx, lock)
	})

	It("is granted although the connection was cut in the request", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.CutAfterRequestBytes(40))
		spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		Expect(on.Executed("obtain")).To(Equal(1))
	})

	It("counts the validity from when it was sent, although a hook copies the command after the reply", func(ctx SpecContext) {
		client := spec.Connect(&redis.Options{Addr: on.Proxy.Addr()})
		client.AddHook(&spec.AroundHook{After: func(cmd redis.Cmder) {
			for _, arg := range cmd.Args() {
				if m, is := arg.(encoding.BinaryMarshaler); is { // as go-redis does to write it
					_, _ = m.MarshalBinary()
				}
			}
		}})
		on.Broken("obtain", 1, faultproxy.DelayReply(200*time.Millisecond))
		on.Truthful(ctx, spec.Obtain(ctx, redislock.New(client), 5*time.Second, nil, "a"))
	})

	It("waits while the server is not ready for a moment", func(ctx SpecContext) {
		on.Broken("obtain", 2, faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"))
		spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(on.Requested("obtain")).To(Equal(3))
	})

	It("is never sent twice by go-redis behind our back", func(ctx SpecContext) {
		on.Broken("obtain", 0, faultproxy.CutAfterReplyBytes(0))
		never := on.ConnectBy(func(opt *redis.Options) { opt.MaxRetries = -1 })
		_, err := never.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring(`redislock: obtain "a" and 1 more: EOF`)))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(on.Requested("obtain")).To(Equal(1))
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty(), "what it took is cleaned up")
	})

	It("is sent as often as the client's MaxRetries allow, and then cleaned up", func(ctx SpecContext) {
		on.Broken("obtain", 0, faultproxy.CutAfterReplyBytes(0))
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("EOF")))
		Expect(on.Requested("obtain")).To(Equal(1 + 3))
		Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty())
	})

	It("does not return a lock that was granted too late, and gives it back", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		_, err := locks.Obtain(ctx, "a", 100*time.Millisecond, nil)
		Expect(err).To(spec.BeTooLate)
		Eventually(func() int { return on.Executed("release") }).Should(BeNumerically(">=", 1))
		Expect(locks.Close()).To(Succeed())
	})

	It("tries again after a grant that came too late", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		lock := spec.Obtain(spec.Within(ctx, 10*time.Second), locks, 100*time.Millisecond, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Millisecond),
		}, "a")
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		on.Truthful(ctx, lock)
		Expect(locks.Close()).To(Succeed())
	})

	It("gives back what a custom token was granted too late, before it tries again", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "me"}, "held")
		on.Broken("obtain", 1, faultproxy.DelayReply(150*time.Millisecond))
		_, err := locks.ObtainMulti(ctx, []string{"held", "new"}, 100*time.Millisecond, &redislock.Options{Token: "me"})
		Expect(err).To(spec.BeTooLate)
		Expect(on.Keys(ctx)).To(ConsistOf("held"))
		Expect(on.Executed("release")).To(Equal(1))
		Expect(held.TTL(ctx)).To(BeNumerically(">", 0))
	})

	It("gives back a grant that came too late, although an earlier sending took the keys", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.CutAfterReplyBytes(0))
		on.Broken("obtain", 1, faultproxy.DelayReply(300*time.Millisecond))
		on.Client.Set(ctx, "a", "t", time.Minute)
		late := make(chan struct{})
		go func() { // the keys outlast the ttl, as if the server had stood still
			defer close(late)
			Eventually(func() int { return on.Executed("obtain") }).WithPolling(time.Millisecond).Should(Equal(2))
			on.Client.Persist(ctx, "b")
		}()
		_, err := locks.Obtain(ctx, "b", 200*time.Millisecond, nil)
		Expect(err).To(spec.BeTooLate)
		<-late
		Eventually(func() []string { return on.Keys(ctx) }).Should(ConsistOf("a"))
		Expect(locks.Close()).To(Succeed())
	})

	It("gives back a grant that came too late, however often that takes", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayRequest(1100*time.Millisecond))
		on.Broken("release", 4, faultproxy.CutAfterRequestBytes(20))
		_, err := locks.Obtain(ctx, "a", time.Second, nil) // for so long, the release is resent
		Expect(err).To(spec.BeTooLate)
		Expect(on.Keys(ctx)).To(ConsistOf("a"))
		on.Client.Persist(ctx, "a")
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(2 * time.Second).Should(BeEmpty())
		Expect(on.Requested("release")).To(BeNumerically(">", 4))
	})

	It("gives back in the background what a custom token was granted too late and could not be given back at once", func(ctx SpecContext) {
		opt := &redislock.Options{Token: "me"}
		held := spec.Obtain(ctx, locks, time.Minute, opt, "held")
		on.Broken("obtain", 1, faultproxy.DelayRequest(1100*time.Millisecond))
		on.Broken("release", 4, faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down"))
		_, err := locks.ObtainMulti(ctx, []string{"held", "new"}, time.Second, opt)
		if !spec.Pipelined { // else one of the four is the shared script, and the last resend succeeds
			Expect(err).To(MatchError(ContainSubstring("MASTERDOWN")))
			on.Client.Persist(ctx, "new")
		}
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(spec.Soon).Should(ConsistOf("held"))
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("gives back what a custom token was granted too late even if a hook panics meanwhile", func(ctx SpecContext) {
		client := spec.Connect(&redis.Options{Addr: on.Proxy.Addr(), ReadTimeout: 5 * time.Second})
		var releases atomic.Int32
		client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
			if spec.IsRelease(cmd) && releases.Add(1) == 1 {
				panic("a hook")
			}
		}})
		on.Broken("obtain", 1, faultproxy.DelayRequest(1100*time.Millisecond))
		Expect(func() {
			_, _ = redislock.New(client).Obtain(ctx, "a", time.Second, &redislock.Options{Token: "me"})
		}).To(PanicWith("a hook"))
		on.Client.Persist(ctx, "a")
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(spec.Soon).Should(BeEmpty())
	})

	It("whose first sending comes in after the Release leaves nothing behind", func(ctx SpecContext) {
		on.Broken("obtain", 1, faultproxy.DelayRequest(300*time.Millisecond))
		lock := spec.Obtain(ctx, on.TimingOut(100*time.Millisecond), time.Minute, nil, "a")
		Expect(lock.Release(ctx)).To(Succeed())
		Eventually(func() []string { return on.Keys(ctx) }).Should(ConsistOf("a"))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	DescribeTable("returns at once when ctx ends, and leaves nothing behind",
		func(ctx SpecContext, action faultproxy.Action) {
			on.Broken("obtain", 1, action)
			locks := on.TimingOut(600 * time.Millisecond)
			Expect(on.Last.Echo(ctx, "hello").Err()).To(Succeed()) // opens a connection: the obtain must be sent before ctx ends
			limited := spec.Within(ctx, 50*time.Millisecond)
			start := time.Now()
			_, err := locks.ObtainMulti(limited, []string{"a", "b"}, time.Minute, nil)
			Expect(time.Since(start)).To(BeNumerically("<", 590*time.Millisecond))
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(on.Requested("release")).To(BeZero(), "nothing overtakes the obtain")
			Eventually(func() int { return on.Executed("release") }).Should(BeNumerically(">=", 1))
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
		},
		Entry("the reply is swallowed", faultproxy.SwallowReply()),
		Entry("the reply is delayed", faultproxy.DelayReply(200*time.Millisecond)),
		Entry("everything is swallowed", faultproxy.BlackHole()),
		Entry("the request arrives after the connection was given up", faultproxy.DelayRequest(900*time.Millisecond)),
	)

	It("leaves nothing behind if a hook returns the end of ctx in place of the reply", func(ctx SpecContext) {
		limited, end := context.WithCancel(ctx)
		client := spec.Connect(&redis.Options{Addr: on.Proxy.Addr()})
		client.AddHook(&late{end: end})
		on.Broken("obtain", 1, faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"))
		_, err := redislock.New(client).Obtain(limited, "a", time.Minute, nil)
		Expect(err).To(MatchError(context.Canceled))
		Expect(on.Executed("obtain")).To(Equal(1))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("is not sent any more when ctx has ended during a slow dial", func(ctx SpecContext) {
		on.Proxy.DelayDial(200 * time.Millisecond)
		_, err := locks.Obtain(spec.Within(ctx, 50*time.Millisecond), "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Consistently(func() int { return on.Requested("obtain") + on.Requested("release") }).
			WithTimeout(400 * time.Millisecond).Should(BeZero())
	})

	It("is not sent any more when ctx has ended while the pool was full", func(ctx SpecContext) {
		if spec.Pipelined {
			Skip("go-redis has other connections for pipelines")
		}
		narrow := spec.Connect(&redis.Options{Addr: on.Proxy.Addr(), PoolSize: 1})
		go narrow.BLPop(ctx, time.Second, "queue")
		Eventually(func() int { return on.Proxy.Requests(faultproxy.Command("blpop")) }).Should(Equal(1))
		_, err := redislock.New(narrow).Obtain(spec.Within(ctx, 50*time.Millisecond), "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Consistently(func() int { return on.Requested("obtain") + on.Requested("release") }).
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
			limited := spec.Within(ctx, 300*time.Millisecond)
			_, err := locks.ObtainMulti(limited, []string{"a", "b"}, time.Minute, opt)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			return err
		}
		for name, opt := range strategies {
			It("says that nobody listens, "+name, func(ctx SpecContext) {
				dead := redislock.New(spec.Connect(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: 100}))
				DeferCleanup(dead.Close)
				Expect(outage(ctx, dead, opt)).To(MatchError(syscall.ECONNREFUSED))
			})

			It("says that there was no answer while go-redis itself still dials, "+name, func(ctx SpecContext) {
				dead := redislock.New(spec.Connect(&redis.Options{Addr: "127.0.0.1:1"}))
				DeferCleanup(dead.Close)
				Expect(outage(ctx, dead, opt)).To(MatchError(ContainSubstring("no answer from Redis")))
			})

			It("says that the server does not answer, "+name, func(ctx SpecContext) {
				on.Broken("obtain", 0, faultproxy.BlackHole())
				Expect(outage(ctx, locks, opt)).To(MatchError(ContainSubstring("the last try: " +
					`redislock: obtain "a" and 1 more: no answer from Redis`)))
				on.Proxy.CutAll()
			})
		}

		It("says so also after a wait in line", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, time.Minute, nil, "a")
			limited := spec.Within(ctx, 2500*time.Millisecond)
			failed := make(chan error, 1)
			go func() {
				_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
				failed <- err
			}()
			Eventually(func() []string { return spec.Line(ctx, on.Client, "a") }).Should(HaveLen(1))
			spec.AwaitSubscriptions(ctx, on.Client, "a")
			on.Broken("obtain", 0, faultproxy.BlackHole())
			spec.Wake(ctx, on.Client, "a", 0)
			var err error
			Eventually(failed).WithTimeout(5 * time.Second).Should(Receive(&err))
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).To(MatchError(ContainSubstring("no answer from Redis")))
			on.Proxy.CutAll()
		})

		It("reports only the refusal if that was the last answer", func(ctx SpecContext) {
			spec.Obtain(ctx, locks, time.Minute, nil, "a")
			_, err := locks.Obtain(spec.Within(ctx, 300*time.Millisecond), "a", time.Minute, &redislock.Options{
				RetryStrategy: redislock.LinearBackoff(time.Minute),
			})
			Expect(err).To(MatchError("redislock: not obtained: context deadline exceeded"))
		})
	})

	It("needs no cleanup when it could not be sent", func(ctx SpecContext) {
		on.Proxy.RefuseConnections(true)
		_, err := locks.Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(HaveOccurred())
		on.Proxy.RefuseConnections(false)
		Consistently(func() int { return on.Requested("release") }).Should(BeZero())
	})
})

// late is a hook that ends a ctx when the first obtain has succeeded, and returns the error of that ctx.
type late struct {
	spec.AroundHook
	end context.CancelFunc
}

func (l *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && spec.Running("obtain")(spec.Words(cmd)) {
			l.end()
			return ctx.Err()
		}
		return err
	}
}
