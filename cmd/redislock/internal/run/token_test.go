//go:build unix

package run

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = Describe("redislock run inside redislock run", func() {
	var (
		ctx    context.Context
		server *redistest.Server
		client *redis.Client
		url    string
		began  time.Time
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
		began = time.Now()
	})

	// nested runs the program with each list of flags inside the one before it.
	nested := func(command string, runs ...string) *gexec.Session {
		GinkgoHelper()
		var args []string
		for _, flags := range runs {
			args = append(append(args, clitest.Program(), "run"), append(strings.Fields(flags), "--")...)
		}
		return clitest.Run(url, append(args[1:], strings.Fields(command)...)...)
	}

	DescribeTable("fails at once where it would wait for itself",
		func(code int, words string, runs ...string) {
			session := nested("echo ran", runs...)
			Expect(session).To(gexec.Exit(code))
			Expect(clitest.Stderr(session)).To(Equal("redislock: " + words + "\n"))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(time.Since(began)).To(BeNumerically("<", 3*time.Second))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		},
		Entry("and says how to re-enter", 64,
			`"a" is held by the run around this one, which would wait for itself; to share its locks, use "redislock run --reenter"`, "-k a", "-k a"),
		Entry("for one of several keys", 64,
			`"a" is held by the run around this one, which would wait for itself; to share its locks, use "redislock run --reenter"`, "-k a", "-k b -k a"),
		Entry("for a key of a run further out", 64, `"a" is held by a run further out, which would wait for itself; `+
			`to share its locks, use "redislock run --reenter" in each run between the two`, "-k a", "-k b", "-k a"),
		Entry("with the exit code of a conflict, if it does not wait", 75,
			`not acquired: "a" is held by a run around this one`, "-k a", "-k a --no-wait -E 75"),
		Entry("with its own token, as older scripts do", 64,
			`"a" is held by the run around this one, which would wait for itself; to share its locks, use "redislock run --reenter"`,
			"-k a --token x", "-k a --token x"),
	)

	DescribeTable("re-enters with --reenter",
		func(runs ...string) {
			session := nested("echo ran", runs...)
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("ran\n"))
			Expect(client.DBSize(ctx).Val()).To(BeZero())
		},
		Entry("a key", "-k a", "-k a --reenter"),
		Entry("some of the keys", "-k a", "-k b -k a --reenter"),
		Entry("through several runs", "-k a", "-k b -k a --reenter", "-k a --reenter"),
		Entry("through a run that shares nothing but the token", "-k a --token x", "-k a --reenter -k b", "-k b --reenter"),
	)

	It("re-enters on a quorum, where the keys that it acquires have a token of their own", func() {
		second, _ := clitest.NewServer()
		third, _ := clitest.NewServer()
		url += " redis://" + second.Addr() + " redis://" + third.Addr()
		session := nested("echo ran", "-k a", "-k b -k a --reenter", "-k a --reenter")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("ran\n"))
		session = nested("echo ran", "-k a", "-k b -k a --reenter", "-k b -k a --reenter")
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`"b" is held by a run further out, which would wait for itself`))
		Expect(clitest.Stdout(session)).To(BeEmpty())
		Eventually(client.DBSize(ctx).Val).Should(BeZero())
	})

	It("fails with --reenter if the run around it holds none of the keys", func() {
		session := nested("echo ran", "-k a", "-k b --reenter")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring("the run around this one holds none of the KEYs"))
		Expect(clitest.Stdout(session)).To(BeEmpty())
	})

	It("fails with --reenter if the surrounding lock is gone", func() {
		cmd := clitest.Command([]string{"REDIS_URL=" + url, "REDISLOCK_TOKEN=gone"}, "run", "-k", "a", "--reenter", "--", "echo", "ran")
		session := clitest.Start(cmd)
		Eventually(session).Should(gexec.Exit(1))
		Expect(clitest.Stdout(session)).To(BeEmpty())
	})

	Describe("--token", func() {
		get := func() []string { return []string{"redis-cli", "-p", strconv.Itoa(server.Port()), "get", "a"} }

		It("names the lock, which is kept, fenced and released as any other", func() {
			session := clitest.Run(url, append([]string{"run", "-k", "a", "--token", "mine", "--meta", "m", "--fence-key", "n",
				"--ttl", "1s", "--", "sh", "-c", `sleep 1.3; echo "$REDISLOCK_TOKEN $REDISLOCK_FENCE"; exec "$@"`, "sh"}, get()...)...)
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("mine " + client.Get(ctx, "n").Val() + "\nmine m\n"))
			Expect(client.Exists(ctx, "a").Val()).To(BeZero())
		})

		It("does not join a lock that has this token, and says how to", func() {
			clitest.Hold(client, "theirs", "a")
			session := clitest.Run(url, "run", "-k", "a", "--token", "the-token", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(Equal("redislock: \"a\" is already held with this token; to share that lock, add --share\n"))
			session = clitest.Run(url, "run", "-k", "a", "--token", "the-token", "--no-wait", "-E", "75", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(75))
			Expect(client.Get(ctx, "a").Val()).To(Equal("the-token theirs"))
		})

		DescribeTable("excludes those who use the same one",
			func(taken bool) {
				file := filepath.Join(GinkgoT().TempDir(), "order")
				holder := clitest.Hold(client, "", "a")
				if !taken {
					Expect(holder.Release(ctx)).To(Succeed())
				}
				const runs = 6
				var sessions []*gexec.Session
				for range runs { // all at once
					sessions = append(sessions, clitest.Begin(url, "run", "-k", "a", "--token", "same", "--",
						"sh", "-c", `echo in >>"$1"; sleep 0.05; echo out >>"$1"`, "sh", file))
				}
				if taken {
					time.Sleep(300 * time.Millisecond)
					Expect(holder.Release(ctx)).To(Succeed())
				}
				for _, session := range sessions {
					Eventually(session).Should(gexec.Exit())
					if session.ExitCode() != 0 { // it has started while another one held the lock
						Expect(clitest.Stderr(session)).To(ContainSubstring("add --share"))
					}
				}
				Expect(clitest.Written(file) + "\n").To(MatchRegexp(`^(in\nout\n)+$`))
			},
			Entry("if they start at the same time", false),
			Entry("if they wait at the same time", true),
		)

		It("shares with --share, and the first one renews", func() {
			first := clitest.Begin(url, "run", "-k", "a", "--token", "t", "--share", "--ttl", "500ms", "--", "sh", "-c", "echo in; sleep 1")
			Eventually(first).Should(gbytes.Say("in"))
			second := clitest.Run(url, "run", "-k", "a", "--token", "t", "--share", "--", "echo", "both")
			Expect(second).To(gexec.Exit(0))
			Eventually(first).Should(gexec.Exit(0))
		})
	})
})
