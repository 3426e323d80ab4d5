//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/redistest"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("asking for locks by name", func() {
	var (
		ctx    context.Context
		server *redistest.Server
		client *redis.Client
		url    string
	)

	const bob = `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7","now":"2026-03-01T04:10:00Z"}`

	BeforeEach(func() {
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
	})

	redislockRuns := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return clitest.Run(url, args...)
	}
	hold := func(metadata string, keys ...string) *redislock.Lock {
		GinkgoHelper()
		lock, err := redislock.ObtainMulti(ctx, client, keys, time.Minute, &redislock.Options{Token: "the-token", Metadata: metadata})
		Expect(err).NotTo(HaveOccurred())
		return lock
	}
	Describe("inspect", func() {
		It("shows the holder, what it has left, the time and the line", func() {
			hold(bob, "a")
			clitest.WaitInLine(ctx, client, "a")
			session := redislockRuns("inspect", "a")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(MatchRegexp(`^a
  token    the-token
  host     api-3
  pid      4121
  user     bob
  command  \./ship 7
  now      2026-03-01T04:10:00Z
  held     for \d+d\d\dh
  left     5\ds
  in line  1, the first for (\d+ms|\d\.\ds)
$`))
		})

		It("ends with 1 if a key is free, and shows the others", func() {
			hold("job 7", "a")
			session := redislockRuns("inspect", "a", "b")
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stdout(session)).To(MatchRegexp(
				`^a\n  token     the-token\n  metadata  job 7\n  left      5\ds\n  in line   nobody\n\nb\n  free\n$`))
		})

		It("prints JSON", func() {
			hold(bob, "a")
			session := redislockRuns("inspect", "--json", "a", "b")
			Expect(session).To(gexec.Exit(1))
			lines := strings.Split(strings.TrimSpace(clitest.Stdout(session)), "\n")
			Expect(lines).To(HaveLen(2))
			var seen map[string]any
			Expect(json.Unmarshal([]byte(lines[0]), &seen)).To(Succeed())
			Expect(seen).To(And(HaveKeyWithValue("key", "a"), HaveKeyWithValue("token", "the-token"),
				HaveKeyWithValue("metadata", bob), HaveKeyWithValue("held_since", "2026-03-01T04:10:00Z"),
				HaveKeyWithValue("waiters", 0.), HaveKeyWithValue("fields", HaveKeyWithValue("user", "bob"))))
			Expect(lines[1]).To(Equal(`{"key":"b","token":"","metadata":"","ttl_ms":0,"waiters":0}`))
		})

		It("escapes what would reach the terminal", func() {
			Expect(client.Set(ctx, "a\x1b[2J", "to\x07ken {\"host\":\"\\u001b[31m\"}", time.Minute).Err()).To(Succeed())
			session := redislockRuns("inspect", "a\x1b[2J")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(HavePrefix("a\\x1b[2J\n  token    to\\x07ken\n  host     \\x1b[31m\n"))
		})

		It("tells a value that is no lock", func() {
			Expect(client.LPush(ctx, "a", "x").Err()).To(Succeed())
			session := redislockRuns("inspect", "a")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("a\n  taken    by something that is no lock\n  left     none\n  in line  nobody\n"))
		})
	})

	Describe("ttl", func() {
		It("shows what is left", func() {
			hold("", "a")
			Expect(clitest.Stdout(redislockRuns("ttl", "a"))).To(MatchRegexp(`^5\ds\n$`))
			Expect(clitest.Stdout(redislockRuns("ttl", "--ms", "a"))).To(MatchRegexp(`^5\d{4}\n$`))
			Expect(client.Persist(ctx, "a").Err()).To(Succeed())
			Expect(clitest.Stdout(redislockRuns("ttl", "a"))).To(Equal("none\n"))
			Expect(clitest.Stdout(redislockRuns("ttl", "--ms", "a"))).To(Equal("-1\n"))
		})

		It("ends with 1 if a key is free", func() {
			hold("", "a")
			session := redislockRuns("ttl", "a", "long")
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stdout(session)).To(MatchRegexp(`^a      5\ds\nlong  free\n$`))
		})
	})

	Describe("wait", func() {
		It("ends at once if all is free", func() {
			began := time.Now()
			Expect(redislockRuns("wait", "a", "b")).To(gexec.Exit(0))
			Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		})

		It("ends when the last key is released, and takes none", func() {
			first, second := hold("", "a"), hold("", "b")
			session := clitest.Begin(url, "wait", "a", "b")
			Consistently(session, "200ms").ShouldNot(gexec.Exit())
			Expect(first.Release(ctx)).To(Succeed())
			Consistently(session, "200ms").ShouldNot(gexec.Exit())
			Expect(second.Release(ctx)).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		})

		It("gives up after --timeout, and says who has it", func() {
			hold(bob, "a")
			began := time.Now()
			session := redislockRuns("wait", "a", "--timeout", "300ms")
			Expect(time.Since(began)).To(BeNumerically("~", 300*time.Millisecond, 250*time.Millisecond))
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(ContainSubstring(`not free within 300ms: "a" is held by bob on api-3, pid 4121`))
		})

		It("looks a last time when --timeout is over", func() {
			Expect(client.Set(ctx, "a", "the-token", 420*time.Millisecond).Err()).To(Succeed())
			Expect(redislockRuns("wait", "a", "--timeout", "580ms")).To(gexec.Exit(0)) // between the looks at 310 and 630 ms
		})

		It("bears a Redis that is away for a while", func() {
			Expect(client.Set(ctx, "a", "the-token", time.Minute).Err()).To(Succeed())
			session := clitest.Begin(url, "wait", "a")
			time.Sleep(200 * time.Millisecond)
			Expect(server.Kill()).To(Succeed())
			Consistently(session, "1s").ShouldNot(gexec.Exit())
			Expect(server.Restart()).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
		})
	})

	Describe("release", func() {
		It("releases what the token holds", func() {
			hold("", "a", "b")
			session := redislockRuns("release", "a", "b", "--token", "the-token")
			Expect(session).To(gexec.Exit(0))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		})

		It("releases nothing if the token holds not all of it", func() {
			hold("", "a")
			Expect(client.Set(ctx, "b", "another "+bob, time.Minute).Err()).To(Succeed())
			session := redislockRuns("release", "a", "b", "--token", "the-token")
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(ContainSubstring(`not released: "b" is held by bob on api-3`))
			Expect(client.Exists(ctx, "a", "b").Val()).To(Equal(int64(2)))

			session = redislockRuns("release", "c", "--token", "the-token")
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(ContainSubstring(`not released: "c" is free`))
		})

		It("takes locks away with --force --yes, and says from whom", func() {
			hold(bob, "a")
			Expect(client.Set(ctx, "b", "another", time.Minute).Err()).To(Succeed())
			session := redislockRuns("release", "a", "b", "c", "--force", "--yes")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(MatchRegexp("^c is free\nreleased a, held by bob on api-3, pid 4121.*\nreleased b, held by another, for .*\n$"))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		})

		It("takes a lock away once, also if its key is given twice", func() {
			hold("", "a")
			session := redislockRuns("release", "a", "a", "--force", "--yes")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(MatchRegexp("^released a, held by .*\n$"))
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})

		It("lets the next in line have it", func() {
			hold("", "a")
			session := clitest.Begin(url, "run", "-k", "a", "--", "echo", "next")
			Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
			Expect(redislockRuns("release", "a", "--force", "--yes")).To(gexec.Exit(0))
			Eventually(session, "500ms").Should(gexec.Exit(0))
		})

		It("leaves what is no lock alone", func() {
			hold("", "a")
			Expect(client.LPush(ctx, "b", "x").Err()).To(Succeed())
			session := redislockRuns("release", "a", "b", "--force", "--yes")
			Expect(session).To(gexec.Exit(1))
			Expect(client.Exists(ctx, "a", "b").Val()).To(Equal(int64(2)))
		})

		DescribeTable("refuses what is not clear, and releases nothing",
			func(words string, args ...string) {
				hold("", "a")
				session := redislockRuns(append([]string{"release"}, args...)...)
				Expect(session).To(gexec.Exit(64))
				Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
				Expect(clitest.Stderr(session)).To(ContainSubstring(words))
				Expect(client.Exists(ctx, "a").Val()).To(Equal(int64(1)))
			},
			Entry("neither way", "say whose the locks are", "a"),
			Entry("both ways", "exclude each other", "a", "--token", "the-token", "--force"),
			Entry("an empty token", "is a variable unset?", "a", "--token", ""),
			Entry("force without a terminal", "add --yes", "a", "--force"),
			Entry("yes by itself", "--yes is for --force", "a", "--token", "the-token", "--yes"),
			Entry("no key", "release needs a KEY", "--force"),
			Entry("an empty key", "KEY 1 of 1 is empty", "", "--force", "--yes"),
		)
	})

	DescribeTable("ends with 69 without Redis",
		func(args ...string) {
			Expect(server.Kill()).To(Succeed())
			session := redislockRuns(args...)
			Expect(session).To(gexec.Exit(69))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*refused.*\n$`))
			Expect(clitest.Stdout(session)).To(BeEmpty())
		},
		Entry(nil, "inspect", "a"), Entry(nil, "ttl", "a"), Entry(nil, "wait", "a"), Entry(nil, "release", "a", "--token", "t"),
	)

	It("dies quietly by a closed pipe", func() {
		hold(bob, "a")
		cmd := exec.Command("sh", "-c", `"$0" inspect a | true; exit 0`, clitest.Program())
		cmd.Env = append(cmd.Environ(), "REDIS_URL="+url)
		session := clitest.Start(cmd)
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})
})
