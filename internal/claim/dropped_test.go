package claim_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

// slowReleases is a client type of the caller's own. Its releases wait until they are let go.
type slowReleases struct {
	redis.Scripter
	pass chan struct{} // closed to let the releases go
	last chan error    // what the release of the key "last" is answered
}

func (s *slowReleases) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !spec.Running("release")([]string{"evalsha", sha}) {
		return s.Scripter.EvalSha(ctx, sha, keys, args...)
	}
	if keys[0] != "last" {
		<-s.pass
	} else if err := <-s.last; err != nil {
		return redis.NewCmdResult(nil, err)
	}
	return s.Scripter.EvalSha(ctx, sha, keys, args...)
}

var _ = spec.DescribeOnRedis("A Tracer of a Client that has no room for another cleanup", func(on *spec.Redis) {
	const room = 10_000 // see docs/guarantees.md

	It("gets CleanedUp with Dropped, and may call Release again", func(ctx SpecContext) {
		seen := &spec.Recorder{}
		var lock *redislock.Lock
		again := make(chan error, 1)
		client := &slowReleases{Scripter: on.Client, pass: make(chan struct{}), last: make(chan error, 2)}
		letGo := sync.OnceFunc(func() { close(client.pass) })
		DeferCleanup(letGo)
		locks := redislock.New(client, redislock.WithTracer(&redislock.Tracer{
			CleanedUp: func(called context.Context, e redislock.CleanedUp) {
				seen.Tracer().CleanedUp(called, e)
				if e.Dropped {
					client.last <- errors.New("down")
					client.last <- nil
					again <- lock.Release(ctx)
				}
			},
		}))
		DeferCleanup(locks.Close)
		abandon := func(lock *redislock.Lock) {
			defer GinkgoRecover()
			limited, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			Expect(lock.Release(limited)).To(MatchError(context.DeadlineExceeded))
		}
		var wait sync.WaitGroup
		other := redislock.New(client) // there is room for all Clients of one Redis client together
		DeferCleanup(other.Close)
		const cleanups = 200
		DeferCleanup(spec.TakeCleanups(locks, room-cleanups)) // so many take seconds
		for i := range cleanups {
			locks := locks
			if i%2 == 1 {
				locks = other
			}
			held := spec.Obtain(ctx, locks, time.Minute, nil, strconv.Itoa(i))
			wait.Go(func() { abandon(held) })
		}
		wait.Wait()
		Expect(seen.Count()).To(BeZero())

		lock = spec.Obtain(ctx, locks, time.Minute, nil, "last")
		go abandon(lock)
		Eventually(again).Should(Receive(BeNil()))
		Expect(spec.EventsOf[redislock.CleanedUp](seen)).To(Equal([]redislock.CleanedUp{
			{Keys: []string{"last"}, Why: redislock.WhyRelease, Dropped: true},
		}))
		letGo()
		Eventually(seen.Count).WithTimeout(10 * time.Second).Should(Equal(cleanups/2 + 1))
		for _, e := range spec.EventsOf[redislock.CleanedUp](seen)[1:] {
			Expect(e.Err).NotTo(HaveOccurred())
			Expect(e.Dropped).To(BeFalse())
		}
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(10 * time.Second).Should(BeEmpty())
	})

	It("has room, however many waiters are leaving", func(ctx SpecContext) {
		seen := &spec.Recorder{}
		client := &slowReleases{Scripter: on.Client, pass: make(chan struct{})}
		letGo := sync.OnceFunc(func() { close(client.pass) })
		DeferCleanup(letGo)
		locks := redislock.New(client, redislock.WithTracer(&redislock.Tracer{CleanedUp: seen.Tracer().CleanedUp}))
		DeferCleanup(locks.Close)
		DeferCleanup(spec.TakeCleanups(locks, room-100)) // some waiters may leave a request that acquires behind
		held, lock := spec.Obtain(ctx, locks, time.Minute, nil, "a"), spec.Obtain(ctx, locks, time.Minute, nil, "b")
		limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		var wait sync.WaitGroup
		for range 200 {
			wait.Go(func() { _, _ = locks.Obtain(limited, "a", time.Minute, &redislock.Options{Queue: true}) })
		}
		wait.Wait()
		Expect(lock.Release(spec.Within(ctx, 5*time.Millisecond))).To(MatchError(context.DeadlineExceeded))
		Expect(seen.Count()).To(BeZero())
		letGo()
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(10 * time.Second).Should(Equal([]string{"a"}))
		Expect(held.Release(ctx)).To(Succeed())
	})
})
