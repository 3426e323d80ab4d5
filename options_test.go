package redislock_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// next returns the first n waits of a strategy.
func next(s redislock.RetryStrategy, n int) []time.Duration {
	waits := make([]time.Duration, n)
	for i := range waits {
		waits[i] = s.NextBackoff()
	}
	return waits
}

var _ = Describe("Retry strategies", func() {
	const ms = time.Millisecond

	DescribeTable("wait", func(s redislock.RetryStrategy, want ...time.Duration) {
		Expect(next(s, len(want))).To(Equal(want))
	},
		Entry("never", redislock.NoRetry(), time.Duration(0), time.Duration(0)),
		Entry("linearly", redislock.LinearBackoff(time.Second), time.Second, time.Second, time.Second),
		Entry("exponentially", redislock.ExponentialBackoff(0, 0), 4*ms, 8*ms, 16*ms, 32*ms),
		Entry("exponentially within bounds", redislock.ExponentialBackoff(10*ms, 100*ms),
			10*ms, 10*ms, 16*ms, 32*ms, 64*ms, 100*ms, 100*ms),
		Entry("exponentially within bounds that cross", redislock.ExponentialBackoff(100*ms, 50*ms),
			100*ms, 100*ms, 100*ms, 100*ms, 100*ms, 50*ms, 50*ms),
		Entry("up to a limit", redislock.LimitRetry(redislock.LinearBackoff(time.Second), 2), time.Second, time.Second, time.Duration(0), time.Duration(0)),
		Entry("not at all for a limit of 0", redislock.LimitRetry(redislock.LinearBackoff(time.Second), 0), time.Duration(0)),
		Entry("not at all for a negative limit", redislock.LimitRetry(redislock.LinearBackoff(time.Second), -1), time.Duration(0)),
		Entry("not at all for a limit on nil", redislock.LimitRetry(nil, 2), time.Duration(0), time.Duration(0)),
		Entry("not at all for a jitter on nil", redislock.Jitter(nil, 0.5), time.Duration(0), time.Duration(0)),
		Entry("not at all for both on nil", redislock.Jitter(redislock.LimitRetry(nil, 2), 0.5), time.Duration(0)),
		Entry("as before with no jitter", redislock.Jitter(redislock.LinearBackoff(time.Second), 0), time.Second, time.Second),
		Entry("as before with an impossible jitter", redislock.Jitter(redislock.LinearBackoff(time.Second), math.NaN()), time.Second),
	)

	It("grow no further than 2^26 ms", func() {
		waits := next(redislock.ExponentialBackoff(0, 0), 100)
		Expect(waits[23:26]).To(Equal([]time.Duration{1 << 25 * ms, 1 << 26 * ms, 1 << 26 * ms}))
		Expect(waits[99]).To(Equal(1 << 26 * ms))
	})

	It("are spread by Jitter evenly, within the fraction", func() {
		s := redislock.Jitter(redislock.LinearBackoff(time.Second), 0.25)
		low, high := 0, 0
		for _, wait := range next(s, 1000) {
			Expect(wait).To(BeNumerically("~", time.Second, 250*ms))
			if wait < 875*ms {
				low++
			}
			if wait > 1125*ms {
				high++
			}
		}
		Expect(low).To(BeNumerically("~", 250, 100))
		Expect(high).To(BeNumerically("~", 250, 100))
	})

	It("are never stopped by Jitter, and stop when the strategy inside it does", func() {
		Expect(next(redislock.Jitter(redislock.LinearBackoff(1), 7), 100)).To(HaveEach(BeNumerically(">=", 1)))
		Expect(next(redislock.Jitter(redislock.LinearBackoff(math.MaxInt64), 1), 100)).To(HaveEach(BeNumerically(">=", 1)))
		Expect(next(redislock.Jitter(redislock.NoRetry(), 1), 2)).To(HaveEach(BeZero()))
	})
})

var _ = spec.DescribeOnRedis("Waiting by a strategy", func(on *spec.Redis) {
	var locks *redislock.Client
	var held *redislock.Lock
	var sent *spec.CallCount

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		held = spec.Obtain(ctx, locks, time.Minute, nil, "a")
		sent = spec.CountCalls(on.Client)
	})

	It("tries as often as the strategy says, and no more", func(ctx SpecContext) {
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{
			RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(time.Millisecond), 4),
		})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(sent.Count()).To(Equal(5))
	})

	DescribeTable("tries once where a strategy limits or spreads nil", func(ctx SpecContext, s redislock.RetryStrategy) {
		_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: s})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
		Expect(sent.Count()).To(Equal(1))
	},
		Entry("LimitRetry", redislock.LimitRetry(nil, 3)),
		Entry("Jitter", redislock.Jitter(nil, 0.5)),
	)

	It("starts afresh with every call, so that Options can be shared", func(ctx SpecContext) {
		shared := &redislock.Options{RetryStrategy: redislock.LimitRetry(
			redislock.Jitter(redislock.ExponentialBackoff(0, time.Millisecond), 0.5), 3)}
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				defer GinkgoRecover()
				_, err := locks.Obtain(ctx, "a", time.Minute, shared)
				Expect(err).To(Equal(redislock.ErrNotObtained))
			})
		}
		wait.Wait()
		Expect(sent.Count()).To(Equal(5 * 4))
	})

	It("uses a custom strategy as it is", func(ctx SpecContext) {
		own := &spec.Countdown{Left: 2}
		opt := &redislock.Options{RetryStrategy: own}
		_, err := locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		_, err = locks.Obtain(ctx, "a", time.Minute, opt)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(sent.Count()).To(Equal(3 + 1))
	})

	It("gets the lock once it is released", func(ctx SpecContext) {
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
			got <- err
		}()
		Eventually(sent.Count).Should(BeNumerically(">", 3))
		Expect(got).NotTo(Receive())
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(got).Should(Receive(BeNil()))
	})

	It("ends with ctx, and reports its error and cause", func(ctx SpecContext) {
		cause := errors.New("shutting down")
		ended, cancel := context.WithCancelCause(ctx)
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ended, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Hour)})
			got <- err
		}()
		Eventually(sent.Count).Should(Equal(1))
		cancel(cause)
		var err error
		Eventually(got).Should(Receive(&err))
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).To(MatchError(cause))
	})

	It("ends after one ttl where ctx has no deadline", func() {
		start := time.Now()
		_, err := locks.Obtain(context.Background(), "a", 50*time.Millisecond, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(time.Millisecond),
		})
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(time.Since(start)).To(BeNumerically(">=", 50*time.Millisecond))
	})

	It("ends with ErrClosed when the Client is closed", func(ctx SpecContext) {
		got := make(chan error, 1)
		go func() {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Hour)})
			got <- err
		}()
		Eventually(sent.Count).Should(Equal(1))
		Expect(locks.Close()).To(Succeed())
		Eventually(got).Should(Receive(Equal(redislock.ErrClosed)))
	})
})

