//go:build unix

package release

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestRelease(t *testing.T) { clitest.RunSpecs(t, "release") }

var _ = Describe("release", func() {
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

	It("releases what the token holds", func() {
		clitest.Hold(client, "", "a", "b")
		session := clitest.Run(url, "release", "a", "b", "--token", "the-token")
		Expect(session).To(gexec.Exit(0))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	It("releases nothing if the token holds not all of it", func() {
		clitest.Hold(client, "", "a")
		Expect(client.Set(ctx, "b", "another "+clitest.Bob, time.Minute).Err()).To(Succeed())
		session := clitest.Run(url, "release", "a", "b", "--token", "the-token")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not released: "b" is held by bob@api-3`))
		Expect(client.Exists(ctx, "a", "b").Val()).To(Equal(int64(2)))

		session = clitest.Run(url, "release", "c", "--token", "the-token")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not released: "c" is free`))
	})

	Describe("while Redis cannot release", func() {
		refuse := func(refuse bool) {
			GinkgoHelper()
			least := "0"
			if refuse {
				least = "1"
			}
			Expect(client.ConfigSet(ctx, "min-replicas-to-write", least).Err()).To(Succeed())
		}

		DescribeTable("tries again, and says so after a second",
			func(args ...string) {
				_, err := redislock.Obtain(ctx, client, "a", 10*time.Minute, &redislock.Options{Token: "q83vEjRWeJCrze8SNFZ4kA"})
				Expect(err).NotTo(HaveOccurred())
				refuse(true)
				session := clitest.Begin(url, append([]string{"release", "a"}, args...)...)
				Eventually(session.Err).Should(gbytes.Say(
					`redislock: still trying to release "a", which expires by \d\d:\d\d:\d\d \(in 9m5\ds\): NOREPLICAS .*\n`))
				refuse(false)
				Eventually(session).Should(gexec.Exit(0))
				Expect(client.DBSize(ctx).Val()).To(BeZero())
			},
			Entry("by token", "--token", "q83vEjRWeJCrze8SNFZ4kA"),
			Entry("by force", "--force", "--yes"),
		)

		It("ends at once by a signal, and says by when the key expires", func() {
			clitest.Hold(client, "", "a")
			refuse(true)
			session := clitest.Begin(url, "release", "a", "--token", "the-token")
			Eventually(session.Err).Should(gbytes.Say("still trying"))
			asked := time.Now()
			session.Terminate()
			Eventually(session).Should(gexec.Exit(143))
			Expect(time.Since(asked)).To(BeNumerically("<", 2*time.Second))
			Expect(session.Err).To(gbytes.Say(
				`redislock: cannot release "a", which expires by \d\d:\d\d:\d\d \(in 5\ds\): NOREPLICAS .*\n$`))
		})

		It("says that a key without expiry stays", func() {
			clitest.Hold(client, "", "a")
			Expect(client.Persist(ctx, "a").Err()).To(Succeed())
			refuse(true)
			session := clitest.Begin(url, "release", "a", "--token", "the-token")
			Eventually(session.Err).Should(gbytes.Say(`still trying to release "a", which has no expiry: NOREPLICAS`))
			refuse(false)
			Eventually(session).Should(gexec.Exit(0))
		})

		It("tries again with a password that was replaced", func() {
			user := clitest.NewUser(ctx, client)
			clitest.Hold(client, "", "a")
			refuse(true)
			session := clitest.Begin(user.URL(server.Addr()), "release", "a", "--token", "the-token", "--password-file", user.File)
			Eventually(session.Err).Should(gbytes.Say(`still trying to release "a", .*: NOREPLICAS`))
			user.Replace(ctx, "secret-2")
			refuse(false)
			Eventually(session).Should(gexec.Exit(0), clitest.Stderr(session))
			Expect(client.Exists(ctx, "a").Val()).To(BeZero())
		})

		It("waits for a server that is down", func() {
			Expect(server.Kill()).To(Succeed())
			session := clitest.Begin(url, "release", "a", "--token", "the-token")
			Eventually(session.Err).Should(gbytes.Say("redislock: waiting for Redis: .*refused"))
			Expect(server.Restart()).To(Succeed()) // it has forgotten the lock
			Eventually(session).Should(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(ContainSubstring(`not released: "a" is free`))
		})

		It("says that the key stays if the server does not come back", func() {
			Expect(server.Kill()).To(Succeed())
			session := clitest.Begin(url, "release", "a", "--token", "the-token")
			Eventually(session, "20s").Should(gexec.Exit(69)) // that is how long it tries
			Expect(session.Err).To(gbytes.Say("waiting for Redis"))
			Expect(session.Err).To(gbytes.Say(`redislock: cannot release "a", which expires at the end of its ttl: cannot use the Redis .* refused.*\n$`))
		})

		It("does not wait for a Redis that no waiting brings", func() {
			began := time.Now()
			session := clitest.Run("redis://no-such-host.invalid", "release", "a", "--token", "the-token")
			Expect(session).To(gexec.Exit(69))
			Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
		})
	})

	// hold locks keys by a random token.
	hold := func(metadata string, keys ...string) {
		GinkgoHelper()
		_, err := redislock.ObtainMulti(ctx, client, keys, time.Minute, &redislock.Options{Metadata: metadata})
		Expect(err).NotTo(HaveOccurred())
	}

	It("takes locks away with --force --yes, and says from whom", func() {
		hold(clitest.Bob, "a")
		hold("another", "b")
		session := clitest.Run(url, "release", "a", "b", "c", "--force", "--yes")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(MatchRegexp("^c is free\nreleased a, held by bob@api-3, pid 4121.*\nreleased b, held by another, .* left\n$"))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	DescribeTable("leaves alone with --force what no lock wrote, unless --any is given",
		func(value string, ttl time.Duration, words string) {
			hold("", "a")
			Expect(client.Set(ctx, "b", value, ttl).Err()).To(Succeed())
			session := clitest.Run(url, "release", "a", "b", "--force", "--yes")
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(Equal("redislock: nothing was released: \"b\" " + words + "; add --any to delete it nevertheless\n"))
			Expect(client.Exists(ctx, "a", "b").Val()).To(Equal(int64(2)))

			Expect(clitest.Run(url, "release", "a", "b", "--force", "--yes", "--any")).To(gexec.Exit(0))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		},
		Entry("a string", "hello", time.Duration(0), "has no expiry, so it does not look like a lock"),
		Entry("a token without expiry", "q83vEjRWeJCrze8SNFZ4kA", time.Duration(0), "has no expiry, so it does not look like a lock"),
		Entry("a session", "user=7 name=bob", time.Minute, "does not begin with a random token, so it does not look like a lock"),
		Entry("a lock with a token of its own", "job-1 {}", time.Minute, "does not begin with a random token, so it does not look like a lock"),
	)

	DescribeTable("knows with --force the locks of other libraries",
		func(value, who string) {
			Expect(client.Set(ctx, "a", value, time.Minute).Err()).To(Succeed())
			session := clitest.Run(url, "release", "a", "--force", "--yes")
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
			Expect(clitest.Stdout(session)).To(MatchRegexp("^released a, held by " + who + ", .* left\n$"))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		},
		Entry("bsm/redislock", "q83vEjRWeJCrze8SNFZ4kA", "q83vEjRWeJCrze8SNFZ4kA"),
		Entry("bsm/redislock with metadata", `q83vEjRWeJCrze8SNFZ4kA{"host": "api-3", "pid": 4121}`, "api-3, pid 4121"),
		Entry("redsync", "q83v+jRWeJCrze8SNFZ/kA==", `q83v\+jRWeJCrze8SNFZ/kA==`),
	)

	It("takes a lock away once, also if its key is given twice", func() {
		hold("", "a")
		session := clitest.Run(url, "release", "a", "a", "--force", "--yes")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(MatchRegexp("^released a, held by .*\n$"))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("lets the next in line have it", func() {
		hold("", "a")
		session := clitest.Begin(url, "run", "-k", "a", "--", "echo", "next")
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
		Expect(clitest.Run(url, "release", "a", "--force", "--yes")).To(gexec.Exit(0))
		Eventually(session, "500ms").Should(gexec.Exit(0))
	})

	It("leaves alone what is not a string, whatever is given", func() {
		hold("", "a")
		Expect(client.LPush(ctx, "b", "x").Err()).To(Succeed())
		session := clitest.Run(url, "release", "a", "b", "--force", "--yes", "--any")
		Expect(session).To(gexec.Exit(1))
		Expect(client.Exists(ctx, "a", "b").Val()).To(Equal(int64(2)))
	})

	DescribeTable("refuses what is not clear, and releases nothing",
		func(words string, args ...string) {
			clitest.Hold(client, "", "a")
			session := clitest.Run(url, append([]string{"release"}, args...)...)
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			Expect(client.Exists(ctx, "a").Val()).To(Equal(int64(1)))
		},
		Entry("neither way", "name the holder with --token T", "a"),
		Entry("both ways", "exclude each other", "a", "--token", "the-token", "--force"),
		Entry("an empty token", "is a variable unset?", "a", "--token", ""),
		Entry("force without a terminal", "add --yes", "a", "--force"),
		Entry("any by itself", "--any is for --force", "a", "--token", "the-token", "--any"),
		Entry("yes by itself", "--yes is for --force", "a", "--token", "the-token", "--yes"),
		Entry("no key", "release needs a KEY", "--force"),
		Entry("an empty key", "KEY 1 of 1 is empty", "", "--force", "--yes"),
	)

	DescribeTable("release --force says who is losing it, and asks",
		func(answer, outcome string, left int64) {
			_, err := redislock.Obtain(ctx, client, "a", time.Minute, &redislock.Options{
				Metadata: `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7"}`,
			})
			Expect(err).NotTo(HaveOccurred())
			user := clitest.NewTypist(url)
			user.Types("(trap : INT; $R release a --force; echo code $?)\n") // the trap is for the shell
			user.Sees(`a is held by bob@api-3, pid 4121 \(\./ship 7\), 5\ds left\r\nRelease it nevertheless\? \[y/N\] `)
			user.Types(answer)
			user.Sees(outcome)
			Expect(client.Exists(ctx, "a").Val()).To(Equal(left))
		},
		Entry("yes", "y\n", `released a, held by bob.*\r\ncode 0`, int64(0)),
		Entry("no", "n\n", `redislock: nothing was released\r\ncode 1`, int64(1)),
		Entry("nothing", "\n", `redislock: nothing was released\r\ncode 1`, int64(1)),
		Entry("the end of the input", "\x04", `redislock: nothing was released\r\ncode 1`, int64(1)),
		Entry("Ctrl-C", "\x03", `code 130`, int64(1)),
	)
})
