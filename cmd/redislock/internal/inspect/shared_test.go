//go:build unix

package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

var _ = Describe("inspect of a shared key", func() {
	on := clitest.OnServer()

	share := func(ctx context.Context, token, metadata string, ttl time.Duration, limit int) {
		GinkgoHelper()
		opt := &redislock.Options{Token: token, Metadata: metadata, Permits: map[string]int{"a": limit}}
		if limit == 0 {
			opt.Permits, opt.Shared = nil, []string{"a"}
		}
		_, err := redislock.Obtain(ctx, on.Client, "a", ttl, opt)
		Expect(err).NotTo(HaveOccurred())
	}

	It("shows each holder, the longest first", func(ctx SpecContext) {
		share(ctx, "token-1", "job 7\x1b[2J", 30*time.Second, 0)
		share(ctx, "token-2", clitest.Bob, time.Minute, 4)
		session := on.Run("inspect", "a")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^a
  shared   2 of 4 holders
  holder   token-2: bob@api-3, pid 4121 \(\./ship 7\), held for \d+d\d\dh, 5\ds left, at most 4 holders
  holder   token-1: job 7\\x1b\[2J, 2\ds left
  left     5\ds
  in line  nobody
$`))
	})

	It("shows a hundred, and says how many more there are", func(ctx SpecContext) {
		for i := range 103 {
			share(ctx, fmt.Sprint("token-", i), "", time.Minute, 0)
		}
		Expect(clitest.Stdout(on.Run("inspect", "a"))).To(MatchRegexp(
			`^a\n  shared   103 holders\n(  holder   token-\d+, 5\ds left\n){100} +… and 3 more\n  left     5\ds\n`))
	})

	It("prints JSON", func(ctx SpecContext) {
		share(ctx, "token-1", "job 7", 30*time.Second, 0)
		share(ctx, "token-2", clitest.Bob, time.Minute, 4)
		var seen show.StatusJSON
		Expect(json.Unmarshal(on.Run("inspect", "--json", "a").Out.Contents(), &seen)).To(Succeed())
		Expect(seen.Token).To(Equal("token-2"))
		Expect(seen.HolderCount).To(Equal(2))
		Expect(*seen.Limit).To(Equal(4))
		Expect(seen.Holders).To(HaveExactElements(
			And(HaveField("Token", "token-2"), HaveField("Metadata", clitest.Bob), HaveField("Limit", 4),
				HaveField("Fields", MatchJSON(clitest.Bob)), HaveField("HeldSince", Not(BeNil())),
				HaveField("TTL", BeNumerically("~", 60_000, 5_000))),
			And(HaveField("Token", "token-1"), HaveField("Metadata", "job 7"), HaveField("Limit", 0),
				HaveField("HeldSince", BeNil()), HaveField("TTL", BeNumerically("~", 30_000, 5_000))),
		))
	})
})
