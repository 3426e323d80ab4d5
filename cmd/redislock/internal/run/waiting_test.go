//go:build unix

package run

import (
	"context"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = Describe("redislock run that waits", func() {
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

	begin := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return clitest.Begin(url, append([]string{"run"}, args...)...)
	}
	waiters := func() int {
		GinkgoHelper()
		statuses, err := redislock.New(client).Inspect(ctx, "a")
		Expect(err).NotTo(HaveOccurred())
		return statuses[0].Waiters
	}

	Describe("says who is in the way", func() {
		It("with --verbose elsewhere, with how many are ahead in line", func() {
			clitest.Hold(client, clitest.Bob, "b")
			clitest.WaitInLine(ctx, client, "b")
			session := begin("-k", "a", "-k", "b", "--verbose", "--", "true")
			Eventually(session.Err).Should(gbytes.Say(`^redislock: waiting for b: held by bob@api-3, .* left; 1 ahead of you\n`))
		})

		It("again when that has changed", func() {
			holder := clitest.Hold(client, clitest.Bob, "a")
			first := begin("-k", "a", "--meta", "the first", "--", "sleep", "30")
			Eventually(waiters).Should(Equal(1))
			session := begin("-k", "a", "--verbose", "--", "true")
			Eventually(session.Err).Should(gbytes.Say(`held by bob@api-3, .* left; 1 ahead of you\n`))
			Expect(holder.Release(ctx)).To(Succeed())
			Eventually(session.Err).Should(gbytes.Say(`waiting for a: held by the first, .* left\n`))
			first.Terminate()
			Eventually(session).Should(gexec.Exit(0))
		})

		DescribeTable("but not",
			func(args ...string) {
				clitest.Hold(client, clitest.Bob, "a")
				session := begin(append([]string{"-k", "a"}, args...)...)
				Consistently(session.Err, "700ms").ShouldNot(gbytes.Say("."))
			},
			Entry("without a terminal", "--", "true"),
			Entry("with --quiet", "--quiet", "--", "true"),
		)

		It("not with --quiet at a terminal", func() {
			clitest.Hold(client, clitest.Bob, "a")
			user := clitest.NewTypist(url)
			user.Types("$R run -q --wait 700ms -k a -- true; echo code $?\n")
			user.Sees(`code 1\r\n`)
			Expect(string(user.Screen.Contents())).NotTo(ContainSubstring("waiting"))
		})

		It("not about a wait of a moment", func() {
			holder := clitest.Hold(client, clitest.Bob, "a")
			session := begin("-k", "a", "--verbose", "--", "true")
			Eventually(waiters).Should(Equal(1))
			Expect(holder.Release(ctx)).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})
	})

	Describe("keeps to its limit", func() {
		took := func(args ...string) (time.Duration, *gexec.Session) {
			GinkgoHelper()
			began := time.Now()
			session := clitest.Run(url, append([]string{"run"}, args...)...)
			return time.Since(began), session
		}

		It("while Redis is stopped", func() {
			Expect(server.Pause()).To(Succeed())
			d, session := took("-k", "a", "--wait", "500ms", "--", "true")
			Expect(session).To(gexec.Exit(69))
			Expect(d).To(And(BeNumerically(">=", 500*time.Millisecond), BeNumerically("<", 2*time.Second)))
			Expect(clitest.Stderr(session)).To(Equal("redislock: no answer from the Redis at " + server.Addr() + " within 500ms\n"))
		})

		It("when Redis stops meanwhile", func() {
			clitest.Hold(client, clitest.Bob, "a")
			began := time.Now()
			session := begin("-k", "a", "--wait", "1s", "--", "true")
			Eventually(waiters).Should(Equal(1))
			Expect(server.Pause()).To(Succeed())
			Eventually(session).Should(gexec.Exit(69))
			Expect(time.Since(began)).To(And(BeNumerically(">=", time.Second), BeNumerically("<", 2500*time.Millisecond)))
		})

		It("while Redis is down, and says so", func() {
			Expect(server.Kill()).To(Succeed())
			d, session := took("-k", "a", "--wait", "1", "--unavailable-exit-code", "99", "--", "true")
			Expect(session).To(gexec.Exit(99))
			Expect(d).To(And(BeNumerically(">=", time.Second), BeNumerically("<", 2500*time.Millisecond)))
			Expect(clitest.Stderr(session)).To(ContainSubstring("the connection is refused"))
		})

		DescribeTable("of nothing",
			func(flag ...string) {
				clitest.Hold(client, clitest.Bob, "a")
				d, session := took(append(append([]string{"-k", "a"}, flag...), "--", "true")...)
				Expect(session).To(gexec.Exit(1))
				Expect(d).To(BeNumerically("<", 2*time.Second))
				Expect(clitest.Stderr(session)).To(ContainSubstring(`not acquired: "a" is held by bob@api-3`))
			},
			Entry(nil, "--no-wait"), Entry(nil, "--wait", "0"), Entry(nil, "--timeout", "0s"),
		)

		It("of nothing while Redis is down", func() {
			Expect(server.Kill()).To(Succeed())
			d, session := took("-k", "a", "--no-wait", "--", "true")
			Expect(session).To(gexec.Exit(69))
			Expect(d).To(BeNumerically("<", 2*time.Second))
		})
	})

	It("waits for a Redis that is down at the start, if there is a limit", func() {
		Expect(server.Kill()).To(Succeed())
		session := begin("-k", "a", "--wait", "10m", "--verbose", "--", "echo", "ran")
		Eventually(session.Err).Should(gbytes.Say("redislock: waiting for Redis: cannot use the Redis at .* refused"))
		Consistently(session.Err, "1200ms").ShouldNot(gbytes.Say("waiting")) // once is enough
		Expect(server.Restart()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("ran\n"))
	})

	It("waits for a server that grants no locks yet, if there is a limit", func() {
		replicate := func(of ...any) { Expect(client.Do(ctx, append([]any{"replicaof"}, of...)...).Err()).To(Succeed()) }
		replicate("127.0.0.1", "1")
		Expect(clitest.Run(url, "run", "-k", "a", "--", "true")).To(gexec.Exit(69))
		session := begin("-k", "a", "--wait", "10m", "--", "echo", "ran")
		Consistently(session, "300ms").ShouldNot(gexec.Exit())
		replicate("no", "one")
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("ran\n"))
	})

	It("says when Redis goes away while it is in line, and who is in the way when Redis is back", func() {
		clitest.Hold(client, clitest.Bob, "a")
		session := begin("-k", "a", "--verbose", "--", "true")
		Eventually(session.Err).Should(gbytes.Say("waiting for a: held by bob@api-3"))
		Expect(server.Kill()).To(Succeed())
		Eventually(session.Err).Should(gbytes.Say("waiting for Redis: cannot use the Redis at .*: the connection is refused"))
		Expect(server.Restart()).To(Succeed())
		Eventually(session, "10s").Should(gexec.Exit(0)) // Redis has forgotten the lock
		Expect(session.Err).To(gbytes.Say("acquired after"))
	})

	It("does not wait for a Redis that no waiting brings", func() {
		session := clitest.Run("redis://no-such-host.invalid", "run", "-k", "a", "--wait", "10m", "--", "true")
		Expect(session).To(gexec.Exit(69))
		secured, _ := clitest.NewServer("requirepass right")
		session = clitest.Run("redis://:wrong@"+secured.Addr(), "run", "-k", "a", "--wait", "10m", "--", "true")
		Expect(session).To(gexec.Exit(69))
	})

	DescribeTable("says what a key holds that is not a lock",
		func(words string, write ...string) {
			Expect(exec.Command("redis-cli", append([]string{"-u", url}, write...)...).Run()).To(Succeed())
			session := clitest.Run(url, "run", "-k", "a", "--no-wait", "-E", "75", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(75))
			Expect(clitest.Stderr(session)).To(Equal("redislock: not acquired: " + words + "\n"))
			for _, command := range []string{"inspect", "ttl"} { // what blocks a run counts as held
				Expect(clitest.Run(url, command, "a")).To(gexec.Exit(0))
			}
			Expect(strings.TrimSpace(clitest.Stdout(clitest.Run(url, "ttl", "a")))).To(Equal("none"))
		},
		Entry("a hash", `key "a" holds a hash, not a lock`, "hset", "a", "f", "v"),
		Entry("a list", `key "a" holds a list, not a lock`, "lpush", "a", "v"),
		Entry("a string", `"a" is held by hello, without an expiry`, "set", "a", "hello"),
	)

	It("takes a fence key or a line of another type for no holder", func(ctx SpecContext) {
		Expect(client.LPush(ctx, "n", "v").Err()).To(Succeed())
		Expect(client.Set(ctx, keyname.LineOf("b"), "v", 0).Err()).To(Succeed())
		for _, acquire := range [][]string{
			{"run", "-k", "a", "--fence-key", "n", "-E", "0", "--quiet", "--", "echo", "ran"},
			{"acquire", "a", "--ttl", "1m", "--fence-key", "n", "-E", "0", "--quiet"},
			{"run", "-k", "b", "-E", "0", "--quiet", "--", "echo", "ran"},
		} {
			session := clitest.Run(url, acquire...)
			Expect(session).To(gexec.Exit(69))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(clitest.Stderr(session)).To(ContainSubstring("WRONGTYPE"))
		}
	})
})
