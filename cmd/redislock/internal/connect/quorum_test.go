package connect

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = DescribeTable("splitting REDIS_URL",
	func(text string, urls ...string) { Expect(splitURLs(text)).To(Equal(urls)) },
	Entry(nil, "redis://a", "redis://a"),
	Entry(nil, " redis://a  redis://b\nunix:///c ", "redis://a", "redis://b", "unix:///c"),
	Entry(nil, "redis://a,rediss://b,redis://c:1", "redis://a", "rediss://b", "redis://c:1"),
	Entry(nil, "redis://a, redis://b", "redis://a", "redis://b"),
	Entry("a wrong URL stays as it is", "redis://host name:6379,, redis://b,", "redis://host name:6379", "redis://b,"),
	Entry("commas between the hosts of a URL", "redis+sentinel://a,b:1,c/m redis+cluster://d,e",
		"redis+sentinel://a,b:1,c/m", "redis+cluster://d,e"),
)

var _ = Describe("a quorum", func() {
	const foreign = "q83vEjRWeJCrze8SNFZ4kA"
	var (
		servers []*redistest.Server
		clients []*redis.Client
		url     string
		locks   *redislock.Client
	)

	BeforeEach(func() { servers, clients, url, locks = clitest.NewQuorum() })

	// hold locks a key on all servers.
	hold := func(ctx context.Context, key string) *redislock.Lock {
		GinkgoHelper()
		lock, err := locks.Obtain(ctx, key, time.Minute, &redislock.Options{Metadata: clitest.Bob})
		Expect(err).NotTo(HaveOccurred())
		for _, client := range clients {
			Eventually(func() string { return client.Get(ctx, key).Val() }).Should(HavePrefix(lock.Token()))
		}
		return lock
	}

	It("locks on all servers, and needs a majority of them", func(ctx SpecContext) {
		session := clitest.Run(url, "run", "-k", "job", "--", "redis-cli", "-u", "redis://"+servers[2].Addr(), "exists", "job")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		for _, client := range clients {
			Expect(client.Exists(ctx, "job").Val()).To(BeZero())
		}

		Expect(servers[1].Kill()).To(Succeed())
		session = clitest.Run(url, "run", "-k", "job", "--", "echo", "ran")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(Equal("ran\n"))

		Expect(servers[0].Kill()).To(Succeed())
		session = clitest.Run(url, "run", "-k", "job", "--", "echo", "ran")
		Expect(session).To(gexec.Exit(cli.Unavailable))
		Expect(clitest.Stdout(session)).To(BeEmpty())
		Expect(clitest.Stderr(session)).To(And(ContainSubstring("1 of 3 servers answer, and a lock needs 2"),
			ContainSubstring(servers[0].Addr())))
	})

	It("is not held up by a server that hangs", func() {
		Expect(servers[0].Pause()).To(Succeed())
		session := clitest.Run(url, "run", "--wait", "2s", "-k", "job", "--", "echo", "ran")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(Equal("ran\n"))
		began := time.Now()
		Expect(clitest.Run(url, "ls")).To(gexec.Exit(0))
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
		Expect(clitest.Stdout(clitest.Run(url, "doctor"))).To(
			MatchRegexp(`bad +%s +answer +none: .* no answer within %v;`, servers[0].Addr(), defaultPatience))
	})

	It("says that no majority answers", func() {
		Expect(servers[0].Pause()).To(Succeed())
		Expect(servers[1].Pause()).To(Succeed())
		session := clitest.Run(url, "run", "--wait", "1s", "-k", "job", "--", "echo", "ran")
		Expect(session).To(gexec.Exit(cli.Unavailable))
		Expect(clitest.Stderr(session)).To(Equal("redislock: no answer from a majority of the servers " +
			strings.ReplaceAll(strings.TrimPrefix(url, " redis://"), " redis://", ", ") + " within 1s\n"))
	})

	It("takes several --redis", func(ctx SpecContext) {
		hold(ctx, "job")
		args := []string{"run", "--no-wait", "-k", "job"}
		for _, server := range servers {
			args = append(args, "--redis", "redis://"+server.Addr())
		}
		session := clitest.Run("redis://127.0.0.1:1", append(args, "--", "echo", "ran")...)
		Expect(session).To(gexec.Exit(cli.No), clitest.Stderr(session))
		Expect(clitest.Stderr(session)).To(ContainSubstring("bob@api-3"))
	})

	It("shows split votes", func(ctx SpecContext) {
		lock := hold(ctx, "job")
		Expect(clients[2].Set(ctx, "job", foreign, time.Minute).Err()).To(Succeed())
		Expect(clients[1].Set(ctx, "half", foreign, time.Minute).Err()).To(Succeed())

		session := clitest.Run(url, "ls")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`half +no majority: on 1 of 3 servers .*\njob +bob@api-3`))
		Expect(strings.Count(clitest.Stdout(session), "job")).To(Equal(1))

		session = clitest.Run(url, "inspect", "job")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(And(MatchRegexp("token +"+lock.Token()),
			ContainSubstring("server 3 ("+servers[2].Addr()+"): "+foreign)))
		session = clitest.Run(url, "inspect", "half")
		Expect(session).To(gexec.Exit(cli.No), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(And(ContainSubstring("no majority: on 1 of 3 servers"),
			ContainSubstring("server 1 ("+servers[0].Addr()+"): free")))

		session = clitest.Run(url, "inspect", "half", "--json")
		Expect(clitest.Stdout(session)).To(ContainSubstring(`"places":[{"server":"server 1 (` + servers[0].Addr() + `)","token":"","ttl_ms":0}`))
	})

	It("is checked by doctor", func(ctx SpecContext) {
		check := func(urls string) string {
			session := clitest.Run(urls, "doctor")
			return clitest.Stdout(session)
		}
		Expect(check(url)).To(And(MatchRegexp(`ok +quorum +3 servers, of which 1 can fail`),
			MatchRegexp(`ok +identity +3 different servers`), MatchRegexp(`ok +locking`), MatchRegexp(`warn +`+servers[0].Addr()+` +persistence`)))

		_, port, _ := strings.Cut(servers[0].Addr(), ":")
		twice := check("redis://" + servers[0].Addr() + " redis://localhost:" + port)
		Expect(twice).To(And(MatchRegexp(`warn +quorum +2 servers, of which 0 can fail`),
			MatchRegexp(`bad +identity .* are one server`)))

		Expect(servers[1].Kill()).To(Succeed())
		Expect(check(url)).To(And(MatchRegexp(`bad +`+servers[1].Addr()+` +answer +none`), MatchRegexp(`ok +identity +2 different servers`)))
	})

	It("does not mix with a Cluster, a custom token, or the demo", func() {
		for _, args := range [][]string{{"demo"}, {"run", "--token", "t", "-k", "a", "--", "echo", "ran"}} {
			session := clitest.Run(url, args...)
			Expect(session).To(gexec.Exit(cli.Usage))
			Expect(clitest.Stderr(session)).To(ContainSubstring("does not work on a quorum of servers"))
		}
		session := clitest.Run(url+" redis+cluster://a", "ls")
		Expect(session).To(gexec.Exit(cli.Usage))
		Expect(clitest.Stderr(session)).To(ContainSubstring("a quorum is made of single servers"))
	})
})
