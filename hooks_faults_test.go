package redislock_test

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
	"github.com/redislock/redislock/internal/faultproxy"
)

// around is a hook that runs what it is given before and after each command, in a pipeline or not.
type around struct{ before, after func(cmd redis.Cmder) }

func (a *around) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer a.each(a.after, cmds...)
		a.each(a.before, cmds...)
		return next(ctx, cmds)
	}
}
func (a *around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer a.each(a.after, cmd)
		a.each(a.before, cmd)
		return next(ctx, cmd)
	}
}

func (a *around) each(look func(cmd redis.Cmder), cmds ...redis.Cmder) {
	if look != nil {
		for _, cmd := range cmds {
			look(cmd)
		}
	}
}

var _ = describe("After a panic of a hook,", func(on *onRedis) {
	var hook *failing
	var locks *redislock.Client

	BeforeEach(func(ctx SpecContext) {
		hook = &failing{}
		on.client.AddHook(hook)
		locks = redislock.New(on.client)
		DeferCleanup(locks.Close)
	})

	DescribeTable("Refresh of a kept lock can be called again", func(ctx SpecContext, fail func()) {
		lock := obtain(ctx, locks, time.Second, nil, "a")
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
		Expect(obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed()) // the server knows the script
		lock := obtain(ctx, locks, time.Minute, nil, "a")
		hook.set(func() { panic("a hook") })
		Expect(func() { _ = lock.Release(ctx) }).To(Panic())
		hook.set(nil)
		Expect(on.keys(ctx)).To(BeEmpty(), "the first call freed it")
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("Release does not panic for the release that goes on in the background", func(ctx SpecContext) {
		Expect(obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed()) // the server knows the script
		lock := obtain(ctx, locks, time.Minute, nil, "a")
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
		on.client.AddHook(&around{before: func(redis.Cmder) {
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
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(3 * time.Second).Should(BeEmpty())
	})
})

var _ = describe("A hook that calls runtime.Goexit in the background", func(on *onRedis) {
	It("does not hang a second Release", func(ctx SpecContext) {
		proxy := on.newProxy()
		client := connect(&redis.Options{
			Addr: proxy.Addr(), DB: on.client.Options().DB, MaxRetries: -1, ReadTimeout: 200 * time.Millisecond,
		})
		var armed atomic.Bool
		client.AddHook(&around{before: func(cmd redis.Cmder) {
			if isRelease(cmd) && armed.CompareAndSwap(true, false) {
				runtime.Goexit()
			}
		}})
		locks := redislock.New(client)
		lock := obtain(ctx, locks, 20*time.Second, nil, "a")
		fault := proxy.Add(faultproxy.Rule{Match: running("release"), Action: faultproxy.SwallowReply()})
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
		on.client.AddHook(&hook)
		var releases atomic.Int32
		on.client.AddHook(&around{before: func(cmd redis.Cmder) {
			if isRelease(cmd) && releases.Add(1) == 1 {
				runtime.Goexit()
			}
		}})
		locks := redislock.New(on.client)
		obtain(ctx, locks, time.Minute, nil, "a") // the server knows the script
		Expect(on.client.FlushDB(ctx).Err()).To(Succeed())
		var once sync.Once
		hook.set(func() { once.Do(func() { panic("a hook") }) })
		Expect(func() { _, _ = locks.Obtain(ctx, "a", 20*time.Second, nil) }).To(Panic())
		Eventually(func() []string { return on.keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

var _ = describe("With separate calls,", func(on *onRedis) {
	It("a lease that runs out because there was no connection does not look cancelled", func(ctx SpecContext) {
		for i, opts := range [][]redislock.ClientOption{nil, {redislock.WithSeparateCalls()}} {
			proxy, err := faultproxy.New(on.addr)
			Expect(err).NotTo(HaveOccurred())
			client := connect(&redis.Options{Addr: proxy.Addr(), DB: on.client.Options().DB, MaxRetries: -1})
			locks := redislock.New(client, opts...)
			lock := obtain(ctx, locks, 400*time.Millisecond, nil, fmt.Sprint("key-", i))
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

var _ = describe("Renewals", func(on *onRedis) {
	It("go on at once when a network is back that swallowed those of many locks", func(ctx SpecContext) {
		proxy := on.newProxy()
		client := connect(&redis.Options{Addr: proxy.Addr(), DB: on.client.Options().DB, ReadTimeout: 10 * time.Second, PoolSize: 100})
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		for i := range 30 {
			lock := obtain(ctx, locks, time.Duration(600+10*i)*time.Millisecond, nil, fmt.Sprint("short-", i))
			_, stop := lock.KeepAlive(ctx)
			defer stop()
		}
		long := obtain(ctx, locks, 4*time.Second, nil, "long")
		kept, stop := long.KeepAlive(ctx)
		defer stop()
		time.Sleep(900 * time.Millisecond)
		fault := proxy.Add(faultproxy.Rule{Match: running("refresh"), Action: faultproxy.SwallowReply()})
		time.Sleep(1200 * time.Millisecond)
		fault.Remove()
		left, lost := time.Until(long.Until()), proxy.Requests(running("refresh"))
		time.Sleep(time.Until(long.Until()) - 50*time.Millisecond)
		GinkgoWriter.Printf("network back with %v left after %d lost renewals, %d sent since\n", left, fault.Count(), proxy.Requests(running("refresh"))-lost)
		Consistently(kept.Done()).WithTimeout(500 * time.Millisecond).ShouldNot(BeClosed())
	})
})

var _ = describe("On a Ring with a hook that rewrites keys,", func(on *onRedis) {
	var ring *redis.Ring
	BeforeEach(func() {
		addrs := map[string]string{}
		for _, name := range []string{"one", "two", "three"} {
			addrs[name] = on.addr
		}
		db := 0
		ring = redis.NewRing(&redis.RingOptions{
			Addrs:  addrs,
			Dialer: on.client.Options().Dialer,
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
		hook := &prefixing{prefix: func(context.Context) string { return "tenant:" }}
		ring.AddHook(hook)
		locks := redislock.New(ring)
		DeferCleanup(locks.Close)
		for i := range 40 {
			a, b := fmt.Sprintf("a{%d}", i), fmt.Sprintf("b{%d}", i)
			both := obtain(ctx, locks, time.Minute, nil, a, b)
			_, err := locks.Obtain(ctx, b, time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrNotObtained), "%s is held by the lock on %s and %s, until %v", b, a, b, both.Until())
		}
	})

	It("a hook that restores the keys afterwards is also detected", func(ctx SpecContext) {
		restore := &restoring{}
		ring.AddHook(restore)
		locks := redislock.New(ring)
		DeferCleanup(locks.Close)
		Expect(contendAsTenants(ctx, locks, 400*time.Millisecond, "a", "b", "c")).To(BeEmpty())
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
			args[3+i] = byTenant(ctx) + args[3+i].(string)
		}
		defer copy(args[3:], own)
		return next(ctx, cmd)
	}
}

// isRelease reports whether a command is the script by its hash; hooks see those of the handshake as well.
func isRelease(cmd redis.Cmder) bool { return isScript(cmd, "release") }

// isRefresh is isRelease for the script of a refresh.
func isRefresh(cmd redis.Cmder) bool { return isScript(cmd, "refresh") }

func isScript(cmd redis.Cmder, name string) bool {
	return cmd.Name() == "evalsha" && running(name)([]string{"evalsha", cmd.Args()[1].(string)})
}
