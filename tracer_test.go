package redislock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
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

var _ = spec.DescribeOnRedis("A Tracer", func(on *spec.Redis) {
	var seen *spec.Recorder
	var locks *redislock.Client
	keys := []string{"a", "b"}

	BeforeEach(func() {
		seen = &spec.Recorder{}
		locks = redislock.New(on.Client, redislock.WithTracer(seen.Tracer()))
		DeferCleanup(locks.Close)
	})
	// proxied returns a Client with the same Tracer, and the proxy that it goes through.
	proxied := func(change func(*redis.Options)) (*redislock.Client, *faultproxy.Proxy) {
		GinkgoHelper()
		proxy := on.NewProxy()
		opt := &redis.Options{Addr: proxy.Addr(), ReadTimeout: 5 * time.Second}
		change(opt)
		locks := redislock.New(spec.Connect(opt), redislock.WithTracer(seen.Tracer()))
		DeferCleanup(locks.Close)
		return locks, proxy
	}
	asIs := func(*redis.Options) {}

	Describe("of an obtain", func() {
		It("gets ObtainStart and ObtainEnd", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{FenceKey: "counter", Queue: true}, "a", "b", "a")
			Expect(spec.EventsOf[redislock.ObtainStart](seen)).To(Equal([]redislock.ObtainStart{
				{Keys: keys, TTL: time.Minute, Queue: true, Fenced: true},
			}))
			Expect(spec.EventsOf[redislock.ObtainEnd](seen)).To(HaveLen(1))
			end := spec.EventsOf[redislock.ObtainEnd](seen)[0]
			Expect(end.Keys).To(Equal(keys))
			Expect(end.Err).NotTo(HaveOccurred())
			Expect(end.Wait).To(BeNumerically("~", time.Second/2, time.Second/2))
			Expect(end.Tries).To(Equal(1))
			Expect(end.Resends).To(BeZero())
			Expect(end.Until).To(BeTemporally("==", lock.Until()))
			Expect(end.Fence).To(Equal(lock.FenceToken()))
			Expect(end.Fence).NotTo(BeZero())
		})

		It("gets Refused for each refused try, and ObtainEnd", func(ctx SpecContext) {
			spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "b")
			opt := &redislock.Options{RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(10*time.Millisecond), 2)}
			_, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
			Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(spec.EventsOf[redislock.Refused](seen)).To(Equal([]redislock.Refused{
				{Keys: keys, Try: 1}, {Keys: keys, Try: 2}, {Keys: keys, Try: 3},
			}))
			end := spec.EventsOf[redislock.ObtainEnd](seen)[0]
			Expect(end.Err).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(end.Tries).To(Equal(3))
			Expect(end.Wait).To(BeNumerically(">=", 20*time.Millisecond))
			Expect(end.Until).To(BeZero())
		})

		It("gets ObtainEnd when ctx ends the wait, and CleanedUp for the position in line", func(ctx SpecContext) {
			spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "b")
			limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := locks.ObtainMulti(limited, keys, time.Minute, &redislock.Options{Queue: true})
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(spec.EventsOf[redislock.ObtainEnd](seen)[0].Err).To(BeIdenticalTo(err))
			Eventually(func() []redislock.CleanedUp { return spec.EventsOf[redislock.CleanedUp](seen) }).Should(Equal(
				[]redislock.CleanedUp{{Keys: keys, Why: redislock.WhyLine}}))
		})

		It("gets nothing for a call with unusable arguments", func(ctx SpecContext) {
			_, err := locks.Obtain(ctx, "", time.Minute, nil)
			Expect(err).To(MatchError(redislock.ErrInvalid))
			Expect(seen.Count()).To(BeZero())
		})

		It("gets the number of resends", func(ctx SpecContext) {
			locks, proxy := proxied(asIs)
			fault := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 2, Action: faultproxy.RefuseReply("LOADING wait")})
			spec.Obtain(ctx, locks, time.Minute, nil, "a")
			Expect(fault.Count()).To(Equal(2))
			end := spec.EventsOf[redislock.ObtainEnd](seen)[0]
			Expect([]int{end.Tries, end.Resends}).To(Equal([]int{1, 2}))
		})

		It("passes its ctx to the hooks of the Redis client and to ObtainEnd", func(ctx SpecContext) {
			type mark struct{}
			var inEnd any
			locks := redislock.New(on.Client, redislock.WithSeparateCalls(), redislock.WithTracer(&redislock.Tracer{
				ObtainStart: func(ctx context.Context, _ redislock.ObtainStart) context.Context {
					return context.WithValue(ctx, mark{}, "mine")
				},
				ObtainEnd: func(ctx context.Context, _ redislock.ObtainEnd) { inEnd = ctx.Value(mark{}) },
			}))
			hook := &valueHook{key: mark{}}
			spec.AddHook(on.Client, hook)
			spec.Obtain(ctx, locks, time.Minute, nil, "a")
			Expect(hook.value.Load()).To(Equal("mine"))
			Expect(inEnd).To(Equal("mine"))
		})

		It("gets ObtainEnd when a strategy panics", func(ctx SpecContext) {
			spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
			Expect(func() {
				_, _ = locks.Obtain(ctx, "a", time.Minute, &redislock.Options{RetryStrategy: panicking{}})
			}).To(PanicWith("no idea"))
			Expect(spec.EventsOf[redislock.ObtainEnd](seen)[0].Err).To(MatchError(ContainSubstring("panicked")))
		})

		It("gets CleanedUp after an abandoned call", func(ctx SpecContext) {
			locks, proxy := proxied(asIs)
			proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 1, Action: faultproxy.DelayReply(200 * time.Millisecond)})
			limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := locks.ObtainMulti(limited, keys, time.Minute, nil)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Eventually(func() []redislock.CleanedUp { return spec.EventsOf[redislock.CleanedUp](seen) }).Should(Equal(
				[]redislock.CleanedUp{{Keys: keys, Why: redislock.WhyAbandoned}}))
			Expect(on.Keys(ctx)).To(BeEmpty())
		})
	})

	Describe("of a lock", func() {
		It("gets Refreshed, with how much of the validity was left", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, 10*time.Second, nil, keys...)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(spec.EventsOf[redislock.Refreshed](seen)).To(HaveLen(1))
			e := spec.EventsOf[redislock.Refreshed](seen)[0]
			Expect(e.Keys).To(Equal(keys))
			Expect(e.Renewal).To(BeFalse())
			Expect(e.TTL).To(Equal(time.Minute))
			Expect(e.Left).To(BeNumerically("~", 9*time.Second, time.Second))
			Expect(e.Err).NotTo(HaveOccurred())
		})

		It("gets Released for each Release, and Held only once", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
			time.Sleep(20 * time.Millisecond)
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
			events := spec.EventsOf[redislock.Released](seen)
			Expect(events).To(HaveLen(2))
			Expect(events[0].Err).NotTo(HaveOccurred())
			Expect(events[0].Held).To(BeNumerically(">=", 20*time.Millisecond))
			Expect(events[1].Held).To(BeZero())
			Expect(events[1].Err).To(Equal(redislock.ErrLockNotHeld))
			Expect(spec.EventsOf[redislock.Lost](seen)).To(BeEmpty())
		})

		It("gets Lost for a loss that a Refresh finds, and not again at the Release", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
			on.Client.Set(ctx, "b", "other", 0)
			err := lock.Refresh(ctx, time.Minute, nil)
			Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
			Expect(spec.EventsOf[redislock.Refreshed](seen)[0].Err).To(BeIdenticalTo(err))
			Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
			e := spec.EventsOf[redislock.Lost](seen)[0]
			Expect(e.Keys).To(Equal(keys))
			Expect(e.LostKeys).To(Equal([]string{"b"}))
			Expect(e.Cause).To(Equal(redislock.LossTaken))
			Expect(e.Held).To(BeNumerically(">", 0))
			Expect(e.Err).To(MatchError(redislock.ErrLockNotHeld))
			Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
			Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
			Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeZero())
		})

		It("gets Lost for a loss that the Release finds", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
			on.Client.Del(ctx, keys...)
			Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
			Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
			e := spec.EventsOf[redislock.Lost](seen)[0]
			Expect(e.LostKeys).To(Equal(keys))
			Expect(e.Cause).To(Equal(redislock.LossGone))
			Expect(e.Held).To(BeNumerically(">", 0))
			Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeZero())
		})

		It("gets the end of a hold that a Refresh has revived", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, nil, "a")
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			on.Client.Set(ctx, "a", "other", 0)
			Eventually(kept.Done()).Should(BeClosed())
			Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
			on.Client.Set(ctx, "a", lock.Token(), 0)
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeNumerically(">", 0))
		})

		It("gets no second end of a hold that a Refresh has revived too late", func(ctx SpecContext) {
			locks, proxy := proxied(asIs)
			fault := proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.RefuseReply("MASTERDOWN no master")})
			// On a busy machine, a grant can take 100 ms, and a lock that has lapsed before KeepAlive was never kept: it has no Lost.
			lock := spec.Obtain(ctx, locks, spec.Bound(on.Kind, 100*time.Millisecond, time.Second), nil, "a")
			Expect(on.Client.Persist(ctx, "a").Val()).To(BeTrue())
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			<-kept.Done()
			Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
			fault.Remove()
			Expect(on.Client.ScriptLoad(ctx, spec.Source("refresh")).Err()).To(Succeed())
			called := func(args []string) bool { return spec.Running("refresh")(args) && args[len(args)-1] == "0" } // a last renewal may come only now
			proxy.Add(faultproxy.Rule{Match: called, Times: 1, Action: faultproxy.DelayReply(150 * time.Millisecond)})
			tooLate := Equal(redislock.ErrNotObtained)
			if on.Kind == spec.OnServer { // a busy machine may bring the answer after the 250 ms for which the Refresh waits
				tooLate = Or(tooLate, MatchError(redislock.ErrLapsed))
			}
			Expect(lock.Refresh(ctx, 50*time.Millisecond, nil)).To(tooLate)
			_ = lock.Release(ctx)
			Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
			Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeZero())
		})

		It("gets no Lost for a Release whose ctx has ended, although its cause is a loss", func(ctx SpecContext) {
			locks, proxy := proxied(asIs)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			hole := proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Action: faultproxy.BlackHole()})
			other, lose := context.WithCancelCause(ctx)
			time.AfterFunc(50*time.Millisecond, func() { lose(redislock.ErrLockNotHeld) })
			Expect(lock.Release(other)).To(MatchError(context.Canceled))
			Expect(spec.EventsOf[redislock.Lost](seen)).To(BeEmpty())
			hole.Remove()
			Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(10 * time.Second).Should(BeEmpty())
		})

		It("gets Refreshed for renewals, with how much of the validity was left", func(ctx SpecContext) {
			const ttl = 3 * time.Second // a busy machine may stand still for more than one
			lock := spec.Obtain(ctx, locks, ttl, nil, keys...)
			_, stop := lock.KeepAlive(ctx)
			defer stop()
			Eventually(func() int { return len(spec.EventsOf[redislock.Refreshed](seen)) }).WithTimeout(10*time.Second).
				Should(BeNumerically(">=", 2), func() string { return fmt.Sprintf("%+v", spec.EventsOf[redislock.Lost](seen)) })
			e := spec.EventsOf[redislock.Refreshed](seen)[0]
			Expect(e.Keys).To(Equal(keys))
			Expect(e.Renewal).To(BeTrue())
			Expect(e.TTL).To(Equal(ttl))
			Expect(e.Left).To(And(BeNumerically(">", 0), BeNumerically("<=", 7*ttl/10)))
			Expect(e.Err).NotTo(HaveOccurred())
		})

		It("gets Lost once for a loss that a renewal finds", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, 1500*time.Millisecond, nil, keys...)
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			on.Client.Del(ctx, "a")
			Eventually(kept.Done()).Should(BeClosed())
			Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
			e := spec.EventsOf[redislock.Lost](seen)[0]
			Expect(e.LostKeys).To(Equal([]string{"a"}))
			Expect(e.Cause).To(Equal(redislock.LossGone))
			Expect(e.Err).To(BeIdenticalTo(context.Cause(kept)))
			Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"a"}))
			Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
		})

		It("gets Refreshed for each failed renewal, and Lost once when the validity ends", func(ctx SpecContext) {
			locks, proxy := proxied(asIs)
			proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.RefuseReply("MASTERDOWN no master")})
			lock := spec.Obtain(ctx, locks, 300*time.Millisecond, nil, keys...)
			kept, stop := lock.KeepAlive(ctx)
			defer stop()
			<-kept.Done()
			Expect(kept.Err()).To(HaveOccurred())
			Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
			failures := spec.EventsOf[redislock.Refreshed](seen)
			Expect(len(failures)).To(BeNumerically(">=", 2))
			Expect(failures[0].Renewal).To(BeTrue())
			Expect(failures[0].Err).To(MatchError(`redislock: renew "a" and 1 more: MASTERDOWN no master`))
			Expect(failures[0].Left).To(BeNumerically(">", 0))
			e := spec.EventsOf[redislock.Lost](seen)[0]
			Expect(e.Cause).To(Equal(redislock.LossLapsed))
			Expect(e.LostKeys).To(BeNil())
			Expect(e.Held).To(BeNumerically("~", 295*time.Millisecond, 200*time.Millisecond))
			Expect(e.Err).To(MatchError(redislock.ErrLapsed))
			_ = lock.Release(ctx)
			Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(1))
			Expect(spec.EventsOf[redislock.Released](seen)[0].Held).To(BeZero())
		})

		It("gets CleanedUp for an abandoned release that went on", func(ctx SpecContext) {
			locks, proxy := proxied(asIs)
			lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
			proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Times: 1, Action: faultproxy.DelayReply(200 * time.Millisecond)})
			limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := lock.Release(limited)
			Expect(err).To(MatchError(context.DeadlineExceeded))
			e := spec.EventsOf[redislock.Released](seen)[0]
			Expect(e.Err).To(BeIdenticalTo(err))
			Expect(e.Wait).To(And(BeNumerically(">=", 40*time.Millisecond), BeNumerically("<", 200*time.Millisecond)))
			Expect(e.Held).To(BeNumerically(">", 0))
			Eventually(func() []redislock.CleanedUp { return spec.EventsOf[redislock.CleanedUp](seen) }).Should(Equal(
				[]redislock.CleanedUp{{Keys: keys, Why: redislock.WhyRelease}}))
		})
	})

	It("gets the end of each hold once, whatever happens to its keys", func(ctx SpecContext) {
		adversary, end := context.WithCancel(ctx)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for adversary.Err() == nil {
				key := []string{"a", "b", "c"}[rand.IntN(3)]
				if rand.IntN(2) == 0 {
					on.Client.Del(ctx, key)
				} else {
					on.Client.Set(ctx, key, "other", 5*time.Millisecond)
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			}
		}()
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				set := [][]string{{"a", "b"}, {"b", "c"}, {"c"}}[i%3]
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				lock, err := locks.ObtainMulti(limited, set, time.Duration(20+rand.IntN(80))*time.Millisecond, &redislock.Options{Queue: true})
				if err != nil {
					return
				}
				_, stop := lock.KeepAlive(ctx)
				defer stop()
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				for range rand.IntN(3) {
					group.Go(func() { _ = lock.Release(ctx) })
				}
				_ = lock.Release(ctx)
			})
		}
		group.Wait()
		end()
		<-gone
		ends := func() (ends map[*string]int) {
			ends = map[*string]int{}
			for _, e := range spec.EventsOf[redislock.ObtainEnd](seen) {
				if e.Err == nil {
					ends[&e.Keys[0]] = 0
				}
			}
			for _, e := range spec.EventsOf[redislock.Lost](seen) {
				ends[&e.Keys[0]]++
			}
			for _, e := range spec.EventsOf[redislock.Released](seen) {
				if e.Held > 0 {
					ends[&e.Keys[0]]++
				}
			}
			return ends
		}
		Expect(len(ends())).To(BeNumerically(">", 5))
		Eventually(ends).Should(HaveEach(1))
		Consistently(ends).WithTimeout(200 * time.Millisecond).Should(HaveEach(1))
		Expect(spec.EventsOf[redislock.ObtainStart](seen)).To(HaveLen(len(spec.EventsOf[redislock.ObtainEnd](seen))))
	})

	It("gets no Lost at a second Release, even if it has no Released", func(ctx SpecContext) {
		locks := redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{Lost: seen.Tracer().Lost}))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, keys...)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(seen.Count()).To(BeZero())
	})

	It("gets Released and Refreshed when a hook panics", func(ctx SpecContext) {
		client := spec.Connect(&redis.Options{Addr: on.Addr})
		locks := redislock.New(client, redislock.WithSeparateCalls(), redislock.WithTracer(seen.Tracer()))
		DeferCleanup(locks.Close)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		spec.AddHook(client, &panicOnce{})
		Expect(func() { _ = lock.Release(ctx) }).To(PanicWith("hooked"))
		events := spec.EventsOf[redislock.Released](seen)
		Expect(events).To(HaveLen(1))
		Expect(events[0].Held).To(BeNumerically(">", 0))
		Expect(events[0].Err).To(MatchError(ContainSubstring("panicked")))
		Eventually(on.Keys).WithArguments(ctx).Should(BeEmpty())

		lock = spec.Obtain(ctx, locks, time.Minute, nil, "a")
		spec.AddHook(client, &panicOnce{})
		Expect(func() { _ = lock.Refresh(ctx, time.Minute, nil) }).To(PanicWith("hooked"))
		Expect(spec.EventsOf[redislock.Refreshed](seen)).To(HaveExactElements(
			HaveField("Err", MatchError(ContainSubstring("panicked")))))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("that panics in ObtainEnd leaves no lock behind", func(ctx SpecContext) {
		locks := redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			ObtainEnd: func(context.Context, redislock.ObtainEnd) { panic("no idea") },
			CleanedUp: seen.Tracer().CleanedUp,
		}))
		DeferCleanup(locks.Close)
		Expect(func() { _, _ = locks.ObtainMulti(ctx, keys, time.Minute, nil) }).To(PanicWith("no idea"))
		Eventually(on.Keys).WithArguments(ctx).Should(BeEmpty())
		Eventually(func() []redislock.CleanedUp { return spec.EventsOf[redislock.CleanedUp](seen) }).WithTimeout(3 * time.Second).Should(Equal(
			[]redislock.CleanedUp{{Keys: keys, Why: redislock.WhyAbandoned}}))
	})

	It("gets each renewal once, even if Refreshed ends its goroutine", func(ctx SpecContext) {
		refreshed := seen.Tracer().Refreshed
		locks := redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			Refreshed: func(ctx context.Context, e redislock.Refreshed) {
				refreshed(ctx, e)
				runtime.Goexit()
			},
		}))
		DeferCleanup(locks.Close)
		lock := spec.Obtain(ctx, locks, 900*time.Millisecond, nil, "a") // survives a busy machine
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Eventually(func() int { return len(spec.EventsOf[redislock.Refreshed](seen)) }).WithTimeout(5 * time.Second).Should(BeNumerically(">=", 2))
		for _, e := range spec.EventsOf[redislock.Refreshed](seen) {
			Expect(e.Err).NotTo(HaveOccurred())
			Expect(e.Left).To(BeNumerically("<", 630*time.Millisecond), "the one before it was a third of the ttl ago")
		}
		Expect(kept.Err()).NotTo(HaveOccurred())
	})

	DescribeTable("may close the Client from", func(ctx SpecContext, name string) {
		var locks *redislock.Client
		closed := make(chan struct{})
		once := sync.OnceFunc(func() {
			_ = locks.Close()
			close(closed)
		})
		refused, refreshed := make(chan struct{}, 1), make(chan struct{}, 1)
		in := func(function string) {
			if function == name {
				once()
			}
		}
		tell := func(first chan struct{}) {
			select {
			case first <- struct{}{}:
			default:
			}
		}
		locks = redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			ObtainStart: func(context.Context, redislock.ObtainStart) context.Context { in("ObtainStart"); return nil },
			Refused:     func(context.Context, redislock.Refused) { in("Refused"); tell(refused) },
			ObtainEnd:   func(context.Context, redislock.ObtainEnd) { in("ObtainEnd") },
			Refreshed:   func(context.Context, redislock.Refreshed) { in("Refreshed"); tell(refreshed) },
			Lost:        func(context.Context, redislock.Lost) { in("Lost") },
			Released:    func(context.Context, redislock.Released) { in("Released") },
			CleanedUp:   func(context.Context, redislock.CleanedUp) { in("CleanedUp") },
		}))
		DeferCleanup(locks.Close)
		// Each step waits for the event of the one before: on a busy machine, a fixed time could be over before the event.
		_ = locks.Do(ctx, keys, spec.Bound(on.Kind, 200*time.Millisecond, 2*time.Second), nil, func(kept context.Context) error {
			limited, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { // ends with the wait
				select {
				case <-refused:
				case <-limited.Done():
				}
				cancel()
			}()
			_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
			Expect(err).To(HaveOccurred())
			select {
			case <-refreshed:
			case <-kept.Done(): // the Client is closed
			}
			on.Client.Del(ctx, "a")
			<-kept.Done()
			return nil
		})
		Eventually(closed).WithTimeout(5 * time.Second).Should(BeClosed())
		_, err := locks.Obtain(ctx, "c", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrClosed))
	},
		Entry(nil, "ObtainStart"), Entry(nil, "Refused"), Entry(nil, "ObtainEnd"), Entry(nil, "Refreshed"),
		Entry(nil, "Lost"), Entry(nil, "Released"), Entry(nil, "CleanedUp"),
	)

	It("that is slow in Lost does not delay the end of other locks", func(ctx SpecContext) {
		_, proxy := proxied(asIs)
		slow, lost := make(chan struct{}), seen.Tracer().Lost
		locks := redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr()}), redislock.WithTracer(&redislock.Tracer{
			Lost: func(ctx context.Context, e redislock.Lost) {
				lost(ctx, e)
				<-slow
			},
		}))
		DeferCleanup(locks.Close)
		defer close(slow)
		lock, next := spec.Obtain(ctx, locks, 300*time.Millisecond, nil, "a"), spec.Obtain(ctx, locks, 600*time.Millisecond, nil, "b")
		kept, stop := lock.KeepAlive(ctx)
		DeferCleanup(stop)
		other, stop := next.KeepAlive(ctx)
		DeferCleanup(stop)
		proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.RefuseReply("MASTERDOWN no master")})
		<-kept.Done()
		Eventually(func() int { return len(spec.EventsOf[redislock.Lost](seen)) }).Should(Equal(1))
		Eventually(other.Done()).Should(BeClosed())
	})

	It("may call the library from each of its functions", func(ctx SpecContext) {
		var locks *redislock.Client
		var mu sync.Mutex // protects called and results
		called, results := map[string]bool{}, []error{}
		// call does what a function may do: it inspects a key and acquires another lock. Only the first of each kind does so.
		call := func(ctx context.Context, name string) {
			mu.Lock()
			again := called[name]
			called[name] = true
			mu.Unlock()
			if again {
				return
			}
			ctx = context.WithoutCancel(ctx) // that of a try ends soon
			_, inspected := locks.Inspect(ctx, "a")
			lock, err := locks.Obtain(ctx, "in "+name, time.Minute, &redislock.Options{Token: "me"})
			if err == nil {
				err = errors.Join(lock.Refresh(ctx, time.Minute, nil), lock.Release(ctx))
			}
			mu.Lock()
			defer mu.Unlock()
			results = append(results, errors.Join(inspected, err))
		}
		locks = redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			ObtainStart: func(ctx context.Context, _ redislock.ObtainStart) context.Context {
				call(ctx, "start")
				return nil
			},
			Refused:   func(ctx context.Context, _ redislock.Refused) { call(ctx, "refused") },
			ObtainEnd: func(context.Context, redislock.ObtainEnd) { call(ctx, "end") },
			Refreshed: func(_ context.Context, e redislock.Refreshed) {
				if e.Renewal {
					call(ctx, "renewed")
				}
			},
			Lost:      func(context.Context, redislock.Lost) { call(ctx, "lost") },
			Released:  func(context.Context, redislock.Released) { call(ctx, "released") },
			CleanedUp: func(context.Context, redislock.CleanedUp) { call(ctx, "cleaned") },
		}))
		DeferCleanup(locks.Close)
		err := locks.Do(ctx, keys, 600*time.Millisecond, nil, func(kept context.Context) error {
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_, err := locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true})
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			time.Sleep(300 * time.Millisecond) // longer than until the first renewal
			on.Client.Del(ctx, "a")
			<-kept.Done()
			return nil
		})
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
		Eventually(func() []error {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(results)
		}).WithTimeout(10 * time.Second).Should(Equal(make([]error, 7)))
	})
})

