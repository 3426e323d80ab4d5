package several_test

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

const maxTTL = 6 * time.Second // of the guards below

// guarded is a schedule of Clients with a guard, which is open on all servers.
type guarded struct {
	*spec.Quorum
	locks, other *redislock.Client // ours, and those of another process
	seen         *spec.Recorder    // of what happens to ours
}

// connect returns a Client with a guard.
func (on *guarded) connect(number int, opts ...redislock.ClientOption) *redislock.Client {
	clients := make([]redislock.RedisClient, len(on.Servers))
	for i, s := range on.Servers {
		client := s.Memory.Connect(number, func(opt *redis.Options) { opt.ReadTimeout = 5 * time.Second })
		DeferCleanup(client.Close)
		clients[i] = client
	}
	locks := redislock.NewQuorum(clients, opts...)
	DeferCleanup(locks.Close)
	return locks
}

func (on *guarded) forget(servers ...int) {
	for _, i := range servers {
		on.Servers[i].Memory.LoseMemory()
	}
}

// everywhere obtains a lock, and waits until all servers have it.
func (on *guarded) everywhere(ctx context.Context, ttl time.Duration, keys ...string) *redislock.Lock {
	GinkgoHelper()
	lock := spec.Obtain(ctx, on.locks, ttl, nil, keys...)
	Eventually(on.Values).WithArguments(ctx, keys[0]).Should(Equal(spec.Same(3, lock.Token())))
	return lock
}

// stranger tries to obtain "a" in another process.
func (on *guarded) stranger(ctx context.Context) (*redislock.Lock, error) {
	return on.other.Obtain(ctx, "a", time.Second, nil)
}

// expectAlone expects that no other process obtains "a" for d.
func (on *guarded) expectAlone(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		_, err := on.stranger(ctx)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
	}
}

func describeGuarded(what string, deposed time.Duration, specs func(on *guarded)) bool {
	return spec.DescribeQuorumOf(spec.InMemory, 3, "guarded, "+what, func(quorum *spec.Quorum) {
		on := &guarded{Quorum: quorum}
		BeforeEach(func(ctx SpecContext) {
			if spec.Pipelined {
				Skip("these are schedules of calls that go by themselves")
			}
			DeferCleanup(func() { time.Sleep(5 * time.Second) }) // what is still on its way ends
			on.seen = &spec.Recorder{}
			for _, s := range on.Servers {
				Expect(spec.OpenGuard(ctx, s.Own, maxTTL, deposed)).To(Succeed())
			}
			guard := redislock.WithGuard(maxTTL, deposed)
			on.locks, on.other = on.connect(spec.Ours, guard, redislock.WithTracer(on.seen.Tracer())), on.connect(spec.Theirs, guard)
			for _, locks := range []*redislock.Client{on.locks, on.other} {
				lock := spec.Obtain(ctx, locks, time.Second, nil, "warm")
				time.Sleep(100 * time.Millisecond)
				Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
				Expect(lock.Release(ctx)).To(Succeed())
				time.Sleep(100 * time.Millisecond)
			}
			on.Heal()
		})
		specs(on)
	})
}

func eventsOf[E any](on *guarded) []E {
	time.Sleep(time.Millisecond) // some come from other goroutines
	return spec.EventsOf[E](on.seen)
}

