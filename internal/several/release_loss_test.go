package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = describeSchedules("what a Release says:", func(on *schedule) {
	// overtaken obtains "a". The obtain is broken at server 2, so a mend overtakes it, and is granted.
	overtaken := func(ctx SpecContext, obtain faultproxy.Action, more ...faultproxy.Rule) *redislock.Lock {
		GinkgoHelper()
		locks := on.connect(ctx, patient)
		obtains := on.Break(2, append([]faultproxy.Rule{ours("obtain", 1, obtain), ours("obtain", 0, passes)}, more...)...)
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.at(20 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		on.at(50 * time.Millisecond)
		Expect(obtains[1].Count()).To(Equal(1))
		return lock
	}

	// forgotten makes server 0 forget "a" for good, which the lock then knows.
	forgotten := func(ctx SpecContext, lock *redislock.Lock) {
		GinkgoHelper()
		on.Servers[0].Memory.Memory.Del("a")
		on.Break(0, ours("obtain", 0, requestLost))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
	}

	It("one that follows another counts the server where the first one has freed the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		on.Servers[1].Hang()
		on.Servers[2].Hang()
		Expect(lock.Release(spec.Within(ctx, 100*time.Millisecond))).To(MatchError(context.DeadlineExceeded)) // 0 has freed the keys
		on.Servers[1].Restore()
		Expect(lock.Release(spec.Within(ctx, time.Second))).To(Succeed()) // by 0 and 1
		on.Servers[2].Restore()
		Eventually(on.LeftKeys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("nothing is lost if an earlier one has freed the keys, but has heard nothing", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		for i := range on.Servers {
			on.Break(i, ours("release", 0, faultproxy.CutClient()))
		}
		Expect(lock.Release(spec.Within(ctx, 100*time.Millisecond))).NotTo(Succeed())
		on.Heal()
		time.Sleep(5 * time.Second)
		Expect(on.LeftKeys(ctx)).To(BeEmpty())
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("nothing is lost of what an earlier one has freed in the background", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, on.Locks, time.Minute, nil, "a")
		on.at(100 * time.Millisecond)
		for _, s := range on.Servers[1:] {
			s.Memory.Refuse()
		}
		_, _ = lock.TTL(ctx) // notices that the connections are broken
		Expect(lock.Release(ctx)).NotTo(Succeed())
		for _, s := range on.Servers[1:] {
			s.Memory.Revive()
		}
		time.Sleep(10 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("of a lock that was found lost, it says that at once, and is sent to each server once", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		for i, s := range on.Servers {
			s.Memory.Memory.Del("a")
			on.Break(i, ours("release", 0, faultproxy.DelayReply(time.Second)))
		}
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		releases, began := on.CountCalls(spec.Running("release")), time.Now()
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
		Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		time.Sleep(10 * time.Second)
		Expect(releases.Count()).To(Equal(3))
	})

	It("some keys are lost if that was known, although a mend has acquired them again at one server", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		on.Servers[1].Memory.Memory.Del("b")
		on.Break(1, ours("obtain", 1, faultproxy.DelayReply(time.Second)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(50 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("b")
		on.Break(0, ours("refresh", 1, faultproxy.DelayReply(100*time.Millisecond)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(BeAssignableToTypeOf(&redislock.LostError{}))
		Expect(lock.Release(ctx)).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("the lock is lost, and a second one says that as well, although a mend was granted in between", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		on.Servers[0].Memory.Memory.Del("a")
		on.Break(0, ours("obtain", 1, faultproxy.DelayReply(300*time.Millisecond)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(50 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("a")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
		time.Sleep(2 * time.Second)
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
	})

	It("a second one counts the server that the first has freed, although an old obtain was refused there since", func(ctx SpecContext) {
		lock := overtaken(ctx, faultproxy.DelayRequest(400*time.Millisecond))
		Expect(on.Values(ctx, "a")).To(Equal(spec.Same(3, lock.Token())))
		on.Servers[0].Hang()
		on.Servers[1].Hang()
		Expect(lock.Release(spec.Within(ctx, 100*time.Millisecond))).NotTo(Succeed())
		Expect(has(ctx, on.Quorum, 2)).To(BeZero())
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
		time.Sleep(500 * time.Millisecond)
		on.Servers[0].Restore()
		Expect(lock.Release(spec.Within(ctx, 3*time.Second))).To(Succeed())
		on.Servers[1].Restore()
	})

	It("nothing is lost if the answer to an old obtain makes a cleanup overtake it", func(ctx SpecContext) {
		lock := overtaken(ctx, faultproxy.DelayReply(500*time.Millisecond), ours("release", 1, faultproxy.DelayRequest(300*time.Millisecond)))
		forgotten(ctx, lock)
		on.at(400 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(50*time.Second)))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("it does not wait for long for a server that is being asked for the keys again", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		on.Servers[2].Memory.Memory.Del("b")
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(time.Minute)), ours("release", 0, faultproxy.DelayReply(30*time.Second)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(50 * time.Millisecond)
		on.Servers[0].Memory.Memory.FlushAll()
		began := time.Now()
		err := lock.Release(ctx)
		Expect(err).To(MatchError(ContainSubstring("server 3")))
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
		Expect(time.Since(began)).To(BeNumerically("<", time.Second))
	})

	It("the lock is lost, and a second one says that as well, although an old obtain was answered in between", func(ctx SpecContext) {
		lock := overtaken(ctx, faultproxy.DelayReply(1500*time.Millisecond))
		on.Servers[1].Memory.Memory.Del("a")
		on.Servers[2].Memory.Memory.Del("a")
		on.Break(0, ours("release", 1, faultproxy.DelayReply(200*time.Millisecond)))
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
		on.at(3 * time.Second)
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
	})

	It("nobody knows whether a server has the keys that has not answered the obtain, and a second one knows", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(1500*time.Millisecond)))
		on.Break(0, ours("release", 1, faultproxy.DelayReply(600*time.Millisecond)))
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.at(20 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("a")
		err := lock.Release(ctx)
		Expect(err).To(MatchError(ContainSubstring("server 3")))
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
		on.at(4 * time.Second)
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
	})

	It("the lock is lost if a server has said so before it knew of a cleanup", func(ctx SpecContext) {
		lock := overtaken(ctx, faultproxy.DelayReply(500*time.Millisecond), ours("release", 1, faultproxy.DelayReply(300*time.Millisecond)))
		on.Servers[1].Memory.Memory.Del("a")
		on.Servers[2].Memory.Memory.Del("a")
		on.at(400 * time.Millisecond)
		Expect(lock.Release(ctx)).To(BeIdenticalTo(redislock.ErrLockNotHeld))
	})

	It("it frees a key that a majority has, although a server has refused the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a", "b")
		on.start = time.Now()
		on.Break(2, ours("refresh", 0, replyLost))
		for i := 1; i <= 4; i++ {
			on.at(time.Duration(i) * 300 * time.Millisecond)
			if i == 4 {
				Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			}
			Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		}
		on.at(1500 * time.Millisecond)
		on.Servers[1].Memory.Memory.FlushAll()
		err := lock.Release(ctx)
		Expect(err).To(BeAssignableToTypeOf(&redislock.LostError{}))
	})

	It("nothing is lost if another handle got the lost key back", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.other, time.Minute, nil, "a", "b")
		attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		Expect(on.Servers[2].Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(time.Second) // mends refused
		on.Servers[2].Memory.Memory.Del("b")
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		on.Servers[1].Memory.Memory.FlushAll()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("through Attach, nothing is lost if the owner got the keys back, although a mend is under way", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.other, time.Minute, nil, "a")
		attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		time.Sleep(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("a")
		on.Break(2, ours("obtain", 0, faultproxy.DelayReply(2*time.Second)))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("a")
		Expect(attached.Release(ctx)).To(Succeed())
	})

	It("the end of a ctx is no loss, although its cause is one", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		on.Servers[1].Hang()
		on.Servers[2].Hang()
		other, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(100*time.Millisecond, func() { cancel(redislock.ErrLockNotHeld) })
		err := lock.Release(other)
		Expect(err).To(MatchError(context.Canceled))
		on.Servers[1].Restore()
		on.Servers[2].Restore()
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("nothing is lost if such a cleanup begins while a release goes on in the background", func(ctx SpecContext) {
		lock := overtaken(ctx, faultproxy.DelayReply(500*time.Millisecond), ours("release", 1, faultproxy.DelayRequest(400*time.Millisecond)))
		forgotten(ctx, lock)
		on.at(300 * time.Millisecond)
		Expect(lock.Until()).To(BeTemporally(">", time.Now().Add(50*time.Second)))
		Expect(lock.Release(spec.Within(ctx, 100*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		on.at(600 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
	})
})

var _ = describeSchedules("a Release to which the replies are lost:", func(on *schedule) {
	late := faultproxy.DelayReply
	loading := faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")

	// without deletes a key at servers 1 and 2.
	without := func(key string) {
		for _, s := range on.Servers[1:] {
			s.Memory.Memory.Del(key)
		}
	}

	It("names a key that was known to be lost at a majority", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), time.Minute, nil, "a", "b")
		without("b")
		Expect(spec.LostKeys(lock.Refresh(ctx, time.Minute, nil))).To(Equal([]string{"b"}))
		for i := range on.Servers {
			on.Break(i, ours("release", 1, replyLost))
		}
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
	})

	It("names a key that a Refresh under way has found lost at a majority", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), time.Minute, nil, "a", "b")
		without("b")
		for i := range on.Servers[1:] {
			on.Break(i+1, ours("refresh", 1, late(30*time.Millisecond)), ours("release", 1, replyLost.And(late(80*time.Millisecond))))
		}
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
		time.Sleep(10 * time.Millisecond)
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
		Expect(spec.LostKeys(<-refreshed)).To(Equal([]string{"b"}))
	})

	It("names a key that a renewal under way has found lost at a majority", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), 400*time.Millisecond, nil, "a", "b")
		without("b")
		for i := range on.Servers[1:] {
			on.Break(i+1, ours("refresh", 1, late(60*time.Millisecond)), ours("release", 1, replyLost.And(late(80*time.Millisecond))))
		}
		_, stop := lock.KeepAlive(ctx)
		defer stop()
		time.Sleep(145 * time.Millisecond)
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
	})

	It("reports the loss that a Refresh has found at a majority before any request that may have freed the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), time.Minute, nil, "a")
		without("a")
		for i := range on.Servers[1:] {
			on.Break(i+1, ours("refresh", 1, late(30*time.Millisecond)),
				ours("release", 1, loading.And(late(60*time.Millisecond))), ours("release", 1, replyLost))
		}
		on.Break(0, ours("release", 1, late(time.Second)))
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
		time.Sleep(10 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(<-refreshed).To(Equal(redislock.ErrNotObtained))
	})

	It("does not take for lost what it has freed after the first Until, although a Refresh is confirmed only then", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), 400*time.Millisecond, nil, "a")
		for i := range on.Servers {
			on.Break(i, ours("refresh", 1, late(200*time.Millisecond)),
				ours("release", 1, loading.And(late(60*time.Millisecond))),
				ours("release", 1, replyLost.And(late(100*time.Millisecond))), // after Until
				ours("release", 1, loading.And(late(200*time.Millisecond))))
		}
		time.Sleep(340 * time.Millisecond)
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
		time.Sleep(10 * time.Millisecond)
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(<-refreshed).To(Equal(redislock.ErrNotObtained)) // the lock was released
	})

	DescribeTable("takes nothing for freed by itself that has expired before, although a long ttl is confirmed late that a short one has followed",
		func(ctx SpecContext, begin func(context.Context, *redislock.Lock)) {
			lock := on.everywhere(ctx, on.connect(ctx, patient), 3*time.Second, nil, "a")
			for i := range on.Servers {
				on.Break(i, ours("refresh", 1, late(450*time.Millisecond)),
					ours("release", 1, loading.And(late(200*time.Millisecond))),
					ours("release", 1, replyLost),
					ours("release", 1, loading.And(late(300*time.Millisecond))))
			}
			begin(ctx, lock)
			Expect(lock.Refresh(ctx, 200*time.Millisecond, nil)).To(Succeed())
			Expect(lock.Release(ctx)).NotTo(Succeed())
		},
		Entry("by an abandoned Refresh", func(ctx context.Context, lock *redislock.Lock) {
			Expect(lock.Refresh(spec.Within(ctx, 20*time.Millisecond), 10*time.Second, nil)).To(MatchError(context.DeadlineExceeded))
		}),
		Entry("by a renewal", func(ctx context.Context, lock *redislock.Lock) {
			_, stop := lock.KeepAlive(ctx)
			time.Sleep(1100 * time.Millisecond) // renewals are under way
			stop()
		}),
	)

	It("reports no loss of a key that a mend without an answer has acquired again", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), time.Minute, nil, "a", "b")
		on.Servers[1].Memory.Memory.Del("b")
		on.Break(1, ours("obtain", 0, replyLost))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(2 * time.Second)
		Expect(on.Values(ctx, "b")).To(Equal(spec.Same(3, lock.Token())))
		on.Servers[2].Memory.Memory.Del("b")
		on.Break(1, ours("release", 1, replyLost))
		on.Break(0, ours("release", 1, late(10*time.Second)))
		Expect(lock.Release(ctx)).NotTo(MatchError(redislock.ErrLockNotHeld))
	})

	It("reports no loss of a key that a mend has acquired again since an older Refresh found it lost", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.connect(ctx, patient), time.Second, nil, "a", "b")
		on.start = time.Now()
		on.at(500 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("b")
		at := func(ms int) faultproxy.Action {
			return faultproxy.DelayRequestUntil(on.start.Add(time.Duration(ms) * time.Millisecond))
		}
		on.Break(2, ours("refresh", 1, late(time.Second)), ours("obtain", 1, at(1530)), ours("release", 1, at(1550).And(replyLost)))
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
		on.at(1200 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed()) // begins the mend
		on.at(1440 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("b")
		on.Break(0, ours("release", 1, late(time.Second)))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("reports no loss through Attach of a key that its owner got back", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.other, time.Minute, nil, "a", "b")
		attached, err := on.connect(ctx, patient).Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		time.Sleep(100 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("b")
		on.Break(1, ours("obtain", 0, faultproxy.RefuseReply("OOM command not allowed")))
		Expect(attached.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(2 * time.Second)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // gets it back
		time.Sleep(time.Second)
		Expect(on.Values(ctx, "b")).To(Equal(spec.Same(3, lock.Token())))
		on.Servers[2].Memory.Memory.Del("b")
		on.Break(1, ours("release", 1, replyLost))
		on.Break(0, ours("release", 1, late(10*time.Second)))
		Expect(attached.Release(ctx)).NotTo(MatchError(redislock.ErrLockNotHeld))
	})

	It("knows what it has freed where an old obtain is granted after it began", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(2, ours("obtain", 1, late(900*time.Millisecond)), ours("obtain", 0, passes), ours("release", 1, replyLost))
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.at(20 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins a mend
		on.at(50 * time.Millisecond)
		on.Servers[1].Hang()
		Expect(lock.Release(spec.Within(ctx, 20*time.Millisecond))).NotTo(Succeed())
		on.at(2 * time.Second)
		err := lock.Release(spec.Within(ctx, time.Second))
		on.Servers[1].Restore()
		Expect(err).NotTo(HaveOccurred())
	})

	It("sends the event that another has a key", func(ctx SpecContext) {
		seen := &spec.Recorder{}
		clients := make([]redislock.RedisClient, len(on.Servers))
		for i, s := range on.Servers {
			client := s.Memory.Connect(spec.Ours, patient)
			DeferCleanup(client.Close)
			clients[i] = client
		}
		locks := redislock.NewQuorum(clients, redislock.WithTracer(seen.Tracer()))
		DeferCleanup(locks.Close)
		on.warm(ctx, locks)
		lock := on.everywhere(ctx, locks, time.Minute, nil, "a", "b")
		for i, s := range on.Servers[1:] {
			Expect(s.Own.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			on.Break(i+1, ours("refresh", 1, late(30*time.Millisecond)), ours("release", 1, replyLost.And(late(80*time.Millisecond))))
		}
		refreshed := make(chan error, 1)
		go func() { refreshed <- lock.Refresh(ctx, time.Minute, nil) }()
		time.Sleep(10 * time.Millisecond)
		on.Break(0, ours("release", 1, late(time.Second)))
		Expect(spec.LostKeys(lock.Release(ctx))).To(Equal([]string{"b"}))
		Expect(<-refreshed).NotTo(Succeed())
		time.Sleep(100 * time.Millisecond)
		lost := spec.EventsOf[redislock.Lost](seen)
		Expect(lost).To(HaveLen(1))
		Expect(lost[0].Cause).To(Equal(redislock.LossTaken))
	})
})
