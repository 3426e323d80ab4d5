package redislock_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// sends counts the commands that a Redis client sends and that match.
type sends struct {
	match func(args []string) bool
	n     atomic.Int64
}

func (s *sends) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd)
		return next(ctx, cmd)
	}
}

func (s *sends) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.note(cmd)
		}
		return next(ctx, cmds)
	}
}

func (s *sends) note(cmd redis.Cmder) {
	var args []string
	for _, arg := range cmd.Args() {
		text, _ := arg.(string)
		args = append(args, text)
	}
	if s.match(args) {
		s.n.Add(1)
	}
}

// countSends counts the calls of one script to all servers from now on.
func (on *quorum) countSends(script string) func() int64 {
	counter := &sends{match: running(script)}
	for _, s := range on.servers {
		s.client.AddHook(counter)
	}
	return counter.n.Load
}

var _ = describeQuorum("a fencing token", func(on *quorum) {
	opt := &redislock.Options{FenceKey: "fence", Queue: true}

	It("needs one round trip, also after a long wait in line", func(ctx SpecContext) {
		raised := on.countSends("fence")
		lock := obtain(ctx, on.locks, time.Minute, opt, "a")
		Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(len(on.servers), lock.Token())))
		granted := make(chan *redislock.Lock)
		go func() {
			defer GinkgoRecover()
			defer close(granted)
			granted <- obtain(ctx, on.locks, time.Minute, opt, "a")
		}()
		time.Sleep(3 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		var next *redislock.Lock
		Eventually(granted).Should(Receive(&next))
		Eventually(on.values).WithArguments(ctx, "a").Should(Equal(same(len(on.servers), next.Token())))
		Expect(raised()).To(BeZero())
		Expect(next.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		for _, s := range on.servers {
			Expect(s.own.Get(ctx, "fence").Int64()).To(Equal(next.FenceToken()), s.name)
		}
		Expect(next.Release(ctx)).To(Succeed())
	})
})