var _ = Describe("ProcessMetadata", func() {
	It("describes this process, now, on one line of JSON", func() {
		text := redislock.ProcessMetadata()
		Expect(text).NotTo(ContainSubstring("\n"))
		var info struct {
			Host, Program string
			PID           int
			Started, Now  time.Time
		}
		Expect(json.Unmarshal([]byte(text), &info)).To(Succeed())
		host, err := os.Hostname()
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Host).To(Equal(host))
		Expect(info.PID).To(Equal(os.Getpid()))
		Expect(info.Program).NotTo(BeEmpty())
		Expect(info.Now).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(info.Started).To(BeTemporally("<=", info.Now))
	})

	It("tells the time of each call", func() {
		before := redislock.ProcessMetadata()
		Eventually(redislock.ProcessMetadata).ShouldNot(Equal(before))
	})
})

var _ = spec.DescribeOnRedis("Fencing tokens", func(on *spec.Redis) {
	var locks *redislock.Client
	fenced := &redislock.Options{FenceKey: "fence"}

	BeforeEach(func() {
		locks = redislock.New(on.Client)
	})

	It("are 0 without FenceKey", func(ctx SpecContext) {
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").FenceToken()).To(BeZero())
	})

	It("rise with every obtain, re-entry included, and are kept without expiry", func(ctx SpecContext) {
		last := int64(0)
		for i := range 20 {
			lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "fence", Token: "t" + strconv.Itoa(i/2)}, "a")
			Expect(lock.FenceToken()).To(BeNumerically(">", last))
			last = lock.FenceToken()
			Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(strconv.FormatInt(last, 10)))
			Expect(on.Client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)))
			if i%2 == 1 {
				Expect(lock.Release(ctx)).To(Succeed())
			}
		}
		Expect(on.Keys(ctx)).To(ConsistOf("fence"))
	})

	It("go on rising after the counter was lost", func(ctx SpecContext) {
		before := spec.Obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()
		Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
		time.Sleep(time.Millisecond) // a new counter begins at the server's time
		Expect(spec.Obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()).To(BeNumerically(">", before))
	})

	It("go on rising while the counter is ahead of the clock", func(ctx SpecContext) {
		on.Client.Set(ctx, "fence", "9007199254740989", 0)
		Expect(spec.Obtain(ctx, locks, time.Minute, fenced, "a").FenceToken()).To(BeNumerically("==", 9007199254740990))
		Expect(on.Client.Get(ctx, "fence").Val()).To(Equal("9007199254740990"))
	})

	It("are not minted by a refusal", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "a")
		_, err := locks.Obtain(ctx, "a", time.Minute, fenced)
		Expect(err).To(Equal(redislock.ErrNotObtained))
		Expect(on.Keys(ctx)).To(ConsistOf("a"))
	})

	DescribeTable("are refused before anything is written",
		func(ctx SpecContext, counter string) {
			on.Client.Set(ctx, "fence", counter, 0)
			_, err := locks.Obtain(ctx, "a", time.Minute, fenced)
			Expect(err).To(MatchError(ContainSubstring(`fence key "fence" does not hold an integer below 2^53-1`)))
			Expect(on.Keys(ctx)).To(ConsistOf("fence"))
			Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(counter))
		},
		Entry("no number", "many"),
		Entry("a fraction", "1.5"),
		Entry("an exponent", "1e3"),
		Entry("hexadecimal", "0x10"),
		Entry("empty", ""),
		Entry("at the limit", "9007199254740991"),
		Entry("past it", "99999999999999999999999"),
	)
})

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
		return spec.Refusal(err)
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
		limited, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
		defer cancel()
		for i := range 3 {
			time.AfterFunc(time.Duration(i+1)*500*time.Millisecond, func() {
				defer GinkgoRecover()
				spec.Wake(ctx, on.Client, "b", 0)
			})
		}
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
		if on.Kind == spec.InMemory { // 20 ms are left for the last question, which a busy machine does not always send in time
			Expect(asked(proxy)).To(Equal(2))
		}
		Expect(asked(proxy)).To(BeNumerically("<=", 2))
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
