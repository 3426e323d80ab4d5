package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
)

var _ = describe("KeepAlive", func(on *onRedis) {
	var locks *redislock.Client
	var lock *redislock.Lock

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.client)
		lock = obtain(ctx, locks, 300*time.Millisecond, nil, "a", "b")
	})

	// ends waits for the end of a kept context and returns its cause.
	ends := func(kept context.Context) error {
		GinkgoHelper()
		Eventually(kept.Done()).WithTimeout(5 * time.Second).Should(BeClosed())
		Expect(kept.Err()).To(Equal(context.Canceled))
		return context.Cause(kept)
	}

	It("keeps the lock for longer than its ttl, until stopped", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(lock.Until()).To(BeTemporally(">", time.Now()))
		stop()
		stop()
		Expect(kept.Err()).To(Equal(context.Canceled))
		Expect(context.Cause(kept)).To(Equal(context.Canceled))
		Eventually(func() []string { return on.keys(ctx) }).Should(BeEmpty(), "nobody renews it any more")
	})

	It("renews when a third of the validity has passed, and not at every chance", func(ctx SpecContext) {
		slow := obtain(ctx, locks, 3*time.Second, nil, "slow")
		Expect(slow.Refresh(ctx, 3*time.Second, nil)).To(Succeed()) // the script is known from here on
		trips := &pipelines{}
		on.client.AddHook(trips)
		_, stop := slow.KeepAlive(ctx)
		defer stop()
		Consistently(trips.count).WithTimeout(700 * time.Millisecond).Should(BeZero())
		Eventually(trips.count).Should(Equal(1))
		Consistently(trips.count).WithTimeout(700 * time.Millisecond).Should(Equal(1))
	})

	It("ends with its ctx, whose deadline is the cap on the hold", func(ctx SpecContext) {
		capped, cancel := context.WithTimeoutCause(ctx, 500*time.Millisecond, errors.New("enough"))
		defer cancel()
		kept, stop := lock.KeepAlive(capped)
		defer stop()
		Eventually(kept.Done()).Should(BeClosed())
		Expect(kept.Err()).To(Equal(context.DeadlineExceeded))
		Expect(context.Cause(kept)).To(MatchError("enough"))
		Eventually(func() []string { return on.keys(ctx) }).Should(BeEmpty())
	})

	DescribeTable("ends when the lock is lost, and tells why",
		func(ctx SpecContext, lose func(ctx context.Context), why string, keys ...string) {
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			lose(ctx)
			until := lock.Until()
			cause := ends(kept)
			Expect(time.Now()).To(BeTemporally("<=", until.Add(50*time.Millisecond)))
			Expect(cause).To(MatchError(redislock.ErrLockNotHeld))
			Expect(cause).To(MatchError(ContainSubstring(why)))
			if len(keys) > 0 {
				Expect(lostKeys(cause)).To(Equal(keys))
			}
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
			Consistently(func() int64 { return on.client.Exists(ctx, "b").Val() }).Should(BeZero(), "no renewal re-creates a key")
		},
		Entry("gone", func(ctx context.Context) { on.client.Del(ctx, "a", "b") }, "is gone"),
		Entry("another's", func(ctx context.Context) { on.client.Del(ctx, "b"); on.client.Set(ctx, "a", "x", 0) }, `another holder has "a"`),
		Entry("one of two", func(ctx context.Context) { on.client.Del(ctx, "b") }, "lost 1 of 2 keys", "b"),
		Entry("all the data", func(ctx context.Context) { on.client.FlushAll(ctx) }, "is gone"),
	)

	It("ends when an explicit Refresh finds the lock lost", func(ctx SpecContext) {
		slow := obtain(ctx, locks, time.Hour, nil, "slow")
		kept, stop := slow.KeepAlive(ctx)
		defer stop()
		on.client.Del(ctx, "slow")
		Expect(slow.Refresh(ctx, time.Hour, nil)).To(Equal(redislock.ErrNotObtained))
		Expect(kept.Err()).To(Equal(context.Canceled))
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("ends with Release, which is no loss", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(kept.Err()).To(Equal(context.Canceled))
		Expect(context.Cause(kept)).To(MatchError("redislock: the lock was released: context canceled"))
		Expect(context.Cause(kept)).To(MatchError(context.Canceled))
	})

	It("ends with Close", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(locks.Close()).To(Succeed())
		Expect(context.Cause(kept)).To(Equal(redislock.ErrClosed))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("may be called again, and renews while any of the contexts lives", func(ctx SpecContext) {
		first, stopFirst := lock.KeepAlive(ctx)
		second, stopSecond := lock.KeepAlive(ctx)
		stopFirst()
		Expect(first.Err()).To(Equal(context.Canceled))
		Consistently(second.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
		stopSecond()
		third, stopThird := lock.KeepAlive(ctx)
		defer stopThird()
		Consistently(third.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(third.Err()).To(Equal(context.Canceled))
	})

	It("renews with the ttl of the last Refresh, up or down", func(ctx SpecContext) {
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Consistently(kept.Err).WithTimeout(500 * time.Millisecond).Should(Succeed())
		Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Hour, 2*time.Second))
		Expect(lock.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
		Expect(on.client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", 300*time.Millisecond))
	})

	It("leaves the metadata, and a key without expiry, as they are", func(ctx SpecContext) {
		on.client.Persist(ctx, "a")
		Expect(lock.Refresh(ctx, 300*time.Millisecond, &redislock.Options{Metadata: "m"})).To(Succeed())
		on.client.Persist(ctx, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		Consistently(func() string { return on.client.Get(ctx, "b").Val() }).WithTimeout(700 * time.Millisecond).
			Should(Equal(lock.Token() + " m"))
		Expect(on.client.PTTL(ctx, "a").Val()).To(Equal(time.Duration(-1)))
	})

	It("costs no goroutine for a context derived from it", func(ctx SpecContext) {
		slow := obtain(ctx, locks, time.Hour, nil, "slow")
		kept, stop := slow.KeepAlive(ctx)
		before := runtime.NumGoroutine()
		for range 100 {
			_, cancel := context.WithCancel(kept)
			defer cancel()
		}
		Expect(runtime.NumGoroutine()).To(BeNumerically("<=", before))
		derived, cancel := context.WithTimeout(kept, time.Hour)
		defer cancel()
		stop()
		Expect(derived.Err()).To(Equal(context.Canceled))
	})

	DescribeTable("returns a context that has ended already",
		func(ctx SpecContext, lock func(ctx context.Context) *redislock.Lock, cause error) {
			kept, stop := lock(ctx).KeepAlive(ctx)
			Expect(kept.Err()).To(Equal(context.Canceled))
			Expect(context.Cause(kept)).To(MatchError(cause))
			stop()
		},
		Entry("nil", func(context.Context) *redislock.Lock { return nil }, redislock.ErrLockNotHeld),
		Entry("released", func(ctx context.Context) *redislock.Lock { _ = lock.Release(ctx); return lock }, redislock.ErrLockNotHeld),
		Entry("lost", func(ctx context.Context) *redislock.Lock {
			on.client.Del(ctx, "a", "b")
			_ = lock.Refresh(ctx, time.Hour, nil)
			return lock
		}, redislock.ErrLockNotHeld),
		Entry("attached", func(ctx context.Context) *redislock.Lock {
			attached, err := locks.Attach(ctx, []string{"a", "b"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			return attached
		}, redislock.ErrInvalid),
		Entry("closed", func(context.Context) *redislock.Lock { _ = locks.Close(); return lock }, redislock.ErrClosed),
		Entry("past Until", func(context.Context) *redislock.Lock {
			Eventually(func() bool { return time.Now().After(lock.Until()) }).Should(BeTrue())
			return lock
		}, redislock.ErrLapsed),
	)

	It("refuses a nil ctx", func() {
		kept, stop := lock.KeepAlive(nil) //nolint:staticcheck // on purpose
		defer stop()
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrInvalid))
	})

	It("keeps an attached lock after its first Refresh", func(ctx SpecContext) {
		attached, err := locks.Attach(ctx, []string{"a", "b"}, lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, 300*time.Millisecond, nil)).To(Succeed())
		kept, stop := attached.KeepAlive(ctx)
		defer stop()
		Consistently(kept.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
	})

	It("renews many locks in few round trips, with the scripts flushed meanwhile", func(ctx SpecContext) {
		if on.memory != nil {
			on.memory.ClockTTL(false) // it looks at every key at every command
		}
		many := make([]*redislock.Lock, 500)
		kept := make([]context.Context, len(many))
		for i := range many {
			many[i] = obtain(ctx, locks, 2*time.Second, nil, "many:"+strconv.Itoa(i))
			var stop context.CancelFunc
			kept[i], stop = many[i].KeepAlive(ctx)
			defer stop()
		}
		trips := &pipelines{}
		on.client.AddHook(trips)
		Consistently(func() error {
			for _, k := range kept {
				if err := k.Err(); err != nil {
					return context.Cause(k)
				}
			}
			return on.client.ScriptFlush(ctx).Err()
		}).WithTimeout(4 * time.Second).WithPolling(300 * time.Millisecond).Should(Succeed())
		sent, calls := trips.counts()
		Expect(calls).To(BeNumerically(">", 2000))
		Expect(calls / sent).To(BeNumerically(">=", 50))
	})

	It("works through a client of the caller's own", func(ctx SpecContext) {
		own := redislock.New(&wrapper{Scripter: on.client})
		lock := obtain(ctx, own, 300*time.Millisecond, nil, "own")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
	})

	Describe("through a faulty network", func() {
		var proxy *faultproxy.Proxy
		var proxied *redislock.Client

		BeforeEach(func() {
			var err error
			proxy, err = faultproxy.New(on.addr)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(proxy.Close)
			Expect(on.client.ScriptLoad(context.Background(), source("refresh")).Err()).To(Succeed())
			proxied = redislock.New(connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 2 * time.Second, DialTimeout: time.Second}))
			DeferCleanup(proxied.Close)
		})

		DescribeTable("loses nothing while the fault is shorter than the validity left", func(ctx SpecContext, action faultproxy.Action, times int) {
			lock := obtain(ctx, proxied, 2*time.Second, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			fault := proxy.Add(faultproxy.Rule{Match: running("refresh"), Times: times, Action: action})
			Consistently(kept.Err).WithTimeout(3500 * time.Millisecond).Should(Succeed())
			Expect(fault.Count()).To(Equal(times))
			until, left := lock.Until(), on.client.PTTL(ctx, "f").Val()
			Expect(until).To(BeTemporally("<=", time.Now().Add(left+time.Millisecond)))
		},
			Entry("replies swallowed", faultproxy.SwallowReply(), 3),
			Entry("connections cut", faultproxy.CutAfterReplyBytes(0), 5),
			Entry("black holes", faultproxy.BlackHole(), 3),
			Entry("not ready", faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"), 5),
			Entry("late", faultproxy.DelayReply(500*time.Millisecond), 3),
		)

		It("ends no later than Until when no reply comes any more, and wraps the last error", func(ctx SpecContext) {
			lock := obtain(ctx, proxied, 500*time.Millisecond, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			proxy.Add(faultproxy.Rule{Match: running("refresh"), Action: faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down")})
			until := lock.Until()
			cause := ends(kept)
			Expect(time.Now()).To(BeTemporally("~", until, 100*time.Millisecond))
			Expect(cause).To(MatchError(ContainSubstring(`the lease ran out unrenewed: "f": MASTERDOWN`)))
			Expect(cause).To(MatchError(redislock.ErrLapsed))
			Expect(cause).NotTo(MatchError(redislock.ErrLockNotHeld))
		})

		It("is not held up by a renewal in flight, which does no harm", func(ctx SpecContext) {
			lock := obtain(ctx, proxied, 500*time.Millisecond, nil, "f")
			late := proxy.Add(faultproxy.Rule{Match: running("refresh"), Action: faultproxy.DelayRequest(400 * time.Millisecond)})
			_, stop := lock.KeepAlive(ctx)
			Eventually(late.Hit()).Should(BeClosed())
			start := time.Now()
			stop()
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(time.Since(start)).To(BeNumerically("<", 300*time.Millisecond))
			Consistently(func() []string { return on.keys(ctx) }).WithTimeout(700 * time.Millisecond).
				ShouldNot(ContainElement("f"))
		})

		It("keeps a lock whose shorter Refresh was never answered", func(ctx SpecContext) {
			lock := obtain(ctx, proxied, time.Hour, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			proxy.Add(faultproxy.Rule{Match: running("refresh"), Times: 1, Action: faultproxy.SwallowReply()})
			limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			Expect(lock.Refresh(limited, 500*time.Millisecond, nil)).To(MatchError(context.DeadlineExceeded))
			Expect(on.client.PTTL(ctx, "f").Val()).To(BeNumerically("<=", 500*time.Millisecond))
			Consistently(kept.Err).WithTimeout(1500 * time.Millisecond).Should(Succeed())
			Expect(on.client.PTTL(ctx, "f").Val()).To(BeNumerically(">", time.Minute))
		})

		It("sends a script that is not known, however slow the answers are", func(ctx SpecContext) {
			lock := obtain(ctx, proxied, 2*time.Second, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			proxy.Add(faultproxy.Rule{Match: running("refresh"), Action: faultproxy.DelayReply(350 * time.Millisecond)})
			Expect(on.client.ScriptFlush(ctx).Err()).To(Succeed())
			Consistently(kept.Err).WithTimeout(3 * time.Second).Should(Succeed())
		})

		It("survives one silence after the other with a client that never times out", func(ctx SpecContext) {
			patient := redislock.New(connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: -1}))
			DeferCleanup(patient.Close)
			DeferCleanup(proxy.CutAll)
			lock := obtain(ctx, patient, 2*time.Second, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			for range 4 {
				silence := proxy.Add(faultproxy.Rule{Match: running("refresh"), Action: faultproxy.SwallowReply()})
				Eventually(silence.Count).WithTimeout(2 * time.Second).Should(BeNumerically(">=", 3))
				silence.Remove()
				Consistently(kept.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
			}
		})

		It("behind a client of the caller's own lets no hanging call delay others", func(ctx SpecContext) {
			own := redislock.New(&struct{ redis.Scripter }{connect(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})})
			DeferCleanup(own.Close)
			DeferCleanup(proxy.CutAll)
			proxy.Add(faultproxy.Rule{
				Match:  func(args []string) bool { return running("refresh")(args) && faultproxy.Arg("bad")(args) },
				Action: faultproxy.BlackHole(),
			})
			bad := obtain(ctx, own, time.Second, nil, "bad")
			_, stopBad := bad.KeepAlive(ctx)
			defer stopBad()
			good := obtain(ctx, own, time.Second, nil, "good")
			kept, stop := good.KeepAlive(ctx)
			defer stop()
			Consistently(kept.Err).WithTimeout(2500 * time.Millisecond).Should(Succeed())
		})

		It("tries again after a reply that makes no sense", func(ctx SpecContext) {
			odd := &oddly{Scripter: on.client}
			odd.left.Store(2)
			own := redislock.New(odd)
			DeferCleanup(own.Close)
			lock := obtain(ctx, own, 500*time.Millisecond, nil, "f")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			Consistently(kept.Err).WithTimeout(time.Second).Should(Succeed())
			Expect(odd.left.Load()).To(BeNumerically("<=", 0))
		})

		It("does not keep a lock whose Release was refused", func(ctx SpecContext) {
			lock := obtain(ctx, proxied, time.Second, nil, "f")
			proxy.Add(faultproxy.Rule{Match: running("release"), Action: faultproxy.RefuseReply("ERR broken")})
			Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("ERR broken")))
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
			Eventually(func() []string { return on.keys(ctx) }).WithTimeout(2 * time.Second).ShouldNot(ContainElement("f"))
		})

		It("does not let one lock's error delay another's renewal", func(ctx SpecContext) {
			bad := obtain(ctx, proxied, 600*time.Millisecond, nil, "bad")
			good := obtain(ctx, proxied, 600*time.Millisecond, nil, "good")
			keptBad, stopBad := bad.KeepAlive(ctx)
			defer stopBad()
			keptGood, stopGood := good.KeepAlive(ctx)
			defer stopGood()
			proxy.Add(faultproxy.Rule{
				Match:  func(args []string) bool { return running("refresh")(args) && faultproxy.Arg("bad")(args) },
				Action: faultproxy.RefuseReply("ERR broken"),
			})
			Expect(ends(keptBad)).To(MatchError(ContainSubstring("ERR broken")))
			Consistently(keptGood.Err).WithTimeout(time.Second).Should(Succeed())
		})
	})
})

// oddly is a client that gives a refresh of three arguments or more a senseless reply, some times.
type oddly struct {
	redis.Scripter
	left atomic.Int32
}

func (o *oddly) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(args) == 4 && args[3] == "1" && o.left.Add(-1) >= 0 {
		return redis.NewCmdResult("QUEUED", nil)
	}
	return o.Scripter.EvalSha(ctx, sha, keys, args...)
}

// pipelines counts pipelines and the calls in them.
type pipelines struct {
	calls
	together int
	joint    int // commands for several calls
}

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") { // and not the greetings of a new connection
			p.mu.Lock()
			p.n++
			for _, cmd := range cmds {
				n, isJoint := callsIn(cmd)
				p.together += n
				if isJoint {
					p.joint++
				}
			}
			p.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

func (p *pipelines) counts() (sent, together int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n, p.together
}

var joint = []func(args []string) bool{running("obtain_each"), running("release_each")}

func (p *pipelines) jointCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.joint
}

// callsIn returns how many calls a command is for, and whether it is one for several.
func callsIn(cmd redis.Cmder) (n int, isJoint bool) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return 0, false
	}
	words := make([]string, 2)
	for i := range words {
		words[i] = fmt.Sprint(cmd.Args()[i])
	}
	for _, matches := range joint {
		if matches(words) {
			return cmd.Args()[2].(int) / 2, true
		}
	}
	return 1, false
}