// valueHook remembers a value of the last ctx that it has seen.
type valueHook struct {
	key   any
	value atomic.Value
}

func (h *valueHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *valueHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if value := ctx.Value(h.key); value != nil {
			h.value.Store(value)
		}
		return next(ctx, cmd)
	}
}

func (h *valueHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// panicOnce panics at the first command that it sees.
type panicOnce struct{ panicked atomic.Bool }

func (h *panicOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *panicOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !h.panicked.Swap(true) {
			panic("hooked")
		}
		return next(ctx, cmd)
	}
}

func (h *panicOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type panicking struct{}

func (panicking) NextBackoff() time.Duration { panic("no idea") }

var _ = Describe("Tracers", func() {
	It("calls each in turn, and passes the ctx on", func(ctx SpecContext) {
		type key string
		var order []string
		one := func(name string) *redislock.Tracer {
			return &redislock.Tracer{
				ObtainStart: func(ctx context.Context, _ redislock.ObtainStart) context.Context {
					order = append(order, name+" starts")
					return context.WithValue(ctx, key(name), true)
				},
				GuardClosed: func(context.Context, redislock.GuardClosed) { order = append(order, name+" closed") },
				Restored:    func(context.Context, redislock.Restored) { order = append(order, name+" restored") },
				Released:    func(context.Context, redislock.Released) { order = append(order, name+" released") },
			}
		}
		all := redislock.Tracers(one("a"), nil, one("b"), &redislock.Tracer{}, one("c"))
		derived := all.ObtainStart(ctx, redislock.ObtainStart{})
		all.GuardClosed(ctx, redislock.GuardClosed{})
		all.Restored(ctx, redislock.Restored{})
		all.Released(ctx, redislock.Released{})
		Expect(order).To(Equal([]string{
			"a starts", "b starts", "c starts", "a closed", "b closed", "c closed", "a restored", "b restored", "c restored",
			"a released", "b released", "c released",
		}))
		for _, name := range []string{"a", "b", "c"} {
			Expect(derived.Value(key(name))).To(BeTrue())
		}
		Expect(all.Lost).To(BeNil(), "no tracer has it")
	})

	It("keeps the ctx of one if the next returns nil", func(ctx SpecContext) {
		type mark struct{}
		marks := &redislock.Tracer{ObtainStart: func(ctx context.Context, _ redislock.ObtainStart) context.Context {
			return context.WithValue(ctx, mark{}, true)
		}}
		looks := &redislock.Tracer{ObtainStart: func(context.Context, redislock.ObtainStart) context.Context { return nil }}
		for _, all := range []*redislock.Tracer{redislock.Tracers(marks, looks), redislock.Tracers(looks, marks, looks)} {
			Expect(all.ObtainStart(ctx, redislock.ObtainStart{}).Value(mark{})).To(BeTrue())
		}
	})

	It("returns nil without tracers, and the tracer itself with one", func() {
		Expect(redislock.Tracers()).To(BeNil())
		Expect(redislock.Tracers(nil, nil)).To(BeNil())
		one := &redislock.Tracer{}
		Expect(redislock.Tracers(nil, one)).To(BeIdenticalTo(one))
	})
})

var _ = spec.DescribeOnRedis("Of a refresh and a release that begin at the same moment,", func(on *spec.Redis) {
	It("the refresh reports no loss of what the release frees", func(ctx SpecContext) {
		seen := &spec.Recorder{}
		locks := redislock.New(on.Client, redislock.WithTracer(seen.Tracer()))
		first := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(first.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(first.Release(ctx)).To(Succeed()) // the server knows the scripts
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		begun, freed, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
		spec.AddHook(on.Client, &spec.AroundHook{
			Before: func(cmd redis.Cmder) {
				if spec.IsRefresh(cmd) {
					close(begun)
					<-freed
				}
			},
			After: func(cmd redis.Cmder) {
				if spec.IsRelease(cmd) {
					close(freed)
					<-refused
				}
			},
		})
		refreshed := make(chan error, 1)
		go func() {
			defer close(refused)
			refreshed <- lock.Refresh(ctx, time.Minute, nil)
		}()
		<-begun
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-refreshed).To(Equal(redislock.ErrNotObtained))
		Expect(spec.EventsOf[redislock.Lost](seen)).To(BeEmpty())
		released := spec.EventsOf[redislock.Released](seen)
		Expect(released[len(released)-1].Held).To(BeNumerically(">", 0))
	})
})

var _ = spec.DescribeOnRedis("Releases that begin before one of them has ended", func(on *spec.Redis) {
	// release begins many at the same moment, and returns what they return.
	release := func(ctx context.Context, lock *redislock.Lock) (all []error) {
		var requests atomic.Int32
		over := make(chan struct{})
		spec.AddHook(on.Client, &spec.AroundHook{After: func(cmd redis.Cmder) {
			if spec.IsRelease(cmd) {
				requests.Add(1)
				<-over
			}
		}})
		const releases = 8
		ended := make(chan error)
		for range releases {
			go func() { ended <- lock.Release(ctx) }()
		}
		Consistently(ended).WithTimeout(50 * time.Millisecond).ShouldNot(Receive())
		close(over)
		for range releases {
			all = append(all, <-ended)
		}
		Expect(requests.Load()).To(BeEquivalentTo(1))
		return all
	}

	DescribeTable("all return what the one freeing has found", func(ctx SpecContext, gone []string, want error, lost int) {
		seen := &spec.Recorder{}
		locks := redislock.New(on.Client, redislock.WithTracer(seen.Tracer()))
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "a", "b").Release(ctx)).To(Succeed()) // the server knows the scripts
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
		if len(gone) > 0 {
			on.Client.Del(ctx, gone...)
		}
		for _, err := range release(ctx, lock) {
			if want == nil {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(want))
			}
			var partly *redislock.LostError
			Expect(errors.As(err, &partly)).To(Equal(len(gone) == 1))
		}
		Expect(spec.EventsOf[redislock.Lost](seen)).To(HaveLen(lost))
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	},
		Entry("nothing lost", nil, nil, 0),
		Entry("one key lost", []string{"b"}, redislock.ErrLockNotHeld, 1),
		Entry("all keys lost", []string{"a", "b"}, redislock.ErrLockNotHeld, 1),
	)

	It("do so as long as one of them is reporting its end", func(ctx SpecContext) {
		reports := make(chan struct{}, 1)
		locks := redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			Released: func(context.Context, redislock.Released) {
				reports <- struct{}{}
				time.Sleep(50 * time.Millisecond)
			},
		}))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		first := make(chan error, 1)
		go func() { first <- lock.Release(ctx) }()
		<-reports
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-first).NotTo(HaveOccurred())
		<-reports
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
	})
})

