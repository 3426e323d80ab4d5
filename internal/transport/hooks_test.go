package transport_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// unhashing is a hook that sends a single script by its source, once it has seen that, and never by its hash.
type unhashing struct {
	spec.PipelineCount
	sources sync.Map // by hash
}

func (u *unhashing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch args := cmd.Args(); cmd.Name() {
		case "eval":
			u.sources.Store(fmt.Sprintf("%x", sha1.Sum([]byte(args[1].(string)))), args[1])
		case "evalsha":
			if source, known := u.sources.Load(args[1]); known {
				args[0], args[1] = "eval", source
			}
		}
		return next(ctx, cmd)
	}
}

// contendAsTenants lets goroutines of two tenants contend for the same keys for a moment, some of them kept, and
// returns what went wrong.
func contendAsTenants(ctx context.Context, locks *redislock.Client, keys ...string) []string {
	const ttl = 2 * time.Second
	var holders [2][16]atomic.Int32
	var mu sync.Mutex
	var problems []string
	report := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	end := time.Now().Add(600 * time.Millisecond)
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			tenant := i % 2
			ctx := spec.WithTenant(ctx, fmt.Sprintf("tenant-%d:", tenant))
			for n := i; time.Now().Before(end); n++ {
				at := n / 2 % len(keys)
				lock, err := locks.Obtain(ctx, keys[at], ttl, nil)
				if err == redislock.ErrNotObtained {
					time.Sleep(4 * time.Millisecond) // or fake time would stand still
					continue
				} else if err != nil {
					report("obtain: %v", err)
					return
				}
				if holding := holders[tenant][at].Add(1); holding != 1 {
					report("%d of tenant %d hold %s", holding, tenant, keys[at])
				}
				if n%7 == 0 {
					kept, stop := lock.KeepAlive(ctx)
					time.Sleep(ttl / 2)
					if kept.Err() != nil {
						report("kept: %v", context.Cause(kept))
					}
					stop()
				}
				holders[tenant][at].Add(-1)
				if err := lock.Release(ctx); err != nil {
					report("release: %v", err)
				}
			}
		})
	}
	wait.Wait()
	return problems
}

var _ = spec.DescribeOnRedis("A hook that rewrites keys", func(on *spec.Redis) {
	var hook *spec.PrefixHook

	It("by a value of ctx keeps tenants apart, and the holders of each tenant", func(ctx SpecContext) {
		hook = &spec.PrefixHook{Prefix: spec.ByTenant}
		on.Client.AddHook(hook)
		locks := redislock.New(on.Client)
		Expect(contendAsTenants(ctx, locks, "a", "b")).To(BeEmpty())
		Expect(hook.Pipelined.Load()).To(BeZero())
		Expect(hook.Unprefixed.Load()).To(BeZero(), "renewals carry the values of the ctx they were asked with")
		Expect(locks.Close()).To(Succeed())
	})

	It("that sees only single commands is never bypassed", func(ctx SpecContext) {
		hook = &spec.PrefixHook{Prefix: spec.AppPrefix, AloneOnly: true}
		on.Client.AddHook(hook)
		locks := redislock.New(on.Client)
		Expect(contendAsTenants(ctx, locks, "a", "b")).To(SatisfyAny(BeEmpty(), HaveEach(ContainSubstring("hold"))))
		Expect(locks.Close()).To(Succeed())
		for _, key := range on.Keys(ctx) {
			Expect(key).To(HavePrefix("app:"))
		}
	})

	It("is noticed even if it changes only how a script is sent", func(ctx SpecContext) {
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		unhash := &unhashing{}
		on.Client.AddHook(unhash)
		showing := redislock.New(on.Client, redislock.WithSeparateCalls())
		Expect(spec.Obtain(ctx, showing, time.Minute, nil, "a").Release(ctx)).To(Succeed(), "it sees the sources")
		locks := redislock.New(on.Client)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		var wait sync.WaitGroup
		for i := range 100 {
			wait.Go(func() {
				defer GinkgoRecover()
				Expect(spec.Obtain(ctx, locks, time.Minute, nil, fmt.Sprint("key-", i)).Release(ctx)).To(Succeed())
			})
		}
		wait.Wait()
		_, together := unhash.Counts()
		Expect(together).To(BeZero())
		Expect(locks.Close()).To(Succeed())
	})

	DescribeTable("of a Ring is never passed by", func(ctx SpecContext, opts ...redislock.ClientOption) {
		other := redis.NewClient(on.Client.Options())
		DeferCleanup(other.Close)
		ring := redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"one": on.Addr, "two": on.Addr, "three": on.Addr}, DB: on.Client.Options().DB,
			Dialer: on.Client.Options().Dialer,
		})
		DeferCleanup(ring.Close)
		hook = &spec.PrefixHook{Prefix: spec.ByTenant}
		ring.AddHook(hook)
		locks := redislock.New(ring, opts...)
		Expect(contendAsTenants(ctx, locks, "a", "b", "c")).To(BeEmpty())
		Expect(hook.Alone.Load()).To(BeNumerically(">", 100))
		Expect(locks.Close()).To(Succeed())
	},
		Entry("by itself"),
		Entry("with WithSeparateCalls", redislock.WithSeparateCalls()),
	)

	It("does not end a kept lock, however long the ReadTimeout", func(ctx SpecContext) {
		for _, timeout := range []time.Duration{-1, 0, time.Minute} {
			client := spec.Connect(&redis.Options{Addr: on.Addr, DB: on.Client.Options().DB, ReadTimeout: timeout})
			hook = &spec.PrefixHook{Prefix: spec.AppPrefix}
			client.AddHook(hook)
			locks := redislock.New(client)
			lock := spec.Obtain(ctx, locks, 400*time.Millisecond, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			Consistently(kept.Done()).WithTimeout(900 * time.Millisecond).ShouldNot(BeClosed())
			Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
			stop()
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(locks.Close()).To(Succeed())
		}
	})
})

