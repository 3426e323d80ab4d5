package several_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = describeSchedules("what a Release says where a reply is lost or late:", func(on *schedule) {
	unknown := func(err error) {
		GinkgoHelper()
		Expect(err).To(HaveOccurred())
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
	}

	// hasExpired obtains "a", whose hold at server 1 has run out although a majority has confirmed a longer ttl. The Refresh
	// meets one action there, and the first release another one.
	hasExpired := func(ctx SpecContext, refresh, release faultproxy.Action) *redislock.Lock {
		GinkgoHelper()
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
		on.Break(1, ours("refresh", 0, refresh), ours("release", 1, release))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by 0 and 2
		time.Sleep(1500 * time.Millisecond)
		Expect(time.Until(lock.Until())).To(BeNumerically(">", 50*time.Second))
		on.Servers[2].Memory.Memory.Del("a")
		return lock
	}

	It("nobody knows of a server whose key may have expired before an unanswered release", func(ctx SpecContext) {
		lock := hasExpired(ctx, requestLost, requestLost)
		Expect(has(ctx, on.Quorum, 1)).To(BeZero(), "expired")
		for range 2 {
			err := lock.Release(ctx)
			unknown(err)
			Expect(err).To(MatchError(ContainSubstring("server 2 (127.0.0.1:0): redislock: release \"a\": nobody knows")))
		}
	})

	It("nobody knows of it either if the release has freed the key", func(ctx SpecContext) {
		unknown(hasExpired(ctx, replyLost, replyLost).Release(ctx))
	})

	It("nobody knows of a server that has refused all releases until its key had expired", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
		on.start = time.Now()
		loading := faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")
		on.Break(1, ours("refresh", 0, requestLost), during("release", on.start, 0, 1050*time.Millisecond, loading),
			ours("release", 1, requestLost))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // by 0 and 2
		on.at(900 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("a")
		Expect(lock.Release(ctx)).To(MatchError(ContainSubstring("LOADING")))
		on.at(1200 * time.Millisecond)
		Expect(has(ctx, on.Quorum, 1)).To(BeZero(), "expired")
		unknown(lock.Release(ctx))
	})

	It("nobody knows of a server that never had the keys of an attached handle", func(ctx SpecContext) {
		on.Break(1, theirs("obtain", 0, requestLost))
		lock := spec.Obtain(ctx, on.other, time.Minute, nil, "a")
		time.Sleep(500 * time.Millisecond)
		Expect(has(ctx, on.Quorum, 1)).To(BeZero())
		on.Break(1, ours("inspect", 0, requestLost), ours("release", 1, requestLost))
		attached, err := on.Locks.Attach(ctx, lock.Keys(), lock.Token())
		Expect(err).NotTo(HaveOccurred())
		time.Sleep(100 * time.Millisecond)
		on.Servers[2].Memory.Memory.Del("a")
		Expect(attached.Release(ctx)).NotTo(Succeed())
	})

	It("nobody knows of a server where another has one of the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Hour).Err()).To(Succeed())
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(time.Second) // mends refused
		on.Servers[1].Memory.Memory.FlushAll()
		on.Break(2, ours("release", 1, replyLost))
		Expect(lock.Release(ctx)).To(HaveOccurred())
	})

	It("nobody knows of a server where an old obtain is not answered, and the reply to a release is lost", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(900*time.Millisecond)), ours("release", 1, replyLost))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(30 * time.Millisecond)
		Expect(has(ctx, on.Quorum, 2)).To(Equal(int64(1)))
		on.Servers[1].Memory.Memory.Del("a")
		unknown(lock.Release(ctx))
	})

	It("an error names a server that answers neither the obtain nor the release in time", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		late := faultproxy.DelayReply(400 * time.Millisecond)
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(900*time.Millisecond)), ours("release", 0, late))
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(30 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("a")
		Expect(has(ctx, on.Quorum, 0) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
		on.start = time.Now()
		err := lock.Release(ctx)
		unknown(err)
		Expect(err).To(MatchError(ContainSubstring("server 3 (127.0.0.1:0): redislock: release \"a\": no answer from Redis")))
		Expect(time.Since(on.start)).To(BeNumerically("~", 250*time.Millisecond, 10*time.Millisecond))
		on.at(2 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("nothing is lost if a mend that is not answered has given a majority the keys", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		on.Servers[2].Memory.Memory.Del("a")
		on.Break(2, ours("obtain", 1, faultproxy.DelayReply(200*time.Millisecond)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(50 * time.Millisecond)
		Expect(has(ctx, on.Quorum, 2)).To(Equal(int64(1)))
		on.Servers[1].Memory.Memory.Del("a")
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("the lock is lost at once where a majority is known to have lost it, however silent the others are", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		on.Servers[1].Memory.Memory.Del("a")
		on.Servers[2].Memory.Memory.Del("a")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(MatchError(redislock.ErrNotObtained))
		on.Servers[0].Hang()
		on.start = time.Now()
		Expect(lock.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(time.Since(on.start)).To(BeNumerically("<", 5*time.Millisecond))
		on.Servers[0].Restore()
	})

	It("some keys may be lost, and not all, of a lock of which the loss of one was known", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		for i, s := range on.Servers {
			s.Memory.Memory.Del("a")
			on.Break(i, ours("release", 1, replyLost))
		}
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(BeAssignableToTypeOf(&redislock.LostError{}))
		err := lock.Release(ctx)
		Expect(err).To(HaveOccurred())
		Expect(err).NotTo(Equal(redislock.ErrLockNotHeld))
	})

	It("nothing is lost at a server that has lost no key, although a mend is under way", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
		mends := on.Break(2, ours("refresh", 0, replyLost), ours("obtain", 1, faultproxy.DelayRequest(200*time.Millisecond)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // executed at 2, which is not known
		time.Sleep(1100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend at 2
		time.Sleep(20 * time.Millisecond)
		Expect(mends[1].Count()).To(Equal(1))
		on.Servers[1].Memory.Memory.Del("a")
		Expect(has(ctx, on.Quorum, 0)+has(ctx, on.Quorum, 2)).To(Equal(int64(2)), "a majority has the lock")
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("the lock is not lost at such a server if the release is not answered, and the mend is refused", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Second, nil, "a")
		on.Break(2, ours("refresh", 0, replyLost), ours("release", 1, replyLost),
			ours("obtain", 1, faultproxy.DelayRequest(150*time.Millisecond)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		time.Sleep(1100 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(20 * time.Millisecond)
		on.Servers[1].Memory.Memory.Del("a")
		Expect(has(ctx, on.Quorum, 0) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
		time.AfterFunc(60*time.Millisecond, func() {
			on.Servers[2].Own.Set(context.Background(), "a", "another", time.Minute)
		})
		unknown(lock.Release(ctx))
	})

	It("nothing is lost where a mend has overtaken the obtain, which was granted", func(ctx SpecContext) {
		locks := on.connect(ctx, patient)
		mend := faultproxy.DelayReply(500 * time.Millisecond).And(faultproxy.DelayRequest(200 * time.Millisecond))
		obtains := on.Break(2, ours("obtain", 1, faultproxy.DelayRequest(100*time.Millisecond)), ours("obtain", 1, mend))
		on.start = time.Now()
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		on.at(20 * time.Millisecond)
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		on.at(130 * time.Millisecond)                             // 2 has granted the obtain, and said so
		Expect(obtains[1].Count()).To(Equal(1))
		on.Servers[1].Memory.Memory.Del("a")
		Expect(has(ctx, on.Quorum, 0) + has(ctx, on.Quorum, 2)).To(Equal(int64(2)))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("only the key is lost that a majority lacks, although a mend is under way", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a", "b")
		on.Servers[2].Memory.Memory.Del("b")
		on.Break(2, ours("obtain", 0, faultproxy.DelayRequest(time.Minute)))
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed()) // begins the mend
		time.Sleep(50 * time.Millisecond)
		on.Servers[0].Memory.Memory.FlushAll()
		err := lock.Release(ctx)
		Expect(err).To(HaveField("Keys", []string{"b"}))
	})

	It("nothing is lost at a server that was known to have the keys before an unanswered release", func(ctx SpecContext) {
		lock := on.everywhere(ctx, on.Locks, time.Minute, nil, "a")
		on.Break(1, ours("release", 1, replyLost))
		on.Break(2, ours("release", 0, requestLost))
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("two that run while the Client is closed say the same", func(ctx SpecContext) {
		locks := on.connect(ctx, nil)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		time.Sleep(50 * time.Millisecond)
		for i := range 3 {
			slow := faultproxy.DelayReply(time.Duration(50+50*i) * time.Millisecond)
			on.Break(i, ours("release", 1, slow), ours("release", 1, replyLost))
		}
		var all sync.WaitGroup
		errs := make([]error, 2)
		for k := range errs {
			all.Go(func() { errs[k] = lock.Release(ctx) })
			time.Sleep(time.Millisecond)
		}
		Expect(locks.Close()).To(Succeed())
		all.Wait()
		Expect(errs).To(HaveEach(BeNil()))
	})
})