var _ = Describe("LogTracer", func() {
	var text *bytes.Buffer
	var t *redislock.Tracer
	level := new(slog.LevelVar)

	BeforeEach(func() {
		text = &bytes.Buffer{}
		level.Set(slog.LevelDebug)
		t = redislock.LogTracer(slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{
			Level: level,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
	})
	count := func(level string) int { return strings.Count(text.String(), "level="+level) }
	// Each lock has a slice of keys of its own, as from the library.
	a, b, c := []string{"a"}, []string{"b"}, []string{"c"}
	renewal := func(keys []string, err error) redislock.Refreshed {
		return redislock.Refreshed{Keys: keys, Renewal: true, TTL: time.Minute, Left: 30 * time.Second, Err: err}
	}
	down := errors.New("down")

	It("shows five keys and six characters of a token", func(ctx SpecContext) {
		t.Refused(ctx, redislock.Refused{
			Keys: []string{"a", "b", "c", "d", "e", "f", "g"}, Try: 1, Key: "b", Holder: "q83vEjRWeJCrze8SNFZ4kA", Ahead: 2,
		})
		Expect(text.String()).To(Equal(`level=DEBUG msg="redislock: refused" keys="a b c d e and 2 more" try=1 key=b ` +
			"holder=q83vEj… metadata=\"\" ttl=0s ahead=2\n"))
	})

	It("says for how long the guard is closed, if that is why a try was refused", func(ctx SpecContext) {
		t.Refused(ctx, redislock.Refused{Keys: a, Try: 2, Closed: 20 * time.Second})
		Expect(text.String()).To(Equal(`level=DEBUG msg="redislock: refused" keys=a try=2 closed=20s` + "\n"))
	})

	It("says which keys others may hold as well, and how many do", func(ctx SpecContext) {
		t.ObtainStart(ctx, redislock.ObtainStart{
			Keys: []string{"a", "b", "c"}, TTL: time.Minute, Shared: []string{"b"}, Permits: map[string]int{"c": 4},
		})
		t.Refused(ctx, redislock.Refused{Keys: a, Try: 1, Key: "a", Holder: "me", Holders: 3})
		Expect(text.String()).To(Equal(`level=DEBUG msg="redislock: acquiring" keys="a b c" ttl=1m0s queue=false fenced=false ` +
			"shared=b permits=map[c:4]\n" +
			`level=DEBUG msg="redislock: refused" keys=a try=1 key=a holder=me metadata="" ttl=0s ahead=0 holders=3` + "\n"))
	})

	It("logs a guard that closes at Warn, and keys that are put back at Info", func(ctx SpecContext) {
		t.GuardClosed(ctx, redislock.GuardClosed{Server: "db:6379", For: 33 * time.Second})
		t.Restored(ctx, redislock.Restored{Keys: []string{"a", "b", "c", "d", "e", "f", "g"}, Back: []string{"b"}})
		Expect(text.String()).To(Equal(
			`level=WARN msg="redislock: guard closed: Redis may have forgotten locks" server=db:6379 for=33s` + "\n" +
				`level=INFO msg="redislock: put back" keys="a b c d e and 2 more" back=b` + "\n"))
	})

	It("logs losses and failed cleanups at Warn", func(ctx SpecContext) {
		t.Lost(ctx, redislock.Lost{
			Keys: []string{"a", "b"}, LostKeys: []string{"b"}, Cause: redislock.LossTaken, Held: time.Second, Err: down,
		})
		t.CleanedUp(ctx, redislock.CleanedUp{Keys: []string{"a"}, Why: redislock.WhyLate, Err: down})
		t.CleanedUp(ctx, redislock.CleanedUp{Keys: []string{"a"}, Why: redislock.WhyLate, Dropped: true})
		Expect(count("WARN")).To(Equal(3))
		Expect(text.String()).To(ContainSubstring(
			`level=WARN msg="redislock: lock lost" keys="a b" cause=taken held=1s error=down lost=b`))
	})

	It("logs everything else at Debug", func(ctx SpecContext) {
		t.ObtainStart(ctx, redislock.ObtainStart{})
		t.Refused(ctx, redislock.Refused{})
		t.ObtainEnd(ctx, redislock.ObtainEnd{Err: down})
		t.ObtainEnd(ctx, redislock.ObtainEnd{Keys: a})
		t.Refreshed(ctx, redislock.Refreshed{Keys: a})
		t.Refreshed(ctx, redislock.Refreshed{Keys: a, Err: down})
		t.Refreshed(ctx, renewal(a, nil))
		t.Released(ctx, redislock.Released{Err: down})
		t.Released(ctx, redislock.Released{})
		t.CleanedUp(ctx, redislock.CleanedUp{})
		Expect(count("DEBUG")).To(Equal(10))
		Expect(count("WARN")).To(BeZero())
		text.Reset()
		level.Set(slog.LevelInfo)
		t.ObtainEnd(ctx, redislock.ObtainEnd{})
		Expect(text.String()).To(BeEmpty())
	})

	It("warns once per outage that renewals fail", func(ctx SpecContext) {
		for range 3 {
			t.Refreshed(ctx, renewal(a, down))
			t.Refreshed(ctx, renewal(b, down))
			t.Refreshed(ctx, renewal(c, nil))
		}
		Expect(count("WARN")).To(Equal(1))
		t.Refreshed(ctx, renewal(a, nil))
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(1), "b has not recovered yet")
		t.Released(ctx, redislock.Released{Keys: b})
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(2), "another outage")
	})

	It("warns once per outage, even if its locks lapse one after the other", func(ctx SpecContext) {
		for _, lock := range [][]string{a, b, c} {
			t.Refreshed(ctx, renewal(lock, down))
			t.Lost(ctx, redislock.Lost{Keys: lock, Cause: redislock.LossLapsed, Err: redislock.ErrLapsed})
			t.Released(ctx, redislock.Released{Keys: lock, Err: down})
		}
		Expect(strings.Count(text.String(), "renewals fail")).To(Equal(1))
		t.ObtainEnd(ctx, redislock.ObtainEnd{Keys: []string{"a"}})
		t.Refreshed(ctx, renewal(a, down))
		Expect(strings.Count(text.String(), "renewals fail")).To(Equal(2), "Redis had answered in between")
	})

	It("does not wait for a lock that has lapsed before it ends an outage", func(ctx SpecContext) {
		e := renewal(a, down)
		e.Left = time.Millisecond
		t.Refreshed(ctx, e)
		time.Sleep(2 * time.Millisecond)
		t.Refreshed(ctx, renewal(b, nil))
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(2))
	})

	It("tells locks on the same keys apart", func(ctx SpecContext) {
		t.Refreshed(ctx, renewal(a, down))
		t.Refreshed(ctx, renewal([]string{"a"}, nil))
		t.Refreshed(ctx, renewal(b, down))
		Expect(count("WARN")).To(Equal(1), "the first lock has not recovered yet")
	})

	It("warns once of a lock that a renewal finds lost", func(ctx SpecContext) {
		t.Refreshed(ctx, renewal(a, fmt.Errorf("%w: another holder", redislock.ErrLockNotHeld)))
		t.Lost(ctx, redislock.Lost{Keys: a, LostKeys: a, Cause: redislock.LossTaken, Err: redislock.ErrLockNotHeld})
		Expect(count("WARN")).To(Equal(1))
		Expect(text.String()).NotTo(ContainSubstring("renewals fail"))
	})

	It("gives a handler no whole token", func(ctx SpecContext) {
		handler := &everyField{}
		redislock.LogTracer(slog.New(handler)).ObtainEnd(ctx, redislock.ObtainEnd{
			Keys: a, Err: &redislock.RefusedError{Key: "a", Token: "q83vEjRWeJCrze8SNFZ4kA", TTL: time.Minute},
		})
		Expect(handler.text.String()).To(And(ContainSubstring("q83vEj"), Not(ContainSubstring("q83vEjR"))))
	})

	It("writes to the default logger if it has none", func(ctx SpecContext) {
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(text, nil)))
		redislock.LogTracer(nil).CleanedUp(ctx, redislock.CleanedUp{Dropped: true})
		Expect(count("WARN")).To(Equal(1))
	})
})