var _ = spec.DescribeOnRedis("WithSeparateCalls", func(on *spec.Redis) {
	It("sends every call by itself, through the hooks of the client", func(ctx SpecContext) {
		hook := &spec.PrefixHook{Prefix: func(context.Context) string { return "" }}
		on.Client.AddHook(hook)
		locks := redislock.New(on.Client, nil, redislock.WithSeparateCalls())
		var wait sync.WaitGroup
		for i := range 100 {
			wait.Go(func() {
				defer GinkgoRecover()
				lock := spec.Obtain(ctx, locks, time.Second, nil, fmt.Sprint("key-", i))
				kept, stop := lock.KeepAlive(ctx)
				defer stop()
				time.Sleep(1200 * time.Millisecond)
				Expect(context.Cause(kept)).NotTo(HaveOccurred())
				Expect(lock.Release(ctx)).To(Succeed())
			})
		}
		wait.Wait()
		Expect(hook.Pipelined.Load()).To(BeZero())
		Expect(hook.Alone.Load()).To(BeNumerically(">=", 300), "obtain, release and the renewals")
		Expect(locks.Close()).To(Succeed())
	})

	It("resends what was not answered", func(ctx SpecContext) {
		proxy := on.NewProxy()
		proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Times: 2, Action: faultproxy.CutAfterReplyBytes(0)})
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB})
		locks := redislock.New(client, redislock.WithSeparateCalls())
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed(), "it freed the key itself")
	})
})

// failing is a hook that does what it is told, once the command has been answered.
type failing struct{ with atomic.Pointer[func()] }

func (f *failing) set(with func()) { f.with.Store(&with) }

func (f *failing) fail() {
	if with := f.with.Load(); with != nil && *with != nil {
		(*with)()
	}
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f.fail()
		return err
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		f.fail()
		return err
	}
}

