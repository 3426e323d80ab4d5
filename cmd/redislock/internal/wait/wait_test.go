//go:build unix

package wait

import (
	"context"
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

func TestWait(t *testing.T) { clitest.RunSpecs(t, "wait") }

var _ = Describe("wait", func() {
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

	It("ends at once if all is free", func() {
		began := time.Now()
		Expect(clitest.Run(url, "wait", "a", "b")).To(gexec.Exit(0))
		Expect(time.Since(began)).To(BeNumerically("<", time.Second))
	})

	It("ends when the last key is released, and takes none", func() {
		first, second := clitest.Hold(client, "", "a"), clitest.Hold(client, "", "b")
		session := clitest.Begin(url, "wait", "a", "b")
		Consistently(session, "200ms").ShouldNot(gexec.Exit())
		Expect(first.Release(ctx)).To(Succeed())
		Consistently(session, "200ms").ShouldNot(gexec.Exit())
		Expect(second.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	It("gives up after --timeout, and says who has it", func() {
		clitest.Hold(client, clitest.Bob, "a")
		began := time.Now()
		session := clitest.Run(url, "wait", "a", "--timeout", "300ms")
		Expect(time.Since(began)).To(BeNumerically("~", 1100*time.Millisecond, 800*time.Millisecond))
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`not free within 300ms: "a" is held by bob@api-3, pid 4121`))
	})

	It("looks a last time when --timeout is over", func() {
		Expect(client.Set(ctx, "a", "the-token", 420*time.Millisecond).Err()).To(Succeed())
		Expect(clitest.Run(url, "wait", "a", "--timeout", "580ms")).To(gexec.Exit(0)) // between the looks at 310 and 630 ms
	})

	It("bears a Redis that is away for a while", func() {
		Expect(client.Set(ctx, "a", "the-token", time.Minute).Err()).To(Succeed())
		session := clitest.Begin(url, "wait", "a", "--verbose")
		Eventually(session.Err).Should(gbytes.Say("waiting for a"))
		Expect(server.Kill()).To(Succeed())
		Consistently(session, "500ms").ShouldNot(gexec.Exit())
		Expect(server.Restart()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
	})

	It("goes on with a password that was replaced", func() {
		user := clitest.NewUser(ctx, client)
		holder := clitest.Hold(client, clitest.Bob, "a")
		session := clitest.Begin(user.URL(server.Addr()), "wait", "a", "--verbose", "--password-file", user.File)
		Eventually(session.Err).Should(gbytes.Say("waiting for a"))
		user.Replace(ctx, "secret-2")
		Expect(holder.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0), clitest.Stderr(session))
	})

	It("Ctrl-\\ ends what asks Redis, without a word", func() {
		Expect(client.Set(ctx, "a", "the-token", time.Minute).Err()).To(Succeed())
		user := clitest.NewTypist(url)
		user.Types("$R wait a\n")
		user.Shows("redislock: waiting 0s; a: the-to…, 5")
		user.Types(clitest.CtrlBackslash + "echo code $?\n")
		user.Sees("code 131\r\n")
		Expect(string(user.Screen.Contents())).NotTo(ContainSubstring("goroutine"))
	})

	It("says who is in the way at a terminal, and with --verbose, but not with --quiet", func() {
		clitest.Hold(client, clitest.Bob, "a")
		user := clitest.NewTypist(url)
		user.Types("$R wait a\n")
		user.Shows(`\nredislock: waiting \ds; a: bob@api-3 the-to…, 5\ds left$`)
		user.Types(clitest.CtrlC)
		user.Shows("ready\n*$")
		before := len(user.Screen.Contents())
		user.Types("$R wait a --quiet --wait 600ms; echo code $?\n")
		user.Sees(`code 1\r\n`)
		Expect(string(user.Screen.Contents()[before:])).NotTo(ContainSubstring("waiting"))

		session := clitest.Run(url, "wait", "a", "--wait", "600ms", "--verbose")
		Expect(clitest.Stderr(session)).To(ContainSubstring("redislock: waiting for a: held by bob@api-3"))
		session = clitest.Run(url, "wait", "a", "--wait", "600ms")
		Expect(clitest.Stderr(session)).NotTo(ContainSubstring("waiting"))
	})

	It("only looks with --wait 0", func() {
		Expect(clitest.Run(url, "wait", "a", "--wait", "0")).To(gexec.Exit(0))
		clitest.Hold(client, clitest.Bob, "a")
		session := clitest.Run(url, "wait", "a", "--wait", "0")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(ContainSubstring(`redislock: not free: "a" is held by bob@api-3`))
	})

	DescribeTable("keeps to its limit",
		func(before, meanwhile func() error) {
			clitest.Hold(client, clitest.Bob, "a")
			if before != nil {
				Expect(before()).To(Succeed())
			}
			began := time.Now()
			session := clitest.Begin(url, "wait", "a", "--wait", "500ms")
			if meanwhile != nil {
				time.Sleep(250 * time.Millisecond)
				Expect(meanwhile()).To(Succeed())
			}
			Eventually(session, "12s").Should(gexec.Exit(69))
			Expect(time.Since(began)).To(And(BeNumerically(">=", 500*time.Millisecond), BeNumerically("<", 2*time.Second)))
		},
		Entry("while Redis is stopped", func() error { return server.Pause() }, nil),
		Entry("while Redis is down", func() error { return server.Kill() }, nil),
		Entry("when Redis stops meanwhile", nil, func() error { return server.Pause() }),
		Entry("when Redis goes down meanwhile", nil, func() error { return server.Kill() }),
	)

	It("waits for a Redis that is down at the start, if there is a limit", func() {
		Expect(server.Kill()).To(Succeed())
		session := clitest.Begin(url, "wait", "a", "--wait", "1m")
		Consistently(session, "300ms").ShouldNot(gexec.Exit())
		Expect(server.Restart()).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
	})

	It("ends with 69 without Redis", func() {
		Expect(server.Kill()).To(Succeed())
		session := clitest.Run(url, "wait", "a")
		Expect(session).To(gexec.Exit(69))
		Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*refused.*\n$`))
		Expect(clitest.Stdout(session)).To(BeEmpty())
	})
})