// everyField is a handler that prints values with all of their fields, as some do.
type everyField struct{ text strings.Builder }

func (*everyField) Enabled(context.Context, slog.Level) bool { return true }
func (h *everyField) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *everyField) WithGroup(string) slog.Handler          { return h }
func (h *everyField) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		_, _ = fmt.Fprintf(&h.text, "%s=%#v ", a.Key, a.Value.Any())
		return true
	})
	return nil
}

var _ = spec.DescribeOnRedis("A Tracer that blocks", func(on *spec.Redis) {
	It("holds up no renewal, of its own Client or of another one", func(ctx SpecContext) {
		over := make(chan struct{})
		told := make(chan redislock.Refreshed, 100)
		slow := redislock.New(on.Client, redislock.WithTracer(&redislock.Tracer{
			Refreshed: func(_ context.Context, e redislock.Refreshed) {
				told <- e
				<-over
			},
		}))
		ttl := spec.Bound(on.Kind, time.Second, 2*time.Second)
		var all []context.Context
		var stops []context.CancelFunc
		for i := range 20 {
			for name, locks := range map[string]*redislock.Client{"slow": slow, "other": redislock.New(on.Client)} {
				kept, stop := spec.Obtain(ctx, locks, ttl, nil, fmt.Sprint(name, i)).KeepAlive(ctx)
				stops = append(stops, stop)
				all = append(all, kept)
			}
		}
		time.Sleep(2 * ttl)
		for _, kept := range all {
			Expect(kept.Err()).NotTo(HaveOccurred())
		}
		Expect(told).To(HaveLen(1), "the others wait")
		for _, stop := range stops {
			stop()
		}
		close(over)
		Eventually(told).Should(HaveLen(1+20), "of each lock, one event waited")
	})
})
