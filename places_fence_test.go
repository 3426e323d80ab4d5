package redislock_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

// countCalls counts the scripts that match, at all servers from now on.
func (on *quorum) countCalls(match func(args []string) bool) *calls {
	sent := &calls{match: match}
	for _, s := range on.servers {
		s.client.AddHook(sent)
	}
	return sent
}

// joining returns what matches an obtain of one key that brings a place to a lock that is made already: it wants no
// fencing token.
func joining() func(args []string) bool {
	const keys, fenced = 3, 4 // where they begin, and ARGV[5] among the arguments
	obtains := running("obtain")
	return func(args []string) bool {
		n, _ := strconv.Atoi(args[keys-1])
		return obtains(args) && args[keys+n+fenced] == "0"
	}
}

var _ = describeQuorum("a fencing token", func(on *quorum) {
	opt := &redislock.Options{FenceKey: "fence", Queue: true}

	It("needs one round trip, also after a long wait in line", func(ctx SpecContext) {
		raised, joined := on.countCalls(running("fence")), on.countCalls(joining())
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
		Expect(raised.count()).To(BeNumerically("<=", joined.count()), "only where the release came after the obtain")
		Expect(next.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		for _, s := range on.servers {
			Expect(s.own.Get(ctx, "fence").Int64()).To(Equal(next.FenceToken()), s.name)
		}
		Expect(next.Release(ctx)).To(Succeed())
	})
})
