package transport_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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

var _ = spec.DescribeOnRedis("After a panic of a hook,", func(on *spec.Redis) {
	var hook *failing
	var locks *redislock.Client

	BeforeEach(func(ctx SpecContext) {
		hook = &failing{}
		on.Client.AddHook(hook)
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})

	DescribeTable("Refresh of a kept lock can be called again", func(ctx SpecContext, fail func()) {
		lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		hook.set(fail)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			_ = lock.Refresh(context.Background(), time.Second, nil)
		}()
		Eventually(ended).Should(BeClosed())
		hook.set(nil)
		again := make(chan error, 1)
		go func() { again <- lock.Refresh(context.Background(), time.Second, nil) }()
		Eventually(again).WithTimeout(3 * time.Second).Should(Receive(BeNil()))
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(lock.Release(ctx)).To(Succeed())
	},
		Entry("panic", func() { panic("a hook") }),
		Entry("Goexit", runtime.Goexit),
	)

	It("Release tells the truth", func(ctx SpecContext) {
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed()) // the server knows the script
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		hook.set(func() { panic("a hook") })
		Expect(func() { _ = lock.Release(ctx) }).To(Panic())
		hook.set(nil)
		Expect(on.Keys(ctx)).To(BeEmpty(), "the first call freed it")
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("Release does not panic for the release that goes on in the background", func(ctx SpecContext) {
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed()) // the server knows the script
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		var answers atomic.Int32
		hook.set(func() {
			switch answers.Add(1) {
			case 2: // that of the background
				time.Sleep(50 * time.Millisecond)
				fallthrough
			case 1:
				panic("a hook")
			}
		})
		Expect(func() { _ = lock.Release(ctx) }).To(Panic())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(answers.Load()).To(BeNumerically(">=", 3))
	})

	It("Do has sent its release", func(ctx SpecContext) {
		var armed atomic.Bool
		on.Client.AddHook(&spec.AroundHook{Before: func(redis.Cmder) {
			if armed.CompareAndSwap(true, false) {
				panic("a hook")
			}
		}})
		Expect(func() {
			_ = locks.Do(ctx, []string{"a"}, time.Minute, nil, func(context.Context) error {
				armed.Store(true)
				return nil
			})
		}).To(Panic())
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(3 * time.Second).Should(BeEmpty())
	})
})

var _ = spec.DescribeOnRedis("A hook that calls runtime.Goexit in the background", func(on *spec.Redis) {
	It("does not hang a second Release", func(ctx SpecContext) {
		proxy := on.NewProxy()
		client := spec.Connect(&redis.Options{
			Addr: proxy.Addr(), DB: on.Client.Options().DB, MaxRetries: -1, ReadTimeout: 200 * time.Millisecond,
		})
		var armed atomic.Bool
		client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
			if spec.IsRelease(cmd) && armed.CompareAndSwap(true, false) {
				runtime.Goexit()
			}
		}})
		locks := redislock.New(client)
		lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
		fault := proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Action: faultproxy.SwallowReply()})
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		Expect(lock.Release(short)).To(MatchError(context.DeadlineExceeded))
		armed.Store(true)
		Eventually(armed.Load).WithTimeout(5*time.Second).Should(BeFalse(), "the next round")
		fault.Remove()
		again := make(chan error, 1)
		go func() {
			defer close(again)
			again <- lock.Release(context.Background())
		}()
		Eventually(again).WithTimeout(5 * time.Second).Should(Or(Receive(), BeClosed()))
	})

	It("does not end the cleanup of an obtain", func(ctx SpecContext) {
		var hook failing
		on.Client.AddHook(&hook)
		var releases atomic.Int32
		on.Client.AddHook(&spec.AroundHook{Before: func(cmd redis.Cmder) {
			if spec.IsRelease(cmd) && releases.Add(1) == 1 {
				runtime.Goexit()
			}
		}})
		locks := redislock.New(on.Client)
		spec.Obtain(ctx, locks, time.Minute, nil, "a") // the server knows the script
		Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
		var once sync.Once
		hook.set(func() { once.Do(func() { panic("a hook") }) })
		Expect(func() { _, _ = locks.Obtain(ctx, "a", 20*time.Second, nil) }).To(Panic())
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

var _ = spec.DescribeOnRedis("With separate calls,", func(on *spec.Redis) {
	It("a lease that runs out because there was no connection does not look cancelled", func(ctx SpecContext) {
		for i, opts := range [][]redislock.ClientOption{nil, {redislock.WithSeparateCalls()}} {
			proxy, err := faultproxy.New(on.Addr)
			Expect(err).NotTo(HaveOccurred())
			client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, MaxRetries: -1})
			locks := redislock.New(client, opts...)
			lock := spec.Obtain(ctx, locks, 400*time.Millisecond, nil, fmt.Sprint("key-", i))
			kept, stop := lock.KeepAlive(ctx)
			proxy.DelayDial(10 * time.Second)
			proxy.CutAll()
			Eventually(kept.Done()).WithTimeout(2 * time.Second).Should(BeClosed())
			cause := context.Cause(kept)
			Expect(cause).To(MatchError(redislock.ErrLapsed))
			Expect(errors.Is(cause, context.Canceled)).To(BeFalse(), "%v", cause)
			stop()
			Expect(proxy.Close()).To(Succeed())
			Expect(locks.Close()).To(Succeed())
		}
	})
})