var _ = describeGuarded("while one server has forgotten,", 0, func(on *guarded) {
	noLoss := func() {
		GinkgoHelper()
		Expect(eventsOf[redislock.Lost](on)).To(BeEmpty())
	}

	It("a Refresh is confirmed by the others, and the server has the keys again", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		on.forget(2)
		time.Sleep(200 * time.Millisecond)
		Expect(lock.Refresh(ctx, 4*time.Second, nil)).To(Succeed())
		Expect(time.Until(lock.Until())).To(BeNumerically(">", 3800*time.Millisecond))
		Expect(has(ctx, on.Quorum, 2)).To(BeEquivalentTo(1))
		Expect(eventsOf[redislock.Restored](on)).To(Equal([]redislock.Restored{{Keys: []string{"a"}, Back: []string{"a"}}}))
		Expect(eventsOf[redislock.GuardClosed](on)).To(HaveLen(1))
		Expect(spec.ClosedFor(ctx, on.Servers[2].Own)).To(BeNumerically("~", 5800*time.Millisecond, 200*time.Millisecond))
		noLoss()
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(200 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
		noLoss()
	})

	It("what it answers does not count: with one more server away, nothing is confirmed", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		until := lock.Until()
		on.forget(2)
		on.Break(0, noRequests)
		err := lock.Refresh(spec.Within(ctx, 200*time.Millisecond), 4*time.Second, nil)
		Expect(err).To(And(HaveOccurred(), Not(MatchError(redislock.ErrNotObtained))))
		Expect(err).To(MatchError(ContainSubstring("the guard is closed, because the server may have forgotten locks")))
		Expect(lock.Until()).To(Equal(until))
		noLoss()
		on.Heal()
		Expect(lock.Refresh(ctx, 4*time.Second, nil)).To(Succeed())
	})

	It("counts again when its guard has opened", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		on.forget(2)
		on.expectAlone(ctx, maxTTL+2*time.Second)
		on.Break(0, noRequests)
		time.Sleep(12 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		noLoss()
	})

	It("a kept lock goes on, the server gets the keys back, and is not asked again and again", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 3*time.Second, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		asked := on.Servers[2].Memory.Add(faultproxy.Rule{Client: spec.Ours, Match: spec.IsScript})
		on.forget(2)
		on.expectAlone(ctx, maxTTL+3*time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(asked.Count()).To(BeNumerically("<=", 20), "renewals, one each second, and mends")
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(eventsOf[redislock.Restored](on)).To(HaveLen(1))
		noLoss()
	})

	It("an obtain is granted by the others, and the server gets the keys when it has opened", func(ctx SpecContext) {
		on.forget(2)
		began := time.Now()
		lock := spec.Obtain(ctx, on.locks, 3*time.Second, nil, "a")
		Expect(time.Since(began)).To(BeNumerically("<", 50*time.Millisecond))
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		mends := on.Servers[2].Memory.Add(ours("obtain", 0, passes))
		time.Sleep(maxTTL - 200*time.Millisecond)
		Expect(has(ctx, on.Quorum, 2)).To(BeZero(), "no key that nobody has had is put there")
		Expect(mends.Count()).To(BeNumerically("<=", 15), "mends")
		time.Sleep(1400 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(kept.Err()).NotTo(HaveOccurred())
		noLoss()
		Expect(eventsOf[redislock.Restored](on)).To(BeEmpty())
		on.Break(0, noRequests)
		time.Sleep(4 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
	})

	It("an obtain is refused if another holds the lock at the others", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		on.forget(2)
		_, err := on.other.Obtain(ctx, "a", 200*time.Millisecond, &redislock.Options{Explain: true})
		refused := spec.Refusal(err)
		Expect(refused.Token).To(Equal(lock.Token()))
		Expect(refused.Closed).To(BeZero())
	})

	It("a Release is no loss, although the keys are gone there", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a", "b")
		on.forget(2)
		Expect(lock.Release(ctx)).To(Succeed())
		noLoss()
	})

	It("counts against a bare majority if it has gone back to an earlier holder, but nobody else gets the lock", func(ctx SpecContext) {
		Expect(on.Servers[1].Own.Set(ctx, "a", "another", time.Second).Err()).To(Succeed())
		lock := spec.Obtain(ctx, on.locks, 4*time.Second, nil, "a")
		on.forget(2)
		Expect(on.Servers[2].Own.Set(ctx, "a", "earlier", 2*time.Second).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, 4*time.Second, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		on.expectAlone(ctx, 3*time.Second)
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
	})

	It("a Release during a renewal that is on its way there leaves no key", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 3*time.Second, "a")
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		on.forget(2)
		late := on.Break(2, ours("refresh", 1, faultproxy.DelayRequest(400*time.Millisecond)))[0]
		<-late.Hit()
		time.Sleep(10 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(800 * time.Millisecond)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
		noLoss()
	})

	It("a Refresh that waits for another one sends nothing after a Release", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		for i := range on.Servers {
			on.Break(i, ours("refresh", 1, faultproxy.DelayRequest(400*time.Millisecond)))
		}
		short := spec.Within(ctx, 100*time.Millisecond)
		Expect(lock.Refresh(short, 1*time.Second, nil)).NotTo(Succeed())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = lock.Refresh(ctx, 4*time.Second, nil)
		}()
		time.Sleep(10 * time.Millisecond)
		on.forget(2)
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(1200 * time.Millisecond)
		<-ended
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
	})

	It("Attach asks the others", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		on.forget(2)
		attached, err := on.other.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(attached.Refresh(ctx, 4*time.Second, nil)).To(Succeed())
	})

	It("one server after the other may forget, each when the one before has opened", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 3*time.Second, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for round := range 6 {
			on.forget(round % 3)
			on.expectAlone(ctx, maxTTL+1200*time.Millisecond)
		}
		Expect(kept.Err()).NotTo(HaveOccurred())
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(3, lock.Token()))) // unless another call had it just now
		Expect(eventsOf[redislock.GuardClosed](on)).To(HaveLen(6))
		noLoss()
	})
})

