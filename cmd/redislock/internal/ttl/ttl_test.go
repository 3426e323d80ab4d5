//go:build unix

package ttl

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/redistest"
)

func TestTTL(t *testing.T) { clitest.RunSpecs(t, "ttl") }

var _ = Describe("ttl", func() {
	var (
		ctx    context.Context
		server *redistest.Server
		client *redis.Client
		url    string
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
	})

	It("shows what is left", func() {
		clitest.Hold(client, "", "a")
		Expect(clitest.Stdout(clitest.Run(url, "ttl", "a"))).To(MatchRegexp(`^5\ds\n$`))
		Expect(clitest.Stdout(clitest.Run(url, "ttl", "--ms", "a"))).To(MatchRegexp(`^5\d{4}\n$`))
		Expect(client.Persist(ctx, "a").Err()).To(Succeed())
		Expect(clitest.Stdout(clitest.Run(url, "ttl", "a"))).To(Equal("none\n"))
		Expect(clitest.Stdout(clitest.Run(url, "ttl", "--ms", "a"))).To(Equal("-1\n"))
	})

	It("ends with 1 if a key is free", func() {
		clitest.Hold(client, "", "a")
		session := clitest.Run(url, "ttl", "a", "long")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`^a      5\ds\nlong  free\n$`))
	})
})
