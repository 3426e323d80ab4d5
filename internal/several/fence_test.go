package several_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/spec"
)

// joining returns what matches an obtain of one key that brings a place to a lock that is made already: it wants no
// fencing token.
func joining() func(args []string) bool {
	const keys, fenced = 3, 4 // where they begin, and ARGV[5] among the arguments
	obtains := spec.Running("obtain")
	return func(args []string) bool {
		n, _ := strconv.Atoi(args[keys-1])
		return obtains(args) && args[keys+n+fenced] == "0"
	}
}

var _ = spec.DescribeQuorum("a fencing token", func(on *spec.Quorum) {
	opt := &redislock.Options{FenceKey: "fence", Queue: true}

	It("needs one round trip, also after a long wait in line", func(ctx SpecContext) {
		raised, joined := on.CountCalls(spec.Running("fence")), on.CountCalls(joining())
		lock := spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), lock.Token())))
		granted := make(chan *redislock.Lock)
		go func() {
			defer GinkgoRecover()
			defer close(granted)
			granted <- spec.Obtain(ctx, on.Locks, time.Minute, opt, "a")
		}()
		time.Sleep(3 * time.Second)
		Expect(lock.Release(ctx)).To(Succeed())
		var next *redislock.Lock
		Eventually(granted).Should(Receive(&next))
		Eventually(on.Values).WithArguments(ctx, "a").Should(Equal(spec.Same(len(on.Servers), next.Token())))
		Expect(raised.Count()).To(BeNumerically("<=", joined.Count()), "only where the release came after the obtain")
		Expect(next.FenceToken()).To(BeNumerically(">", lock.FenceToken()))
		for _, s := range on.Servers {
			Expect(s.Own.Get(ctx, "fence").Int64()).To(Equal(next.FenceToken()), s.Name)
		}
		Expect(next.Release(ctx)).To(Succeed())
	})
})
