package renew

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestRenew(t *testing.T) { clitest.RunSpecs(t, "renew") }

var _ = Describe("renew", func() {
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

	It("sets the ttl of all keys, and leaves the metadata alone", func() {
		clitest.Hold(client, "meta", "a", "b")
		session := clitest.Run(url, "renew", "a", "b", "--token", "the-token", "--ttl", "10m")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(BeEmpty())
		for _, key := range []string{"a", "b"} {
			Expect(client.PTTL(ctx, key).Val()).To(BeNumerically("~", 10*time.Minute, 2*time.Second))
			Expect(client.Get(ctx, key).Val()).To(Equal("the-token meta"))
		}
	})

	It("prints until when they are held as JSON", func() {
		clitest.Hold(client, "", "a")
		session := clitest.Run(url, "renew", "a", "--token", "the-token", "--ttl", "100", "--json")
		var told struct {
			Keys  []string
			Until time.Time
		}
		Expect(json.Unmarshal(session.Out.Contents(), &told)).To(Succeed())
		Expect(told.Keys).To(Equal([]string{"a"}))
		Expect(told.Until).To(BeTemporally("~", time.Now().Add(99*time.Second), 2*time.Second))
	})

	It("renews nothing if the token does not hold all, and says who does", func() {
		clitest.Hold(client, "", "a")
		Expect(client.Set(ctx, "b", "another "+clitest.Bob, time.Minute).Err()).To(Succeed())
		session := clitest.Run(url, "renew", "a", "b", "--token", "the-token", "--ttl", "10m")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not renewed: "b" is held by bob@api-3`))
		Expect(client.PTTL(ctx, "a").Val()).To(BeNumerically("<=", time.Minute))

		session = clitest.Run(url, "renew", "c", "--token", "the-token", "--ttl", "10m")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(Equal("redislock: not renewed: \"c\" is free\n"))
	})

	It("tries again while Redis cannot renew them now", func() {
		clitest.Hold(client, "", "a")
		Expect(client.ConfigSet(ctx, "min-replicas-to-write", "1").Err()).To(Succeed())
		session := clitest.Begin(url, "renew", "a", "--token", "the-token", "--ttl", "10m")
		Eventually(session.Err).Should(gbytes.Say("redislock: still trying to renew the locks: NOREPLICAS .*\n"))
		Expect(client.ConfigSet(ctx, "min-replicas-to-write", "0").Err()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		Expect(client.PTTL(ctx, "a").Val()).To(BeNumerically("~", 10*time.Minute, 2*time.Second))
	})

	It("tries again with a password that was replaced", func() {
		user := clitest.NewUser(ctx, client)
		clitest.Hold(client, "", "a")
		Expect(client.ConfigSet(ctx, "min-replicas-to-write", "1").Err()).To(Succeed())
		session := clitest.Begin(user.URL(server.Addr()), "renew", "a", "--token", "the-token", "--ttl", "10m",
			"--password-file", user.File)
		Eventually(session.Err).Should(gbytes.Say("redislock: still trying to renew the locks: NOREPLICAS .*\n"))
		user.Replace(ctx, "secret-2")
		Expect(client.ConfigSet(ctx, "min-replicas-to-write", "0").Err()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0), clitest.Stderr(session))
		Expect(client.PTTL(ctx, "a").Val()).To(BeNumerically("~", 10*time.Minute, 2*time.Second))
	})

	DescribeTable("refuses what is not clear",
		func(words string, args ...string) {
			clitest.Hold(client, "", "a")
			session := clitest.Run(url, append([]string{"renew", "a"}, args...)...)
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			Expect(client.PTTL(ctx, "a").Val()).To(BeNumerically("~", time.Minute, 2*time.Second))
		},
		Entry("no token", "say which token holds the locks", "--ttl", "10"),
		Entry("an empty token", "is a variable unset?", "--ttl", "10", "--token", ""),
		Entry("no ttl", "say for how long", "--token", "the-token"),
		Entry("a very long ttl", "add --long", "--token", "the-token", "--ttl", "3d"),
	)

	It("ends with 69 without Redis", func() {
		Expect(server.Kill()).To(Succeed())
		Expect(clitest.Run(url, "renew", "a", "--token", "t", "--ttl", "10")).To(gexec.Exit(69))
	})
})