var _ = spec.DescribeOnRedis("Renewals", func(on *spec.Redis) {
	It("go on at once when a network is back that swallowed those of many locks", func(ctx SpecContext) {
		proxy := on.NewProxy()
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, ReadTimeout: 10 * time.Second, PoolSize: 100})
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		for i := range 30 {
			lock := spec.Obtain(ctx, locks, time.Duration(600+10*i)*time.Millisecond, nil, fmt.Sprint("short-", i))
			_, stop := lock.KeepAlive(ctx)
			defer stop()
		}
		long := spec.Obtain(ctx, locks, 4*time.Second, nil, "long")
		kept, stop := long.KeepAlive(ctx)
		defer stop()
		time.Sleep(900 * time.Millisecond)
		fault := proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.SwallowReply()})
		time.Sleep(1200 * time.Millisecond)
		fault.Remove()
		left, lost := time.Until(long.Until()), proxy.Requests(spec.Running("refresh"))
		time.Sleep(time.Until(long.Until()) - 50*time.Millisecond)
		GinkgoWriter.Printf("network back with %v left after %d lost renewals, %d sent since\n", left, fault.Count(), proxy.Requests(spec.Running("refresh"))-lost)
		Consistently(kept.Done()).WithTimeout(500 * time.Millisecond).ShouldNot(BeClosed())
	})
})

var _ = spec.DescribeOnRedis("On a Ring with a hook that rewrites keys,", func(on *spec.Redis) {
	var ring *redis.Ring
	BeforeEach(func() {
		addrs := map[string]string{}
		for _, name := range []string{"one", "two", "three"} {
			addrs[name] = on.Addr
		}
		db := 0
		ring = redis.NewRing(&redis.RingOptions{
			Addrs:  addrs,
			Dialer: on.Client.Options().Dialer,
			NewClient: func(opt *redis.Options) *redis.Client { // each shard in a database of its own
				db++
				opt.DB = db
				return redis.NewClient(opt)
			},
		})
		DeferCleanup(func(ctx SpecContext) {
			_ = ring.ForEachShard(ctx, func(ctx context.Context, c *redis.Client) error { return c.FlushDB(ctx).Err() })
			_ = ring.Close()
		})
	})

	It("several keys of one lock are locked where everybody looks for them", func(ctx SpecContext) {
		hook := &spec.PrefixHook{Prefix: func(context.Context) string { return "tenant:" }}
		ring.AddHook(hook)
		locks := redislock.New(ring)
		DeferCleanup(locks.Close)
		for i := range 40 {
			a, b := fmt.Sprintf("a{%d}", i), fmt.Sprintf("b{%d}", i)
			both := spec.Obtain(ctx, locks, time.Minute, nil, a, b)
			_, err := locks.Obtain(ctx, b, time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained), "%s is held by the lock on %s and %s, until %v", b, a, b, both.Until())
		}
	})

	It("a hook that restores the keys afterwards is also detected", func(ctx SpecContext) {
		restore := &restoring{}
		ring.AddHook(restore)
		locks := redislock.New(ring)
		DeferCleanup(locks.Close)
		Expect(contendAsTenants(ctx, locks, "a", "b", "c")).To(BeEmpty())
	})
})

// restoring puts a prefix before every key while a command is sent.
type restoring struct{}

func (*restoring) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*restoring) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (*restoring) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		args := cmd.Args()
		var own []any
		for i := range args[2].(int) {
			own = append(own, args[3+i])
			args[3+i] = spec.ByTenant(ctx) + args[3+i].(string)
		}
		defer copy(args[3:], own)
		return next(ctx, cmd)
	}
}
