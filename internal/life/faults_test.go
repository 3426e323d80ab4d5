package life_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("KeepAlive through a faulty network", func(on *spec.Redis) {
	var proxy *faultproxy.Proxy
	var proxied *redislock.Client

	BeforeEach(func() {
		proxy = on.NewProxy()
		Expect(on.Client.ScriptLoad(context.Background(), spec.Source("refresh")).Err()).To(Succeed())
		proxied = redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 2 * time.Second, DialTimeout: time.Second}))
		DeferCleanup(proxied.Close)
	})

	DescribeTable("loses nothing while the fault is shorter than the validity left", func(ctx SpecContext, action faultproxy.Action, times int) {
		lock := spec.Obtain(ctx, proxied, 2*time.Second, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		fault := proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: times, Action: action})
		Consistently(kept.Err).WithTimeout(3500 * time.Millisecond).Should(Succeed())
		Expect(fault.Count()).To(Equal(times))
		until, left := lock.Until(), on.Client.PTTL(ctx, "f").Val()
		Expect(until).To(BeTemporally("<=", time.Now().Add(left+time.Millisecond)))
	},
		Entry("replies swallowed", faultproxy.SwallowReply(), 3),
		Entry("connections cut", faultproxy.CutAfterReplyBytes(0), 5),
		on.InFakeTime(
			Entry("black holes", faultproxy.BlackHole(), 3),
			Entry("not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"), 5),
			Entry("late", faultproxy.DelayReply(500*time.Millisecond), 3),
		),
	)

	It("ends no later than Until when no reply comes any more, and wraps the last error", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, proxied, 500*time.Millisecond, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down")})
		until := lock.Until()
		cause := ends(kept)
		Expect(time.Now()).To(BeTemporally("~", until, 100*time.Millisecond))
		Expect(cause).To(MatchError(ContainSubstring(`the lease ran out unrenewed: "f": MASTERDOWN`)))
		Expect(cause).To(MatchError(redislock.ErrLapsed))
		Expect(cause).NotTo(MatchError(redislock.ErrLockNotHeld))
	})

	It("is not held up by a renewal in flight, which does no harm", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, proxied, 500*time.Millisecond, nil, "f")
		late := proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.DelayRequest(900 * time.Millisecond)})
		_, stop := lock.KeepAlive(ctx)
		Eventually(late.Hit()).Should(BeClosed())
		start := time.Now()
		stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(time.Since(start)).To(BeNumerically("<", 800*time.Millisecond))
		Consistently(func() []string { return on.Keys(ctx) }).WithTimeout(1200 * time.Millisecond).
			ShouldNot(ContainElement("f"))
	})

	It("keeps a lock whose shorter Refresh has failed while a renewal was not answered", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, proxied, 3*time.Second, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		lost := proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: 1, Action: faultproxy.SwallowReply()})
		Eventually(lost.Hit()).WithTimeout(2 * time.Second).Should(BeClosed())
		refresh := spec.Running("refresh")
		called := func(args []string) bool { return refresh(args) && args[len(args)-1] == "0" } // and no renewal
		proxy.Add(faultproxy.Rule{Match: called, Times: 1, Action: faultproxy.RefuseReply("NOPERM not for you")})
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(MatchError(ContainSubstring("NOPERM")))
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
	})

	It("keeps a lock whose shorter Refresh was never answered", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, proxied, time.Hour, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: 1, Action: faultproxy.SwallowReply()})
		limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		Expect(lock.Refresh(limited, 500*time.Millisecond, nil)).To(MatchError(context.DeadlineExceeded))
		Expect(on.Client.PTTL(ctx, "f").Val()).To(BeNumerically("<=", 500*time.Millisecond))
		Consistently(kept.Err).WithTimeout(1500 * time.Millisecond).Should(Succeed())
		Expect(on.Client.PTTL(ctx, "f").Val()).To(BeNumerically(">", time.Minute))
	})

	DescribeTable("sends a script that is not known, however slow the answers are",
		func(ctx SpecContext, connected func(client *redis.Client) *redislock.Client) {
			opt := &redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, ReadTimeout: 2 * time.Second}
			locks := connected(spec.Connect(opt))
			DeferCleanup(locks.Close)
			lock := spec.Obtain(ctx, locks, 2*time.Second, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.DelayReply(350 * time.Millisecond)})
			Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
			Consistently(kept.Err).WithTimeout(3 * time.Second).Should(Succeed())
		},
		Entry("in pipelines", func(client *redis.Client) *redislock.Client { return redislock.New(client) }),
		on.InFakeTime(
			Entry("with separate calls", func(client *redis.Client) *redislock.Client {
				return redislock.New(client, redislock.WithSeparateCalls())
			}),
			Entry("with a hook that rewrites keys", func(client *redis.Client) *redislock.Client {
				client.AddHook(&spec.PrefixHook{Prefix: spec.AppPrefix})
				return redislock.New(client)
			}),
			Entry("with a custom client type", func(client *redis.Client) *redislock.Client {
				return redislock.New(&struct{ redis.Scripter }{client})
			}),
		),
	)

	It("survives one silence after the other with a client that never times out", func(ctx SpecContext) {
		// Each call without an answer keeps its connection.
		patient := redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: -1, PoolSize: 100}))
		DeferCleanup(patient.Close)
		DeferCleanup(proxy.CutAll)
		lock := spec.Obtain(ctx, patient, 2*time.Second, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for range 4 {
			silence := proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.SwallowReply()})
			Eventually(silence.Count).WithTimeout(2 * time.Second).Should(BeNumerically(">=", 3))
			silence.Remove()
			Consistently(kept.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
		}
	})

	It("behind a custom client type lets no hanging call delay others", func(ctx SpecContext) {
		// Eleven renewals hang, each with a connection of its own.
		opt := &redis.Options{Addr: proxy.Addr(), MaxRetries: -1, PoolSize: 20}
		own := redislock.New(&struct{ redis.Scripter }{spec.Connect(opt)})
		DeferCleanup(own.Close)
		DeferCleanup(proxy.CutAll)
		proxy.Add(faultproxy.Rule{
			Match:  func(args []string) bool { return spec.Running("refresh")(args) && faultproxy.Arg("bad")(args) },
			Action: faultproxy.BlackHole(),
		})
		bad := spec.Obtain(ctx, own, time.Second, nil, "bad")
		_, stopBad := bad.KeepAlive(ctx)
		defer stopBad()
		good := spec.Obtain(ctx, own, time.Second, nil, "good")
		kept, stop := good.KeepAlive(ctx)
		defer stop()
		Consistently(kept.Err).WithTimeout(2500 * time.Millisecond).Should(Succeed())
	})

	It("tries again after a reply that makes no sense", func(ctx SpecContext) {
		odd := &oddly{Scripter: on.Client}
		odd.left.Store(2)
		own := redislock.New(odd)
		DeferCleanup(own.Close)
		lock := spec.Obtain(ctx, own, 500*time.Millisecond, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
		Expect(odd.left.Load()).To(BeNumerically("<=", 0))
		odd.left.Store(2)
		for range 2 {
			err := lock.Refresh(ctx, time.Minute, nil)
			Expect(err).To(MatchError(ContainSubstring("unexpected reply")))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		}
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
	})

	When("a Refresh is answered late", func() {
		const ttl = 999 * time.Millisecond // less than before, so that it is not sent like a renewal

		var late *faultproxy.Fault
		var lock *redislock.Lock
		BeforeEach(func(ctx SpecContext) {
			lock = spec.Obtain(ctx, proxied, time.Second, nil, "f")
			called := func(args []string) bool { return spec.Running("refresh")(args) && args[len(args)-1] == "0" } // no renewal
			late = proxy.Add(faultproxy.Rule{Match: called, Times: 1, Action: faultproxy.DelayReply(1200 * time.Millisecond)})
		})

		It("keeps what renewals have gained meanwhile", func(ctx SpecContext) {
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			Expect(lock.Refresh(ctx, ttl, nil)).To(Succeed())
			Expect(kept.Err()).NotTo(HaveOccurred())
			Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		})

		// In fake time only: the other Refresh is sent at Until, 11 ms before the key expires, and a busy machine takes longer.
		if on.Kind == spec.InMemory {
			It("keeps what another Refresh has gained meanwhile", func(ctx SpecContext) {
				first := make(chan error, 1)
				go func() { first <- lock.Refresh(ctx, ttl, nil) }()
				<-late.Hit()
				Expect(lock.Refresh(ctx, ttl, nil)).To(Succeed()) // sent at Until, because its turn has not come
				until := lock.Until()
				Expect(until).To(BeTemporally(">", time.Now()))
				Expect(<-first).To(Succeed())
				Expect(lock.Until()).To(BeTemporally(">=", until))
			})
		}
	})

	DescribeTable("does not look cancelled if it ends because no connection can be made", func(ctx SpecContext, opts ...redislock.ClientOption) {
		var unreachable atomic.Bool
		over := make(chan struct{})
		opt := &redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, MaxRetries: -1}
		dial := on.Client.Options().Dialer
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if unreachable.Load() {
				<-over
				return nil, errors.New("unreachable")
			}
			return dial(ctx, network, addr)
		}
		client := redis.NewClient(opt)
		DeferCleanup(client.Close)
		locks := redislock.New(client, opts...)
		DeferCleanup(locks.Close)
		lock := spec.Obtain(ctx, locks, 2*time.Second, nil, "f")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		defer close(over)
		unreachable.Store(true)
		proxy.CutAll()
		cause := ends(kept)
		Expect(cause).To(MatchError(redislock.ErrLapsed))
		Expect(cause).NotTo(MatchError(context.Canceled))
	},
		Entry("in a pipeline"),
		Entry("with separate calls", redislock.WithSeparateCalls()),
	)

	It("does not keep a lock whose Release was refused", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, proxied, time.Second, nil, "f")
		proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Action: faultproxy.RefuseReply("ERR broken")})
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("ERR broken")))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(2 * time.Second).ShouldNot(ContainElement("f"))
	})

	It("does not let one lock's error delay another's renewal", func(ctx SpecContext) {
		bad := spec.Obtain(ctx, proxied, 600*time.Millisecond, nil, "bad")
		good := spec.Obtain(ctx, proxied, 600*time.Millisecond, nil, "good")
		keptBad, stopBad := bad.KeepAlive(ctx)
		defer stopBad()
		keptGood, stopGood := good.KeepAlive(ctx)
		defer stopGood()
		proxy.Add(faultproxy.Rule{
			Match:  func(args []string) bool { return spec.Running("refresh")(args) && faultproxy.Arg("bad")(args) },
			Action: faultproxy.RefuseReply("ERR broken"),
		})
		Expect(ends(keptBad)).To(MatchError(ContainSubstring("ERR broken")))
		Consistently(keptGood.Err).WithTimeout(time.Second).Should(Succeed())
	})
})

// oddly is a client that gives the next refreshes, two at most, replies that make no sense.
type oddly struct {
	redis.Scripter
	left atomic.Int32
}

func (o *oddly) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(args) == 4 {
		switch o.left.Add(-1) {
		case 1:
			return redis.NewCmdResult("QUEUED", nil)
		case 0:
			return redis.NewCmdResult([]any{int64(5)}, nil) // there is no fifth key
		}
	}
	return o.Scripter.EvalSha(ctx, sha, keys, args...)
}