var _ = describeGuarded("a Release", 0, func(on *guarded) {
	It("frees what a late refresh has put back after a renewal had found the keys lost", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 5*time.Second, "a")
		on.Break(2, ours("refresh", 1, faultproxy.DelayRequest(3*time.Second)))
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		_, stop := lock.KeepAlive(ctx)
		time.Sleep(2500 * time.Millisecond)
		stop()
		on.forget(2)
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(2 * time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
	})

	It("frees what a late refresh puts back after it, also while the server is being asked for the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, time.Second, "a")
		broken := on.Break(2, ours("refresh", 1, faultproxy.DelayRequest(3*time.Second)),
			ours("obtain", 0, faultproxy.DelayReply(100*time.Millisecond)))
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed())
		time.Sleep(1500 * time.Millisecond) // server 2 does not have the key any more
		on.forget(2)
		Expect(lock.Refresh(ctx, 5*time.Second, nil)).To(Succeed()) // begins a mend
		time.Sleep(50 * time.Millisecond)
		Expect(broken[1].Count()).To(Equal(1))
		Expect(lock.Release(ctx)).To(Succeed())
		time.Sleep(4 * time.Second)
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, "")))
	})
})

var _ = describeGuarded("while two servers have forgotten,", 0, func(on *guarded) {
	It("obtains are refused, and the error says until when the first of them stays closed", func(ctx SpecContext) {
		on.forget(1)
		_, _ = on.locks.Obtain(ctx, "b", 200*time.Millisecond, nil)
		time.Sleep(2 * time.Second)
		on.forget(2)
		for _, opt := range []*redislock.Options{nil, {Explain: true}} {
			_, err := on.locks.Obtain(ctx, "a", 200*time.Millisecond, opt)
			refused := spec.Refusal(err)
			Expect(refused.Closed).To(BeNumerically("~", 4*time.Second, 200*time.Millisecond))
			Expect(refused.Key).To(BeEmpty())
		}
		time.Sleep(4200 * time.Millisecond)
		spec.Obtain(ctx, on.locks, 200*time.Millisecond, nil, "a")
	})

	DescribeTable("an obtain that waits is granted when a majority is open", func(ctx SpecContext, opt redislock.Options) {
		on.forget(1, 2)
		began := time.Now()
		spec.Obtain(spec.Within(ctx, time.Hour), on.locks, 400*time.Millisecond, &opt, "a")
		Expect(time.Since(began)).To(BeNumerically("~", maxTTL, 700*time.Millisecond))
	},
		Entry("with a strategy", redislock.Options{RetryStrategy: redislock.LinearBackoff(200 * time.Millisecond)}),
		Entry("in line", redislock.Options{Queue: true}),
	)

	It("a kept lock lapses rather than being confirmed by them, and nobody else has it before that", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 3*time.Second, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(1200 * time.Millisecond)
		on.forget(1, 2)
		until := lock.Until()
		for kept.Err() == nil {
			_, err := on.stranger(ctx)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			time.Sleep(100 * time.Millisecond)
		}
		Expect(time.Now()).To(BeTemporally("~", until, 200*time.Millisecond))
		Expect(context.Cause(kept)).To(And(MatchError(redislock.ErrLapsed), MatchError(ContainSubstring("the guard is closed"))))
		Expect(lock.Refresh(ctx, 200*time.Millisecond, nil)).To(BeIdenticalTo(redislock.ErrNotObtained))
		time.Sleep(12 * time.Second)
		Expect(lock.Until()).To(BeTemporally("<=", until))
		lost := eventsOf[redislock.Lost](on)
		Expect(lost).To(HaveLen(1))
		Expect(lost[0].Cause).To(Equal(redislock.LossLapsed))
		_, err := on.stranger(ctx)
		Expect(err).NotTo(HaveOccurred())
	})

	It("without the guard, another gets the lock while we hold it", func(ctx SpecContext) {
		locks, other := on.connect(spec.Ours), on.connect(spec.Theirs)
		lock := spec.Obtain(ctx, locks, 3*time.Second, nil, "a")
		time.Sleep(200 * time.Millisecond)
		on.forget(1, 2)
		second := spec.Obtain(ctx, other, 200*time.Millisecond, nil, "a")
		Expect(lock.Until()).To(BeTemporally(">", second.Until()))
	})

	It("Attach is refused", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		on.forget(1, 2)
		_, err := on.other.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).To(And(MatchError(redislock.ErrNotObtained), Not(MatchError(redislock.ErrLockNotHeld))))
		Expect(err).To(MatchError(ContainSubstring("the guard is closed")))
	})

	It("a Release is no loss", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 4*time.Second, "a")
		on.forget(1, 2)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(eventsOf[redislock.Lost](on)).To(BeEmpty())
	})
})

