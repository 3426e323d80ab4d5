//go:build unix

package ttl

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

func TestTTL(t *testing.T) { clitest.RunSpecs(t, "ttl") }

var _ = Describe("ttl", func() {
	on := clitest.OnServer()

	It("shows what is left", func(ctx SpecContext) {
		clitest.Hold(on.Client, "", "a")
		Expect(clitest.Stdout(on.Run("ttl", "a"))).To(MatchRegexp(`^5\ds\n$`))
		Expect(clitest.Stdout(on.Run("ttl", "--ms", "a"))).To(MatchRegexp(`^5\d{4}\n$`))
		Expect(on.Client.Persist(ctx, "a").Err()).To(Succeed())
		Expect(clitest.Stdout(on.Run("ttl", "a"))).To(Equal("none\n"))
		Expect(clitest.Stdout(on.Run("ttl", "--ms", "a"))).To(Equal("-1\n"))
	})

	It("ends with 1 if a key is free", func() {
		clitest.Hold(on.Client, "", "a")
		session := on.Run("ttl", "a", "long")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^a      5\ds\nlong  free\n$`))
	})
})