var _ = spec.DescribeOnRedis("A hook that panics", func(on *spec.Redis) {
	var hook *failing
	var locks *redislock.Client
	cause := errors.New("the hook's own")

	BeforeEach(func(ctx SpecContext) {
		hook = &failing{}
		on.Client.AddHook(hook)
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})
	DescribeTable("does so in the goroutine of the caller, and leaves nothing behind",
		func(ctx SpecContext, callers int, cancellable bool) {
			hook.set(func() { panic(cause) })
			var caught atomic.Int32
			var wait sync.WaitGroup
			for i := range callers {
				wait.Go(func() {
					defer func() {
						if recover() == any(cause) {
							caught.Add(1)
						}
					}()
					callCtx := context.Background()
					if cancellable {
						callCtx = ctx
					}
					_, _ = locks.Obtain(callCtx, fmt.Sprint("key-", i), time.Minute, nil)
				})
			}
			wait.Wait()
			hook.set(nil)
			Expect(int(caught.Load())).To(Equal(callers))
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
			Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
		},
		Entry("by itself", 1, false),
		Entry("by itself, with a ctx that can be cancelled", 1, true),
		Entry("together with others", 100, false),
		Entry("together with others, with a ctx that can be cancelled", 100, true),
	)

	It("ends the goroutine of the caller where it calls runtime.Goexit", func(ctx SpecContext) {
		hook.set(runtime.Goexit)
		for _, callers := range []int{1, 100} {
			var returned atomic.Int32
			var wait sync.WaitGroup
			for i := range callers {
				wait.Go(func() {
					_, _ = locks.Obtain(ctx, fmt.Sprint("key-", i), time.Minute, nil)
					returned.Add(1)
				})
			}
			wait.Wait()
			Expect(returned.Load()).To(BeZero())
		}
		hook.set(nil)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a").Release(ctx)).To(Succeed())
	})

	It("in a renewal costs that renewal", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		var panics atomic.Int32
		hook.set(func() {
			if panics.Add(1) <= 3 {
				panic(cause)
			}
		})
		Eventually(panics.Load).WithTimeout(3 * time.Second).Should(BeNumerically(">", 3))
		Expect(kept.Err()).NotTo(HaveOccurred())
		hook.set(func() { panic(cause) })
		Eventually(kept.Done()).WithTimeout(3 * time.Second).Should(BeClosed())
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
		Expect(context.Cause(kept)).To(MatchError(ContainSubstring("a hook of the Redis client panicked: the hook's own")))
	})
})

var _ = spec.DescribeOnRedis("ContextTimeoutEnabled", func(on *spec.Redis) {
	It("does not let a kept lock lapse whose renewals are answered in time", func(ctx SpecContext) {
		proxy := on.NewProxy()
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, ContextTimeoutEnabled: true})
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		lock := spec.Obtain(ctx, locks, 300*time.Millisecond, nil, "a")
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed()) // loads the script, which would take a second reply
		proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.DelayReply(90 * time.Millisecond)})
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Consistently(kept.Done()).WithTimeout(time.Second).ShouldNot(BeClosed())
	})
})

var _ = Describe("A server that has gone away", func() {
	It("does not stay in memory", func(ctx SpecContext) {
		spec.RequireServer()
		server, err := redistest.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		ring := redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"shard": "first"},
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) { // whatever name the server goes by
				return (&net.Dialer{}).DialContext(ctx, network, server.Addr())
			},
		})
		DeferCleanup(ring.Close)
		locks := redislock.New(ring)
		DeferCleanup(locks.Close)
		const shards = 30
		names := 0
		replace := func() { // the shards by others, as often as that
			for range shards {
				var wait sync.WaitGroup
				for k := range 20 {
					wait.Go(func() {
						defer GinkgoRecover()
						Expect(spec.Obtain(ctx, locks, time.Minute, nil, fmt.Sprint(k)).Release(ctx)).To(Succeed())
					})
				}
				wait.Wait()
				names++
				ring.SetAddrs(map[string]string{"shard": fmt.Sprint("name-", names)})
			}
		}
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return int64(stats.HeapAlloc)
		}
		replace() // whatever is made once is made now
		before := heap()
		replace()
		Eventually(func() int64 { return (heap() - before) / shards }).WithTimeout(10*time.Second).
			Should(BeNumerically("<", 5_000), "bytes for each; its connection pool alone has 20,000")
	})
})
