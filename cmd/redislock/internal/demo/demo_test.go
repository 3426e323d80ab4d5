package demo

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/testing/bubble"
)

func TestDemo(t *testing.T) { clitest.RunSpecs(t, "demo") }

// essentials are what the story must tell, in this order.
var essentials = []string{
	`checkout ✓ locked order:7 and stock:42 together, for 5 s\n`,
	`restock  ✗ refused: stock:42 is taken \(redislock: not obtained\)\n`,
	`account:3 is still free\n`,
	`\{redislock-demo\}:order:7    [\w-]{22}  \d\.\d s  checkout, order 7\n`,
	`\{redislock-demo\}:stock:42   [\w-]{22}  \d\.\d s  checkout, order 7\n`,
	`\{redislock-demo\}:account:3  \(free\)\n`,
	`> GET \{redislock-demo\}:stock:42\n   "[\w-]{22} checkout, order 7"\n`,
	`restock    waits in line`,
	`█░+  [0-4]\.\d\d s left\n`,
	`█░+  [0-4]\.\d\d s left\n`,
	`█░+  [0-4]\.\d\d s left\n`,
	`restock    stands in line for stock:42, alone`,
	`checkout ✓ █+░*  [45]\.\d\d s left, by Refresh\n`,
	`Lock\.Until`,
	`checkout ✓ released`,
	`restock  ✓ locked stock:42 and account:3, \d+ ms later\n`,
	`\{redislock-demo\}:order:7    \(free\)\n`,
	`\{redislock-demo\}:stock:42   [\w-]{22}  \d\.\d s  restock, stock 42\n`,
	`restock    took its lock for 1\.5 s only, and keeps it\n`,
	`█░*  1\.[0-5]\d s left\n`,
	`█░*  1\.[0-5]\d s left\n`,
	`restock  ✓ still holds it`,
	`restock    hangs`,
	`checkout ✓ locked order:7 and stock:42\n`,
	`restock  ✗ cannot refresh either \(redislock: not obtained\)\n`,
	`1st grant, fencing token \d{15,16}\n`,
	`2nd grant, fencing token \d{15,16}\n`,
	`3rd grant, fencing token \d{15,16}\n`,
	`storage  ✓ accepted the write of checkout`,
	`storage  ✗ refused the late write of restock`,
	`checkout ✓ shares catalog`, `restock  ✓ shares catalog`, `storage    wants catalog alone`, `storage  ✓ locked catalog alone`,
	`no key is left behind\.\n$`,
}

// told fails if the story was not told in full, without colours.
func told(g Gomega, story string) {
	rest := story
	for i, essential := range essentials {
		found := regexp.MustCompile(`(?s)` + essential).FindStringIndex(rest)
		g.Expect(found).NotTo(BeNil(), "%q is missing after %q in:\n%s", essential, essentials[max(i-1, 0)], story)
		rest = rest[found[1]:]
	}
	g.Expect(story).NotTo(ContainSubstring("\x1b"))
}

// On fake time, the story in memory takes no time.
func TestStoryInMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var out, errs strings.Builder
		env := &cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}
		began := time.Now()
		d := &demo{narrator: newNarrator(&out, term.Screen{}, nil)}
		g.Expect(d.run(t.Context(), &connect.Target{Env: env}, false)).To(Succeed())
		g.Expect(time.Since(began)).To(BeNumerically("<", 13*time.Second))
		told(g, out.String())
		g.Expect(errs.String()).To(BeEmpty())
		for line := range strings.Lines(out.String()) {
			g.Expect(utf8.RuneCountInString(line)).To(BeNumerically("<=", 81), line)
		}
	})
}

// guardEssentials are what the story of the guard must tell, in this order.
var guardEssentials = []string{
	`checkout ✓ locked stock:42 for 1\.5 s, and keeps it\n`, `server     restarts`,
	`restock  ✗ locked stock:42 as well: two workers hold one lock\n`, `checkout ✗ learns by its next renewal`,
	`checkout ✓ locked stock:42 for 1\.5 s, and keeps it\n`, `server     restarts`,
	`restock  ✗ refused: the guard is closed for another \d\.\d s\n`, `checkout ✓ put its lock back`,
	`restock  ✗ refused: the guard is open again, and checkout holds stock:42\n`,
	`checkout ✓ has held its lock all the time`, `restock  ✓ locked stock:42\n$`,
}

func TestGuardStory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var out strings.Builder
		began := time.Now()
		g.Expect((&guardDemo{narrator: newNarrator(&out, term.Screen{}, nil)}).run(t.Context())).To(Succeed())
		g.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
		g.Expect(out.String()).To(MatchRegexp(`(?s)` + strings.Join(guardEssentials, `.*`)))
		for line := range strings.Lines(out.String()) {
			g.Expect(utf8.RuneCountInString(line)).To(BeNumerically("<=", 101), line)
		}
	})
}