var _ = describeGuarded("where a deposed master may go on granting,", time.Second, func(on *guarded) {
	It("a server that has just forgotten renews nothing, and the others keep the lock", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 3*time.Second, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(900 * time.Millisecond) // a renewal is due soon
		counted := on.Servers[2].Memory.Add(ours("refresh", 0, passes))
		on.forget(2)
		time.Sleep(1050 * time.Millisecond)
		Expect(counted.Count()).To(BeNumerically(">", 0))
		Expect(has(ctx, on.Quorum, 2)).To(BeZero())
		Expect(counted.Count()).To(BeNumerically("<=", 4))
		time.Sleep(1200 * time.Millisecond)
		Expect(has(ctx, on.Quorum, 2)).To(BeEquivalentTo(1))
		time.Sleep(12 * time.Second)
		Expect(kept.Err()).NotTo(HaveOccurred())
		Expect(eventsOf[redislock.Lost](on)).To(BeEmpty())
		Expect(eventsOf[redislock.Restored](on)).To(HaveLen(1))
	})

	It("a Refresh does not wait for it", func(ctx SpecContext) {
		lock := on.everywhere(ctx, 3*time.Second, "a")
		on.forget(2)
		began := time.Now()
		Expect(lock.Refresh(ctx, 3*time.Second, nil)).To(Succeed())
		Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
	})
})
