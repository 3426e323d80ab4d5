//go:build unix

package run

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("redislock run with shared keys", func() {
	on := clitest.OnServer()

	run := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return on.Run(append([]string{"run"}, args...)...)
	}
	// share has somebody else hold a key, for so many holders; 0 for no limit.
	share := func(ctx context.Context, key string, limit int) *redislock.Lock {
		GinkgoHelper()
		opt := &redislock.Options{Metadata: clitest.Bob, Shared: []string{key}}
		if limit > 0 {
			opt.Shared, opt.Permits = nil, map[string]int{key: limit}
		}
		lock, err := redislock.Obtain(ctx, on.Client, key, time.Minute, opt)
		Expect(err).NotTo(HaveOccurred())
		return lock
	}

	It("locks all keys, and lets others share some of them", func(ctx SpecContext) {
		share(ctx, "catalog", 0)
		share(ctx, "gpu", 4)
		session := run("-k", "account:3", "--shared", "catalog", "--permit", "gpu=4", "--no-wait", "--", "sh", "-c",
			`printf %s "$REDISLOCK_KEYS"; `+clitest.Program()+` ls -o 'template={key} {holders} {limit}' >&2`)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(Equal("account:3\ncatalog\ngpu"))
		Expect(clitest.Stderr(session)).To(Equal("account:3 1 1\ncatalog 2 0\ngpu 2 4\n"))
		Expect(clitest.Stdout(on.Run("ls", "-o", "template={key} {holders}"))).To(Equal("catalog 1\ngpu 1\n"))
	})

	It("names the last = of --permit as the one before the number", func() {
		Expect(clitest.Stdout(run("--permit", "a=b=2", "--", "sh", "-c", `printf %s "$REDISLOCK_KEYS"`))).To(Equal("a=b"))
	})

	DescribeTable("refuses what the limits do not allow, and says who is in the way",
		func(ctx SpecContext, limit int, words string, args ...string) {
			share(ctx, "a", limit)
			share(ctx, "a", limit)
			session := run(append(append([]string{"--no-wait"}, args...), "--", "echo", "ran")...)
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(clitest.Stderr(session)).To(HavePrefix(`redislock: not acquired: "a" is held by bob@api-3, pid 4121 (./ship 7)` + words))
		},
		Entry("exclusive beside sharers", 0, " and 1 more, 5", "-k", "a"),
		Entry("more than others allow", 2, " and 1 more, 5", "--permit", "a=3"),
		Entry("more than it allows itself", 0, " and 1 more, 5", "--permit", "a=2"),
		Entry("shared, with a limit of others", 2, " and 1 more, 5", "--shared", "a"),
	)

	It("waits for all who share what it wants alone, and says so", func(ctx SpecContext) {
		first, second := share(ctx, "a", 0), share(ctx, "a", 0)
		session := clitest.Begin(on.URL, "run", "--verbose", "-k", "a", "--", "echo", "ran")
		Eventually(session.Err).Should(gbytes.Say("waiting for a: held by bob@api-3, pid 4121 .* and 1 more"))
		Expect(first.Release(ctx)).To(Succeed())
		Consistently(session, "200ms").ShouldNot(gexec.Exit())
		Expect(second.Release(ctx)).To(Succeed())
		Eventually(session).Should(gexec.Exit(0))
	})

	DescribeTable("refuses flags that make no sense, and sends nothing",
		func(words string, args ...string) {
			session := clitest.Run("redis://127.0.0.1:1", append(append([]string{"run"}, args...), "--", "true")...)
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
		},
		Entry("no number", `--permit "gpu" has no number of holders; write it as KEY=N, as in --permit gpu=4`, "--permit", "gpu"),
		Entry("no key", `--permit "=4" names no key`, "--permit", "=4"),
		Entry("no holder", `"0" is not a number from 1 to 1,000,000`, "--permit", "gpu=0"),
		Entry("less than none", `"-1" is not a number from 1 to 1,000,000`, "--permit", "gpu=-1"),
		Entry("too many", `"1000001" is not a number from 1 to 1,000,000`, "--permit", "gpu=1000001"),
		Entry("more than a machine counts", `is not a number from 1 to 1,000,000`, "--permit", "gpu=99999999999999999999"),
		Entry("a word", `"four" is not a number`, "--permit", "gpu=four"),
		Entry("two numbers", `--permit gives "gpu" 2 and 3 holders`, "--permit", "gpu=2", "--permit", "gpu=3"),
		Entry("both ways", `"a" is named by --shared and by --permit`, "--permit", "a=2", "--shared", "a"),
		Entry("shared and exclusive", `"a" is to be locked exclusively`, "-k", "a", "--shared", "a"),
		Entry("limited and exclusive", `"a" is to be locked exclusively`, "-k", "a", "--permit", "a=2"),
		Entry("an empty key", "--shared is empty; is a variable unset?", "--shared", ""),
		Entry("a key without a place for holders", `--shared "a{" has a brace but no hash tag`, "--shared", "a{"),
		Entry("likewise with a number", `--permit "a{" has a brace but no hash tag`, "--permit", "a{=2"),
		Entry("a token of the user", "--token does not work with --shared and --permit", "--shared", "a", "--token", "t"),
	)

	It("refuses the name of a house", func() {
		Expect(run("--shared", "a:redislock:house", "--", "true")).To(gexec.Exit(64))
	})

	It("ends with another exit code if a key has another type", func(ctx SpecContext) {
		Expect(on.Client.HSet(ctx, "a{a}:redislock:house", "f", "v").Err()).To(Succeed())
		session := run("--shared", "a", "--no-wait", "--", "echo", "ran")
		Expect(session).NotTo(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(BeEmpty())
		Expect(clitest.Stderr(session)).To(ContainSubstring(`"a{a}:redislock:house" holds a hash`))
		Expect(on.Client.Exists(ctx, "a").Val()).To(BeZero())
	})

	Describe("inside another run", func() {
		// nested runs a command under two runs with these flags.
		nested := func(outer, inner string) *gexec.Session {
			GinkgoHelper()
			args := append(strings.Fields(outer), "--", clitest.Program(), "run")
			return run(append(append(args, strings.Fields(inner)...), "--", "echo", "ran")...)
		}

		DescribeTable("shares a key with it", func(outer, inner string) {
			session := nested(outer, inner)
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
			Expect(clitest.Stdout(session)).To(Equal("ran\n"))
		},
			Entry("by a hold of its own", "--shared a", "--shared a"),
			Entry("by a permit of its own", "--permit a=2", "--permit a=2"),
			Entry("by its hold", "--shared a", "--reenter --shared a --permit b=1"),
			Entry("that is exclusive there", "-k a", "--reenter --shared a"),
			Entry("that has fewer holders there", "--permit a=2", "--reenter --permit a=3"),
		)

		DescribeTable("fails at once if it would wait for itself", func(outer, inner, words string) {
			session := nested(outer, inner)
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
		},
			Entry("for a key that it wants alone", "--shared a", "-k a", "which would wait for itself"),
			Entry("for the only permit", "--permit a=1", "--permit a=2", "which would wait for itself"),
			Entry("for a key that is exclusive there", "-k a", "--shared a", "which would wait for itself"),
			Entry("by re-entering with more than there is", "--shared a", "--reenter -k a",
				`"a" is shared with more holders by the lock to re-enter than this run allows`),
			Entry("or with a number that is too small", "--permit a=3", "--reenter --permit a=2", "than this run allows"),
		)
	})

	It("shares keys on a quorum, and refuses permits there", func(ctx SpecContext) {
		url := on.URL
		for range 2 {
			server, _ := clitest.NewServer()
			url += " redis://" + server.Addr()
		}
		session := clitest.Run(url, "run", "-k", "a", "--shared", "b", "--permit", "c=1", "--", clitest.Program(), "run", "--shared", "b",
			"--", clitest.Program(), "ls", "-o", "template={key} {holders}")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(Equal("a 1\nb 2\nc 1\n"))

		session = clitest.Run(url, "run", "--shared", "b", "--", clitest.Program(), "run", "--no-wait", "-k", "b", "--", "true")
		Expect(session).To(gexec.Exit(1))
		session = clitest.Run(url, "run", "--permit", "c=2", "--", "true")
		Expect(session).To(gexec.Exit(64))
		Expect(clitest.Stderr(session)).To(ContainSubstring("--permit c=2 does not work on a quorum of servers"))
	})

	It("completes the keys of both flags", func(ctx SpecContext) {
		share(ctx, "gpu", 4)
		Expect(clitest.Stdout(on.Run("__complete", "run", "--shared", "g"))).To(HavePrefix("gpu\t1 of 4 holders\n"))
		Expect(clitest.Stdout(on.Run("__complete", "run", "--permit", ""))).To(HavePrefix("gpu=\t1 of 4 holders\n"))
		Expect(clitest.Stdout(on.Run("__complete", "run", "--permit", "gpu="))).To(HavePrefix(":"))
	})
})
