//go:build unix

package wait

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("wait for shared keys", func() {
	on := clitest.OnServer()

	share := func(ctx context.Context, key string, limit int) *redislock.Lock {
		GinkgoHelper()
		opt := &redislock.Options{Metadata: clitest.Bob, Permits: map[string]int{key: limit}}
		if limit == 0 {
			opt.Permits, opt.Shared = nil, []string{key}
		}
		lock, err := redislock.Obtain(ctx, on.Client, key, time.Minute, opt)
		Expect(err).NotTo(HaveOccurred())
		return lock
	}

	DescribeTable("ends if one more can hold the key", func(ctx SpecContext, limit, code int, args ...string) {
		share(ctx, "a", limit)
		share(ctx, "a", limit)
		Expect(on.Run(append([]string{"wait", "--wait", "0"}, args...)...)).To(gexec.Exit(code))
	},
		Entry("beside other sharers", 0, 0, "--shared", "a"),
		Entry("with a limit of its own", 0, 0, "--permit", "a=3"),
		Entry("with a limit that is too small", 0, 1, "--permit", "a=2"),
		Entry("with a limit of others", 3, 0, "--shared", "a"),
		Entry("with a limit of others that is too small", 2, 1, "--shared", "a"),
		Entry("not exclusively", 0, 1, "a"),
		Entry("with another key that is free", 0, 0, "b", "--shared", "a"),
	)

	It("ends when a permit is released", func(ctx SpecContext) {
		first := share(ctx, "a", 2)
		share(ctx, "a", 2)
		session := clitest.Begin(on.URL, "wait", "--permit", "a=2")
		Consistently(session, "200ms").ShouldNot(gexec.Exit())
		Expect(first.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
	})

	It("says who holds it", func(ctx SpecContext) {
		share(ctx, "a", 0)
		share(ctx, "a", 0)
		session := on.Run("wait", "a", "--wait", "0")
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not free: "a" is held by bob@api-3, pid 4121 (./ship 7) and 1 more, 5`))
	})

	DescribeTable("refuses what is not clear", func(words string, args ...string) {
		session := clitest.Run("redis://127.0.0.1:1", append([]string{"wait"}, args...)...)
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(ContainSubstring(words))
	},
		Entry("no key", "wait needs a KEY"),
		Entry("no number", "write it as KEY=N", "--permit", "a"),
		Entry("both ways", "name it once", "a", "--shared", "a"),
	)
})
