package place_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// One packet is late by more than a second, as when a router forgets a connection for a while. The server answers on other
// connections, so the call counts as lost. It is executed all the same, after the copy that went in its place.
var _ = spec.DescribeFaulty("A call that counts as lost and is executed late", func(on *spec.FaultyRedis) {
	const late = 1500 * time.Millisecond
	const token = "job-17-of-host-4"

	var locks, others *redislock.Client
	BeforeEach(func(ctx SpecContext) {
		on.Proxy.LeaveQuestions(false)
		locks = on.ConnectBy(nil)
		others = redislock.New(on.Client)
		DeferCleanup(others.Close)
		warm := spec.Obtain(ctx, locks, time.Minute, nil, "warm")
		Expect(warm.Release(ctx)).To(Succeed())
	})

	// delayed makes the next request with a script late. It returns how to wait until that is executed.
	delayed := func(ctx context.Context, script string) (executed func()) {
		time.Sleep(5 * time.Millisecond) // see transport.justHeard
		before := on.Executed(script)
		on.Broken(script, 1, faultproxy.DelayRequest(late))
		return func() {
			GinkgoHelper()
			Eventually(on.Executed).WithContext(ctx).WithArguments(script).WithTimeout(5 * time.Second).
				Should(BeNumerically(">=", before+2))
		}
	}
	soon := func(f func()) {
		GinkgoHelper()
		start := time.Now()
		f()
		Expect(time.Since(start)).To(BeNumerically("<", spec.Bound(on.Kind, late, 500*time.Millisecond)))
	}

	for name, background := range map[string]bool{"without": true, "with": false} {
		within := func(ctx context.Context) context.Context {
			if background {
				return context.Background()
			}
			return ctx
		}

		It("leaves no key behind if it is an obtain, "+name+" a ctx that can end", func(ctx SpecContext) {
			executed := delayed(ctx, "obtain")
			var lock *redislock.Lock
			soon(func() {
				var err error
				lock, err = locks.ObtainMulti(within(ctx), []string{"a", "b"}, time.Minute, nil)
				Expect(err).NotTo(HaveOccurred())
			})
			on.Truthful(ctx, lock)
			Expect(lock.Release(ctx)).To(Succeed())
			executed()
			Eventually(on.Keys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		})

		It("takes nothing from the next holder if it is a release, "+name+" a ctx that can end", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b")
			executed := delayed(ctx, "release")
			soon(func() { Expect(lock.Release(within(ctx))).To(Succeed()) })
			next := spec.Obtain(ctx, others, time.Minute, nil, "a", "b")
			executed()
			Expect(next.TTL(ctx)).To(BeNumerically(">", 50*time.Second))
		})

		It("does not shorten what another handle has prolonged if it is a Refresh, "+name+" a ctx that can end", func(ctx SpecContext) {
			lock := spec.Obtain(ctx, locks, 10*time.Second, nil, "a", "b")
			executed := delayed(ctx, "refresh")
			soon(func() { Expect(lock.Refresh(within(ctx), 10*time.Second, nil)).To(Succeed()) })
			another, err := others.Attach(ctx, []string{"a", "b"}, lock.Token())
			Expect(err).NotTo(HaveOccurred())
			Expect(another.Refresh(ctx, time.Minute, nil)).To(Succeed())
			executed()
			Expect(another.TTL(ctx)).To(BeNumerically(">", 50*time.Second))
			on.Truthful(ctx, another)
			on.Truthful(ctx, lock)
		})
	}

	It("finds that the lock was lost before, if it is a release whose request or reply is late", func(ctx SpecContext) {
		for _, action := range []faultproxy.Action{
			faultproxy.DelayRequest(400 * time.Millisecond), faultproxy.DelayReply(400 * time.Millisecond),
		} {
			lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
			Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
			time.Sleep(5 * time.Millisecond) // see transport.justHeard
			on.Broken("release", 1, action)
			Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
		}
	})

	It("has freed the keys itself, if it is a release whose first reply was cut off and whose second is late", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(5 * time.Millisecond) // see transport.justHeard
		on.Broken("release", 1, faultproxy.CutAfterReplyBytes(0))
		on.Broken("release", 1, faultproxy.DelayReply(400*time.Millisecond))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("finds that the lock was lost before, if the server has refused the release once", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
		time.Sleep(5 * time.Millisecond)
		on.Broken("release", 1, faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"))
		on.Broken("release", 1, faultproxy.DelayReply(400*time.Millisecond))
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("leaves no key behind if two obtains are, and the second arrives after its connection was given up", func(ctx SpecContext) {
		const readTimeout = 1500 * time.Millisecond
		locks = on.TimingOut(readTimeout)
		Expect(spec.Obtain(ctx, locks, time.Minute, nil, "warm").Release(ctx)).To(Succeed())
		time.Sleep(5 * time.Millisecond)
		on.Broken("obtain", 1, faultproxy.DelayRequest(readTimeout-100*time.Millisecond))
		on.Broken("obtain", 1, faultproxy.DelayRequest(readTimeout+350*time.Millisecond))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(readTimeout + time.Second)
		Eventually(on.Keys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("is none any more after its ctx has ended, although the server forgets its scripts", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		delayed(ctx, "release")
		Expect(lock.Release(spec.Within(ctx, 50*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		time.Sleep(400 * time.Millisecond) // the connection seems to be dead
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		Eventually(on.Keys).WithArguments(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
	})

	It("limits no later Refresh", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, 10*time.Second, nil, "a")
		executed := delayed(ctx, "refresh")
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
		soon(func() { Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) })
		Expect(time.Until(lock.Until())).To(BeNumerically(">", 50*time.Second))
		executed()
		on.Truthful(ctx, lock)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(time.Until(lock.Until())).To(BeNumerically(">", 50*time.Second))
	})

	It("is no such call if another Refresh for less could shorten the ttl", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		delayed(ctx, "refresh")
		start := time.Now()
		Expect(lock.Refresh(ctx, 10*time.Second, nil)).To(Succeed())
		Expect(time.Since(start)).To(BeNumerically(">=", late), "nobody knows when it is executed before it is answered")
		Expect(on.Executed("refresh")).To(Equal(1))
	})

	It("is no such call if it has a token of the caller's own, which another Client may use next", func(ctx SpecContext) {
		custom := &redislock.Options{Token: token}
		delayed(ctx, "obtain")
		start := time.Now()
		lock := spec.Obtain(ctx, locks, time.Minute, custom, "a")
		Expect(time.Since(start)).To(BeNumerically(">=", late))
		delayed(ctx, "refresh")
		start = time.Now()
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(time.Since(start)).To(BeNumerically(">=", late))
		delayed(ctx, "release")
		start = time.Now()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(time.Since(start)).To(BeNumerically(">=", late))
		next := spec.Obtain(ctx, others, time.Minute, custom, "a")
		time.Sleep(late)
		Expect(next.TTL(ctx)).To(BeNumerically(">", 50*time.Second))
		for _, script := range []string{"obtain", "refresh", "release"} {
			Expect(on.Executed(script)).To(BeNumerically("<=", 2), script) // one is of the lock before
		}
	})

	It("is no such call if its handle is attached, for the same reason", func(ctx SpecContext) {
		spec.Obtain(ctx, others, time.Minute, &redislock.Options{Token: token}, "a")
		lock, err := locks.Attach(ctx, []string{"a"}, token)
		Expect(err).NotTo(HaveOccurred())
		delayed(ctx, "release")
		start := time.Now()
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(time.Since(start)).To(BeNumerically(">=", late))
	})
})

// A server can answer a PING and still run no script for a while, as during a failover that an operator has begun.
var _ = spec.DescribeOn(spec.OnServer, "While scripts wait,", func(*spec.Redis) {
	It("every call waits as well, with three connections at most", func(ctx SpecContext) {
		server := spec.StartServer()
		client := spec.Connect(&redis.Options{Addr: server.Addr()})
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		admin := spec.Connect(&redis.Options{Addr: server.Addr()})
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		for _, call := range []func() error{
			func() error { return lock.Refresh(ctx, time.Minute, nil) },
			func() error { _, err := lock.TTL(ctx); return err },
			func() error { _, err := locks.Obtain(ctx, "b", time.Minute, nil); return err },
			func() error { return lock.Release(ctx) },
		} {
			Expect(client.Ping(ctx).Err()).To(Succeed())
			Expect(admin.Do(ctx, "CLIENT", "PAUSE", 1500, "WRITE").Err()).To(Succeed())
			Expect(call()).To(Succeed())
		}
	})
})

var _ = spec.DescribeForgetful("under a guard, a Refresh that counts as lost", func(on *spec.Forgetful) {
	for name, second := range map[string]faultproxy.Action{
		"": faultproxy.DelayRequest(0),
		", nor the copy that is resent after it,": faultproxy.DelayRequest(1500 * time.Millisecond).And(faultproxy.CutClient()),
	} {
		It("puts no key back after the Release"+name, func(ctx SpecContext) {
			on.LeaveQuestions(false)
			client := on.MemoryServer.Connect(spec.Ours, func(opt *redis.Options) { opt.ReadTimeout = 5 * time.Second })
			DeferCleanup(client.Close)
			locks := redislock.New(client, redislock.WithGuard(maxTTL, 0))
			DeferCleanup(locks.Close)
			on.Open(ctx, maxTTL, 0)
			lock := spec.Obtain(ctx, locks, 20*time.Second, nil, "a")
			time.Sleep(5 * time.Millisecond) // see transport.justHeard
			for _, action := range []faultproxy.Action{faultproxy.DelayRequest(400 * time.Millisecond), second} {
				on.Add(faultproxy.Rule{Match: spec.Running("refresh"), Times: 1, Action: action})
			}
			Expect(lock.Refresh(ctx, 20*time.Second, nil)).To(Succeed())
			time.Sleep(time.Second) // the lost one is answered
			Expect(lock.Release(ctx)).To(Succeed())
			on.LoseMemory()
			time.Sleep(5 * time.Second)
			Expect(spec.LocksIn(ctx, on.Own)).To(BeEmpty())
		})
	}
})
