package ls

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

var _ = Describe("ls of shared keys", func() {
	on := clitest.OnServer()

	share := func(ctx context.Context, client redis.UniversalClient, key, token, metadata string, limit int) *redislock.Lock {
		GinkgoHelper()
		opt := &redislock.Options{Token: token, Metadata: metadata, Permits: map[string]int{key: limit}}
		if limit == 0 {
			opt.Permits, opt.Shared = nil, []string{key}
		}
		lock, err := redislock.Obtain(ctx, client, key, longTTL, opt)
		Expect(err).NotTo(HaveOccurred())
		return lock
	}
	fill := func(ctx context.Context, client redis.UniversalClient) {
		GinkgoHelper()
		for _, token := range []string{tokenOf(1), tokenOf(2), tokenOf(3)} {
			share(ctx, client, "catalog", token, "job "+token[21:], 0)
		}
		share(ctx, client, "gpu", tokenOf(4), clitest.Bob, 4)
		share(ctx, client, "gpu", "custom", "", 8)
		Expect(client.Set(ctx, "alone", tokenOf(5), longTTL).Err()).To(Succeed())
		Expect(client.Set(ctx, "alone{alone}:redislock:house", "a string", longTTL).Err()).To(Succeed())
	}

	It("shows how many hold them, and how many may, but no house", func(ctx SpecContext) {
		fill(ctx, on.Client)
		const rows = "KEY      HOLDER          PID  COMMAND  AGE    TTL  LINE\n" +
			"alone    -                 -  -          -  3d04h     0\n" +
			"catalog  3 holders         -  -          -  3d04h     0\n" +
			"gpu      2 of 4 holders    -  -          -  3d04h     0\n"
		Expect(clitest.Stdout(on.Run("ls"))).To(Equal(rows))
		Expect(clitest.Stdout(on.Run("ls", "--all"))).To(Equal(rows))
		Expect(clitest.Stdout(on.Run("ls", "-o", "template={key} {holders} {limit}"))).To(Equal("alone 1 1\ncatalog 3 0\ngpu 2 4\n"))
	})

	It("reads them from a Redis in memory as well", func(ctx SpecContext) {
		_, _, url := clitest.NewMemory()
		opt, err := redis.ParseURL(url)
		Expect(err).NotTo(HaveOccurred())
		client := redis.NewClient(opt)
		DeferCleanup(client.Close)
		fill(ctx, client)
		Expect(clitest.Stdout(clitest.Run(url, "ls", "-o", "template={key} {holder}"))).To(
			Equal("alone \ncatalog 3 holders\ngpu 2 of 4 holders\n"))
	})

	DescribeTable("shows only what is asked for", func(ctx SpecContext, args []string, keys ...string) {
		fill(ctx, on.Client)
		session := on.Run(append([]string{"ls", "--no-header"}, args...)...)
		Expect(session).To(gexec.Exit(0))
		Expect(keysShown(session)).To(Equal(append([]string{}, keys...)))
	},
		Entry("by the token of any holder", []string{"--token", tokenOf(2)}, "catalog"),
		Entry("by the beginning of a custom one", []string{"--token", "cus"}, "gpu"),
		Entry("by the metadata of any holder", []string{"--meta", "job 3"}, "catalog"),
		Entry("by both of one holder", []string{"--meta", "job 3", "--token", tokenOf(3)}, "catalog"),
		Entry("not by those of two", []string{"--meta", "job 3", "--token", tokenOf(2)}),
		Entry("a key", []string{"gpu"}, "gpu"),
		Entry("not a house", []string{"catalog{catalog}:redislock:house", "--all"}),
		Entry("what somebody waits for", []string{"--waiting"}),
	)

	It("prints each holder as JSON", func(ctx SpecContext) {
		fill(ctx, on.Client)
		var got show.StatusJSON
		Expect(json.Unmarshal(on.Run("ls", "--json", "gpu").Out.Contents(), &got)).To(Succeed())
		Expect(got.HolderCount).To(Equal(2))
		Expect(*got.Limit).To(Equal(4))
		Expect(got.Holders).To(HaveLen(2))
		Expect(got.Holders).To(ContainElement(And(HaveField("Token", tokenOf(4)), HaveField("Limit", 4),
			HaveField("Fields", MatchJSON(clitest.Bob)), HaveField("TTL", BeNumerically("~", longTTL.Milliseconds(), 60_000)))))
		Expect(clitest.Stdout(on.Run("ls", "--json", "alone"))).NotTo(ContainSubstring("holder"))
	})

	It("counts who waits for one", func(ctx SpecContext) {
		fill(ctx, on.Client)
		clitest.WaitInLine(ctx, on.Client, "gpu")
		Expect(clitest.Stdout(on.Run("ls", "--waiting", "-o", "template={key} {line}"))).To(Equal("gpu 1\n"))
	})

	It("shows with --watch who has come", func(ctx SpecContext) {
		fill(ctx, on.Client)
		session := clitest.Begin(on.URL, "ls", "--watch=100ms", "-o", "template={key} {holders}", "catalog")
		Eventually(session.Out).Should(gbytes.Say("catalog 3\n"))
		share(ctx, on.Client, "catalog", tokenOf(9), "", 0)
		Eventually(session.Out).Should(gbytes.Say("catalog 4\n"))
		session.Interrupt()
		Eventually(session).Should(gexec.Exit())
	})

	It("shows those that a majority of a quorum holds", func(ctx SpecContext) {
		_, _, urls, locks := clitest.NewQuorum()
		for range 2 {
			_, err := locks.Obtain(ctx, "a", time.Minute, &redislock.Options{Shared: []string{"a"}})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(clitest.Stdout(clitest.Run(urls, "ls", "-o", "template={key} {holder}"))).To(Equal("a 2 holders\n"))
	})
})
