package transport_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

var _ = spec.DescribeOnRedis("Calls made at the same time", func(on *spec.Redis) {
	var proxy *faultproxy.Proxy
	var client *redis.Client
	var locks *redislock.Client

	BeforeEach(func() {
		proxy = on.NewProxy()
		client = spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, ReadTimeout: 5 * time.Second, PoolSize: 50})
		locks = redislock.New(client)
		DeferCleanup(locks.Close)
	})
	// each runs do in that many goroutines, and returns when all have returned.
	each := func(n int, do func(i int)) {
		var wait sync.WaitGroup
		for i := range n {
			wait.Go(func() { do(i) })
		}
		wait.Wait()
	}
	key := func(i int) string { return fmt.Sprintf("key-%d", i) }
	delayed := func(script string, times int) {
		proxy.Add(faultproxy.Rule{Match: spec.Running(script), Times: times, Action: faultproxy.DelayReply(50 * time.Millisecond)})
	}

	It("share round trips, of all kinds", func(ctx SpecContext) {
		trips := &spec.PipelineCount{}
		client.AddHook(trips)
		spec.Obtain(ctx, locks, time.Minute, nil, "warm") // so that it is known that no hook rewrites keys
		held := make([]*redislock.Lock, 200)
		delayed("obtain", 2)
		each(len(held), func(i int) {
			defer GinkgoRecover()
			held[i] = spec.Obtain(ctx, locks, time.Minute, nil, key(i))
		})
		delayed("pttl", 1)
		delayed("refresh", 1)
		each(len(held), func(i int) {
			defer GinkgoRecover()
			Expect(held[i].TTL(ctx)).To(BeNumerically(">", 0))
			Expect(held[i].Refresh(ctx, time.Hour, nil)).To(Succeed())
		})
		delayed("release", 2)
		each(len(held), func(i int) {
			defer GinkgoRecover()
			Expect(held[i].Release(ctx)).To(Succeed())
		})
		if on.Kind == spec.OnServer || spec.Pipelined { // miniredis does not say what it is
			Expect(trips.JointCount()).To(BeNumerically(">", 0))
		}
		sent, calls := trips.Counts()
		Expect(calls).To(BeNumerically(">", 600))
		Expect(calls / sent).To(BeNumerically(">", 10))
		Expect(on.Keys(ctx)).To(ConsistOf("warm"))
	})

	It("are also seen by the hooks of a client with a long ReadTimeout", func(ctx SpecContext) {
		for _, timeout := range []time.Duration{-1, time.Minute} {
			trips := &spec.PipelineCount{}
			client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: on.Client.Options().DB, ReadTimeout: timeout})
			client.AddHook(trips)
			locks := redislock.New(client)
			delayed("obtain", 2)
			each(50, func(i int) {
				defer GinkgoRecover()
				lock := spec.Obtain(ctx, locks, time.Minute, nil, key(i))
				Expect(lock.Release(ctx)).To(Succeed())
			})
			_, together := trips.Counts()
			Expect(together).To(BeNumerically(">", 0))
		}
	})

	It("are sent again one by one if the server does not know their scripts", func(ctx SpecContext) {
		delayed("obtain", 2)
		each(100, func(i int) {
			defer GinkgoRecover()
			if i == 50 {
				Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
			}
			lock := spec.Obtain(ctx, locks, time.Minute, nil, key(i%90)+key(i))
			Expect(lock.Release(ctx)).To(Succeed())
		})
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("each get their own result, whatever happens to the others", func(ctx SpecContext) {
		queued := "queued"
		for i := range 100 {
			switch i % 10 {
			case 3:
				on.Client.Set(ctx, key(i), "another-0123456789abcdefgh", time.Minute)
			case 4:
				on.Client.SAdd(ctx, key(i), "x")
			}
		}
		holder := spec.Obtain(ctx, locks, time.Minute, nil, queued)
		waiting, cancel := context.WithCancel(ctx)
		var first *redislock.Lock
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			first, _ = locks.Obtain(waiting, queued, time.Minute, &redislock.Options{Queue: true})
		}()
		defer func() { cancel(); <-waited }()
		Eventually(func() int {
			status, err := locks.Inspect(ctx, queued)
			Expect(err).NotTo(HaveOccurred())
			return status[0].Waiters
		}).Should(Equal(1))

		delayed("obtain", 2)
		held := make([]*redislock.Lock, 100)
		each(len(held), func(i int) {
			defer GinkgoRecover()
			opt := &redislock.Options{Metadata: fmt.Sprint(i)}
			name := key(i)
			switch i % 10 {
			case 5:
				opt.Queue = true
			case 6:
				opt.Token = fmt.Sprint("own-", i)
			case 7:
				name = queued
			case 8:
				opt.FenceKey = "fence"
			case 9:
				opt.Metadata = ""
			}
			lock, err := locks.Obtain(ctx, name, time.Minute, opt)
			switch i % 10 {
			case 3, 7:
				Expect(err).To(Equal(redislock.ErrNotObtained))
			case 4:
				Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
			default:
				Expect(err).NotTo(HaveOccurred())
				if opt.FenceKey != "" {
					Expect(lock.FenceToken()).To(BeNumerically(">", 0))
				}
				status, err := locks.Inspect(ctx, name)
				Expect(err).NotTo(HaveOccurred())
				Expect(status[0]).To(And(HaveField("Token", lock.Token()), HaveField("Metadata", opt.Metadata)))
				held[i] = lock
			}
		})
		Expect(on.Client.Set(ctx, key(0), "another", time.Minute).Err()).To(Succeed())
		Expect(on.Client.Del(ctx, key(1)).Err()).To(Succeed())
		delayed("release", 2)
		each(len(held), func(i int) {
			defer GinkgoRecover()
			switch {
			case held[i] == nil:
			case i < 2:
				Expect(held[i].Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
			case i == 2:
				Expect(held[i].Release(ctx)).To(Succeed())
				Expect(holder.Release(ctx)).To(Succeed())
			default:
				Expect(held[i].Release(ctx)).To(Succeed())
			}
		})
		Eventually(waited).Should(BeClosed())
		Expect(first.Release(ctx)).To(Succeed(), "it has been woken")
		var left []string
		for i := range 100 {
			if i == 0 || i%10 == 3 || i%10 == 4 {
				left = append(left, key(i))
			}
		}
		Expect(on.Keys(ctx)).To(ConsistOf(append(left, "fence")))
	})

	It("share no script where the server does not say that it is one by itself, as a proxy before several does not",
		func(ctx SpecContext) {
			if spec.Pipelined {
				Skip("they share scripts without asking")
			}
			asked := proxy.Add(faultproxy.Rule{
				Match:  func(args []string) bool { return len(args) == 1 && strings.EqualFold(args[0], "hello") },
				Action: faultproxy.RefuseReply("ERR unknown command 'HELLO'"),
			})
			trips := &spec.PipelineCount{}
			client.AddHook(trips)
			for range 3 {
				each(100, func(i int) {
					defer GinkgoRecover()
					Expect(spec.Obtain(ctx, locks, time.Minute, nil, key(i)).Release(ctx)).To(Succeed())
				})
			}
			Expect(trips.JointCount()).To(BeZero())
			Expect(asked.Count()).To(BeNumerically("<=", 10), "once, by each trip that is under way; a slow one makes room for another")
			sent, _ := trips.Counts()
			Expect(sent).To(BeNumerically(">", 0))
		})

	It("take their positions in line at once", func(ctx SpecContext) {
		held := make([]*redislock.Lock, 40)
		for i := range held {
			held[i] = spec.Obtain(ctx, locks, time.Minute, nil, key(i))
		}
		delayed("obtain", 2)
		var wait sync.WaitGroup
		began := time.Now()
		for i := range held {
			wait.Go(func() {
				defer GinkgoRecover()
				lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Queue: true}, key(i))
				Expect(lock.Release(ctx)).To(Succeed())
			})
		}
		for i := range held {
			Eventually(func() int {
				status, err := locks.Inspect(ctx, key(i))
				Expect(err).NotTo(HaveOccurred())
				return status[0].Waiters
			}).WithPolling(time.Millisecond).Should(Equal(1))
		}
		Expect(time.Since(began)).To(BeNumerically("<", spec.Bound(on.Kind, 700*time.Millisecond, 5*time.Second)), "and not with their second try")
		each(len(held), func(i int) {
			defer GinkgoRecover()
			Expect(held[i].Release(ctx)).To(Succeed())
		})
		wait.Wait()
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("return when their own ctx ends, whatever the others wait for, and leave nothing behind", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "warm")
		hole := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 2, Action: faultproxy.BlackHole()})
		each(50, func(i int) {
			defer GinkgoRecover()
			limited, cancel := context.WithTimeout(ctx, time.Duration(20+i)*time.Millisecond)
			defer cancel()
			began := time.Now()
			lock, err := locks.Obtain(limited, key(i), time.Minute, nil)
			if err == nil {
				Expect(lock.Release(ctx)).To(Succeed())
				return
			}
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(time.Since(began)).To(BeNumerically("<", spec.Soon))
		})
		Expect(hole.Count()).To(BeNumerically(">", 0))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(15 * time.Second).Should(ConsistOf("warm"))
	})

	It("do not wait for those on a connection that hangs", func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, nil, "held")
		hole := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 2, Action: faultproxy.BlackHole()})
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		for i := range 2 {
			go func() { _, _ = locks.Obtain(limited, key(i), time.Minute, nil) }()
		}
		Eventually(hole.Count).Should(Equal(2))
		began := time.Now()
		Expect(held.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
		Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond), "they have a lane of their own")
		for i := range 5 {
			spec.Obtain(ctx, locks, time.Minute, nil, key(10+i))
		}
		Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		cancel()
	})

	It("wait no longer for a connection that hangs if others waited before them", func(ctx SpecContext) {
		for _, script := range []string{"obtain", "obtain_each"} {
			Expect(on.Client.ScriptLoad(ctx, spec.Source(script)).Err()).To(Succeed()) // the faults are for calls that are sent once
		}
		spec.Obtain(ctx, locks, time.Minute, nil, "warm")
		slow := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 2, Action: faultproxy.DelayReply(20 * time.Millisecond)})
		hole := proxy.Add(faultproxy.Rule{Match: spec.Running("obtain"), Times: 2, Action: faultproxy.BlackHole()})
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		var first, second sync.WaitGroup
		for i := range 2 {
			first.Go(func() { _, _ = locks.Obtain(limited, key(i), time.Minute, nil) })
			Eventually(slow.Count).WithPolling(time.Millisecond).Should(Equal(i + 1))
		}
		second.Go(func() { _, _ = locks.Obtain(limited, key(2), time.Minute, nil) }) // waits for one of the first two
		first.Wait()
		Eventually(hole.Count).WithPolling(time.Millisecond).Should(Equal(1))
		second.Go(func() { _, _ = locks.Obtain(limited, key(3), time.Minute, nil) })
		Eventually(hole.Count).WithPolling(time.Millisecond).Should(Equal(2))
		began := time.Now()
		spec.Obtain(ctx, locks, time.Minute, nil, key(4))
		Expect(time.Since(began)).To(BeNumerically("<", 160*time.Millisecond))
		cancel()
		second.Wait()
	})

	It("go by themselves if they have many keys", func(ctx SpecContext) {
		trips := &spec.PipelineCount{}
		client.AddHook(trips)
		keys := make([]string, 100)
		for i := range keys {
			keys[i] = key(i)
		}
		delayed("obtain", 3)
		each(10, func(int) { _, _ = locks.ObtainMulti(ctx, keys, time.Minute, nil) })
		_, together := trips.Counts()
		Expect(together).To(BeZero())
	})

	It("lose, duplicate and leave behind nothing, whatever happens to the network and their contexts", func(ctx SpecContext) {
		if on.Kind == spec.InMemory {
			Skip("miniredis takes longer for a thousand scripts than the timeouts of this spec")
		}
		actions := []faultproxy.Action{
			faultproxy.SwallowReply(), faultproxy.DelayReply(30 * time.Millisecond), faultproxy.CutAfterReplyBytes(3),
			faultproxy.CutAfterRequestBytes(100), faultproxy.DelayRequest(30 * time.Millisecond),
			faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"), faultproxy.CutAfterReplyBytes(0),
		}
		locks = redislock.New(spec.Connect(&redis.Options{
			Addr: proxy.Addr(), DB: on.Client.Options().DB, ReadTimeout: 500 * time.Millisecond, PoolSize: 50,
		}))
		DeferCleanup(locks.Close)
		faulty, stop := context.WithCancel(ctx)
		var faults sync.WaitGroup
		faults.Go(func() {
			for faulty.Err() == nil {
				proxy.Add(faultproxy.Rule{Times: 1, Action: actions[rand.N(len(actions))]})
				time.Sleep(time.Duration(20+rand.N(60)) * time.Millisecond)
			}
		})
		const shared = 200 // keys; more goroutines than that contend
		var holders [shared]atomic.Int32
		var granted, refused, cut atomic.Int32
		problems := make(chan string, 10_000)
		each(300, func(i int) {
			for range 10 {
				mine := rand.N(shared)
				ctx, cancel := context.WithTimeout(ctx, rand.N(3*time.Second))
				lock, err := locks.Obtain(ctx, key(mine), 10*time.Second, &redislock.Options{Queue: rand.N(20) == 0})
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					cut.Add(1)
				case err == redislock.ErrNotObtained:
					refused.Add(1)
				case err == nil:
					granted.Add(1)
					if n := holders[mine].Add(1); n != 1 && time.Now().Before(lock.Until()) {
						problems <- fmt.Sprintf("%d hold %s", n, key(mine))
					}
					if rand.N(2) == 0 {
						err := lock.Refresh(ctx, 10*time.Second, nil)
						if errors.Is(err, redislock.ErrNotObtained) && time.Now().Before(lock.Until()) {
							problems <- fmt.Sprintf("refresh of %s: %v", key(mine), err)
						}
					}
					holders[mine].Add(-1)
					until := lock.Until()
					for range 3 {
						if err = lock.Release(context.WithoutCancel(ctx)); err == nil {
							break
						}
						if errors.Is(err, redislock.ErrLockNotHeld) {
							if time.Now().Before(until) {
								problems <- fmt.Sprintf("release of %s: %v", key(mine), err)
							}
							break
						}
					}
				}
				cancel()
			}
		})
		stop()
		faults.Wait()
		close(problems)
		for problem := range problems {
			Fail(problem)
		}
		GinkgoWriter.Println(granted.Load(), "granted", refused.Load(), "refused", cut.Load(), "cut")
		Expect(granted.Load()).To(BeNumerically(">", 10)) // on a machine that is busy with other things; else hundreds
		Expect(locks.Close()).To(Succeed())
	})
})
