package redislock_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Explain", func(on *spec.Redis) {
	var locks *redislock.Client
	var seen *spec.Recorder
	keys := []string{"a", "b", "c"}

	BeforeEach(func() {
		seen = &spec.Recorder{}
		locks = redislock.New(on.Client, redislock.WithTracer(seen.Tracer()))
		DeferCleanup(locks.Close)
	})
	asked := func(proxy *faultproxy.Proxy) int { return proxy.Requests(spec.Running("blocker")) }
	throughProxy := func() (*redislock.Client, *faultproxy.Proxy) {
		GinkgoHelper()
		proxy := on.NewProxy()
		Expect(on.Client.ScriptLoad(context.Background(), spec.Source("blocker")).Err()).To(Succeed())
		locks := redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 5 * time.Second}))
		DeferCleanup(locks.Close)
		return locks, proxy
	}
	waiters := func(ctx context.Context, key string) int {
		statuses, err := locks.Inspect(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		return statuses[0].Waiters
	}
	// why returns the RefusedError of a refusal.
	why := func(err error) *redislock.RefusedError {
		GinkgoHelper()
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		var refused *redislock.RefusedError
		Expect(errors.As(err, &refused)).To(BeTrue(), "%v is a *RefusedError", err)
		return refused
	}

	It("is off by default", func(ctx SpecContext) {
		locks, proxy := throughProxy()
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, nil)
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(asked(proxy)).To(BeZero())
	})

	It("names the key, its holder, and for how long", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Metadata: "host 7"}, "b")
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		e := why(err)
		Expect(err).To(BeIdenticalTo(error(e)))
		Expect(e.Key).To(Equal("b"))
		Expect(e.Token).To(Equal(held.Token()))
		Expect(e.Metadata).To(Equal("host 7"))
		Expect(e.TTL).To(BeNumerically("~", time.Minute, time.Second))
		Expect(e.Ahead).To(BeZero())
		Expect(err.Error()).To(MatchRegexp(`^redislock: not obtained: "b" is held by %s… \(host 7\) for [\d.m]+s more$`, held.Token()[:6]))
		Expect(spec.EventsOf[redislock.Refused](seen)).To(Equal([]redislock.Refused{
			{Keys: keys, Try: 1, Key: e.Key, Holder: e.Token, Metadata: e.Metadata, TTL: e.TTL},
		}))
		Expect(spec.EventsOf[redislock.ObtainEnd](seen)[1].Err).To(BeIdenticalTo(err))
	})

	It("reports a key without expiry", func(ctx SpecContext) {
		on.Client.Set(ctx, "a", "someone", 0)
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Explain: true})
		Expect(why(err).TTL).To(Equal(time.Duration(-1)))
		Expect(err).To(MatchError(`redislock: not obtained: "a" is held by someon… without expiry`))
	})

	It("asks at the first and at the last refusal only", func(ctx SpecContext) {
		locks, proxy := throughProxy()
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		opt := &redislock.Options{Explain: true, RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(5*time.Millisecond), 4)}
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
		Expect(why(err).Key).To(Equal("b"))
		Expect(asked(proxy)).To(Equal(2))
		_, err = locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		Expect(why(err).Key).To(Equal("b"))
		Expect(asked(proxy)).To(Equal(3), "one try is both")
	})

	DescribeTable("asks in line at the first refusal, and at the end if that is one", func(ctx SpecContext, granted bool) {
		locks, proxy := throughProxy()
		held := spec.Obtain(ctx, locks, time.Minute, nil, "b")
		limited, cancel := context.WithTimeout(ctx, 2500*time.Millisecond) // the waiter gives three signs of life
		defer cancel()
		if granted {
			time.AfterFunc(2200*time.Millisecond, func() { _ = held.Release(ctx) })
		}
		lock, err := locks.ObtainMulti(limited, keys, time.Minute, &redislock.Options{Explain: true, Queue: true})
		if granted {
			Expect(err).NotTo(HaveOccurred())
			Expect(asked(proxy)).To(Equal(1))
			Expect(lock.Release(ctx)).To(Succeed())
			return
		}
		Expect(why(err).Token).To(Equal(held.Token()))
		Expect(asked(proxy)).To(Equal(2))
		Expect(proxy.Requests(spec.Running("obtain"))).To(BeNumerically(">=", 4))
	},
		Entry("refused", false),
		Entry("granted", true),
	)

	It("names the holder that blocks the last try", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, 100*time.Millisecond, &redislock.Options{Metadata: "first"}, "b")
		time.AfterFunc(50*time.Millisecond, func() { on.Client.Set(context.Background(), "b", "other second", time.Minute) })
		opt := &redislock.Options{Explain: true, RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(20*time.Millisecond), 10)}
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
		Expect(why(err).Metadata).To(Equal("second"))
		Expect(spec.EventsOf[redislock.Refused](seen)[0].Metadata).To(Equal("first"))
	})

	DescribeTable("names the holder soon after ctx has ended", func(ctx SpecContext, opt redislock.Options) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "b")
		opt.Explain = true
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := locks.ObtainMulti(limited, keys, time.Minute, &opt)
		Expect(time.Since(began)).To(BeNumerically("<", spec.Soon))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(why(err).Token).To(Equal(held.Token()))
	},
		Entry("polling", redislock.Options{RetryStrategy: redislock.LinearBackoff(60 * time.Millisecond)}),
		Entry("in line", redislock.Options{Queue: true}),
	)

	It("counts the callers ahead, for a caller in line and for one that is not", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		waiting, leave := context.WithCancel(ctx)
		for i := range 3 {
			go func() { _, _ = locks.Obtain(waiting, "b", time.Minute, &redislock.Options{Queue: true}) }()
			Eventually(waiters).WithArguments(ctx, "b").Should(Equal(i + 1))
		}
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		Expect(why(err).Ahead).To(Equal(3))
		Expect(err).To(MatchError(HaveSuffix(", 3 ahead in line")))

		limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		go func() {
			_, _ = locks.Obtain(waiting, "b", time.Minute, &redislock.Options{Queue: true, Metadata: "behind"})
		}()
		_, err = locks.ObtainMulti(limited, keys, time.Minute, &redislock.Options{Explain: true, Queue: true})
		Expect(why(err).Ahead).To(Or(Equal(3), Equal(4)), "the one behind may have come first")
		leave()
		Eventually(func() int { return len(spec.EventsOf[redislock.ObtainEnd](seen)) }).Should(Equal(7))
	})

	It("names a key that holds an empty string", func(ctx SpecContext) {
		on.Client.Set(ctx, "b", "", 0)
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		Expect(*why(err)).To(Equal(redislock.RefusedError{Key: "b", TTL: -1}))
		Expect(err).To(MatchError(`redislock: not obtained: "b" is held without expiry`))
	})

	It("quotes what a holder has stored if it could forge a line of a log", func(ctx SpecContext) {
		on.Client.Set(ctx, "b", "t\x1b[2J "+"me\nERROR forged", 0)
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		Expect(why(err).Metadata).To(Equal("me\nERROR forged"))
		Expect(err).To(MatchError(`redislock: not obtained: "b" is held by "t\x1b[2J" ("me\nERROR forged") without expiry`))
	})

	It("names the key that others wait for if nobody holds any", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		waiting, leave := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = locks.ObtainMulti(waiting, []string{"a", "c"}, time.Minute, &redislock.Options{Queue: true})
		}()
		Eventually(waiters).WithArguments(ctx, "c").Should(Equal(1))
		_, err := locks.Obtain(ctx, "c", time.Minute, &redislock.Options{Explain: true})
		Expect(*why(err)).To(Equal(redislock.RefusedError{Key: "c", Ahead: 1}))
		Expect(err).To(MatchError(`redislock: not obtained: others wait in line for "c", 1 of them before this call`))
		leave()
		<-ended
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("names no key if Redis does not answer", func(ctx SpecContext) {
		locks, proxy := throughProxy()
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		proxy.Add(faultproxy.Rule{Match: spec.Running("blocker"), Action: faultproxy.SwallowReply()})
		began := time.Now()
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		Expect(time.Since(began)).To(BeNumerically("<", spec.Soon))
		Expect(*why(err)).To(Equal(redislock.RefusedError{}))
		Expect(err).To(MatchError("redislock: not obtained"))
	})

	It("does not turn another error into a refusal", func(ctx SpecContext) {
		locks, proxy := throughProxy()
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Action: faultproxy.RefuseReply("ERR broken")})
		_, err := locks.ObtainMulti(ctx, keys, time.Minute, &redislock.Options{Explain: true})
		Expect(err).To(MatchError(ContainSubstring("ERR broken")))
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(asked(proxy)).To(BeZero())
	})

	It("finds the blocking key among keys with and without a line", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "x}y")
		_, err := locks.ObtainMulti(ctx, []string{"x}y", "a"}, time.Minute, &redislock.Options{Explain: true})
		Expect(why(err).Key).To(Equal("x}y"))
		Expect(why(err).Token).To(Equal(held.Token()))
	})

	It("explains a refusal of Do", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		err := locks.Do(ctx, keys, time.Minute, &redislock.Options{Explain: true}, func(context.Context) error { return nil })
		Expect(why(err).Key).To(Equal("b"))
	})
})