var _ = Describe("demo", func() {
	// serving starts a Redis in memory that listens on a port, with keys that expire as time passes.
	serving := func() (server *miniredis.Miniredis, url string) {
		GinkgoHelper()
		server = miniredis.NewMiniRedis()
		server.ClockTTL(true)
		Expect(server.Start()).To(Succeed())
		DeferCleanup(server.Close)
		return server, "redis://" + server.Addr()
	}

	It("tells its story on a server, and leaves no key behind", func(ctx SpecContext) {
		server, _ := clitest.NewServer("requirepass secret")
		url := "redis://:secret@" + server.Addr() + "/2"
		session := clitest.Run(url, "demo", "--redis", url)
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stderr(session)).To(BeEmpty())
		told(Default, clitest.Stdout(session))

		opt, err := redis.ParseURL(url)
		Expect(err).NotTo(HaveOccurred())
		client := redis.NewClient(opt)
		DeferCleanup(client.Close)
		Expect(client.Keys(ctx, "*").Val()).To(BeEmpty())
	})

	DescribeTable("tidies up after an interrupt, at once",
		func(when string) {
			server, url := serving()
			session := clitest.Begin("", "demo", "--redis", url)
			Eventually(session).Should(gbytes.Say(when))
			interrupted := time.Now()
			Eventually(session.Interrupt()).Should(gexec.Exit(130))
			Expect(time.Since(interrupted)).To(BeNumerically("<", 2*time.Second))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*no key is left behind\n$`))
			Expect(server.Keys()).To(BeEmpty())
		},
		Entry("while a worker holds a lock", "together"),
		Entry("while another one waits in line", "waits in line"),
	)

	It("tidies up when nobody reads it any more", func() {
		server, url := serving()
		cmd := clitest.Command(nil, "demo", "--redis", url)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() { _ = cmd.Process.Kill() })
		Eventually(gbytes.BufferReader(out)).Should(gbytes.Say("together"))
		Expect(out.Close()).To(Succeed())
		_ = cmd.Wait()
		Expect(cmd.ProcessState.ExitCode()).To(Equal(141))
		Expect(said.String()).To(MatchRegexp(`^redislock: .*no key is left behind\n$`))
		Expect(server.Keys()).To(BeEmpty())
	})

	It("finds what is wrong: a Redis that forgets", func() {
		server, url := serving()
		session := clitest.Begin("", "demo", "--redis", url)
		Eventually(session).Should(gbytes.Say("s left"))
		server.FlushAll()
		Eventually(session).Should(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: this should not happen: the remaining TTL.*\n$`))
		Expect(server.Keys()).To(BeEmpty())
	})

	It("refuses to disturb another demo", func() {
		server, url := serving()
		Expect(server.Set(fence, "41")).To(Succeed())
		session := clitest.Run("", "demo", "--redis", url)
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stderr(session)).To(HavePrefix("redislock: the key " + fence + " exists: wait for the other demo to end"))
		Expect(clitest.Stdout(session)).To(BeEmpty())
		Expect(server.Get(fence)).To(Equal("41"))
	})

	It("has colours where they are wanted", func() {
		var out strings.Builder
		n := newNarrator(&out, term.Screen{Coloured: true}, nil)
		n.gets(checkout, "locked")
		Expect(out.String()).To(ContainSubstring("\x1b[36mcheckout\x1b[0m \x1b[32m✓\x1b[0m locked\n"))
	})
})

var _ = Describe("redislock demo --quorum", func() {
	It("tells how a lock survives a server, and is refused without a majority", func() {
		session := clitest.Run("redis://127.0.0.1:1", "demo", "--quorum")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`(?s)` + strings.Join([]string{
			`checkout ✓ locked order:7 and stock:42, for 5 s\n`,
			`server 1 [^\n]* checkout\n +server 2 [^\n]* checkout\n +server 3 [^\n]* checkout\n`,
			`server 2   dies\n`,
			`checkout ✓ refreshed its lock on the other two\n`,
			`restock  ✗ refused: stock:42 is taken \(redislock: not obtained\)\n`,
			`server 1 [^\n]* checkout\n +server 2 [^\n]*\(dead\)\n +server 3 [^\n]* checkout\n`,
			`checkout ✓ refreshed its lock, and has it on all three again\n`,
			`server 1 [^\n]* checkout\n +server 2 [^\n]* checkout\n +server 3 [^\n]* checkout\n`,
			`restock  ✗ gets no lock`, `server 2 is dead; server 3 [^\n]* is dead\n`,
			`no key is left behind\.\n$`,
		}, `.*`)))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("leaves real servers alone", func() {
		for _, story := range []string{"--quorum", "--guard"} {
			session := clitest.Run("", "demo", story, "--redis", "redis://127.0.0.1:1")
			Expect(session).To(gexec.Exit(cli.Usage))
		}
	})
})

var _ = Describe("redislock demo --guard", func() {
	It("tells how a lock survives a server that forgets it", func() {
		session := clitest.Run("redis://127.0.0.1:1", "demo", "--guard")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(clitest.Stdout(session)).To(MatchRegexp(`(?s)` + strings.Join(guardEssentials, `.*`)))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})
})
