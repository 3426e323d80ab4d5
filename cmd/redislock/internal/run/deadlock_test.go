//go:build unix

package run

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
)

var _ = Describe("redislock run in a circle", func() {
	var client *redis.Client
	var url string

	BeforeEach(func() {
		server, own := clitest.NewServer()
		client, url = own, "redis://"+server.Addr()
	})

	// holding returns the arguments of a run that holds a key. Its command waits until others are so far, and does something.
	// R is the program.
	holding := func(key, until, what string) []string {
		command := fmt.Sprintf("until %s; do sleep 0.02; done; %s", until, what)
		return []string{"run", "-k", key, "--", "sh", "-c", strings.ReplaceAll(command, "R ", clitest.Program()+" ")}
	}
	isHeld := func(key string) string { return "R inspect " + key + " >/dev/null" }
	isWanted := func(key string) string { return "R inspect --json " + key + ` | grep -q '"waiters":1'` }

	DescribeTable("gives up the last wait, and the others go on",
		func(ctx SpecContext, flags, code, words string) {
			first := clitest.Begin(url, holding("a", isHeld("b")+" && "+isHeld("c"), "exec R run -k b -- echo one")...)
			second := clitest.Begin(url, holding("b", isHeld("a")+" && "+isHeld("c"), "exec R run -k c -- echo two")...)
			Eventually(client.Exists).WithArguments(ctx, "a", "b").WithTimeout(5 * time.Second).Should(HaveField("Val()", int64(2)))
			began := time.Now()
			third := clitest.Run(url, holding("c", isWanted("b")+" && "+isWanted("c"),
				`R run -k d -- R run -k a `+flags+` -- echo three; echo ended with $?`)...)
			Expect(time.Since(began)).To(BeNumerically("<", 15*time.Second), "the programs start and look")
			Expect(third).To(gexec.Exit(0))
			Expect(clitest.Stdout(third)).To(Equal("ended with " + code + "\n"))
			Expect(clitest.Stderr(third)).To(MatchRegexp("^" + words + "$"))
			Eventually(second).WithTimeout(2 * time.Second).Should(gexec.Exit(0))
			Eventually(first).WithTimeout(2 * time.Second).Should(gexec.Exit(0))
			Expect(clitest.Stdout(second) + clitest.Stdout(first)).To(Equal("two\none\n"))
			for _, key := range client.Keys(ctx, "*").Val() {
				Expect(key).To(HaveSuffix(keyname.NoteSuffix), "what ends by itself")
			}
		},
		Entry("with words", "", "75", `redislock: not acquired: deadlock: this waits for "a", held by alice@.*, pid \d+ \(.*\), `+
			`who waits for "b", held by alice@.*, pid \d+ \(.*\), who waits for "c", which this run holds; `+
			`take all keys at once, or always in the same order\n`),
		Entry("with another exit code, and quietly", "-q --deadlock-exit-code 42", "42", ""),
	)

	It("says for what a holder waits itself", func(ctx SpecContext) {
		clitest.Hold(client, clitest.Bob, "b")
		first := clitest.Begin(url, "run", "-k", "a", "--", clitest.Program(), "run", "-k", "b", "--", "true")
		Eventually(client.Exists).WithArguments(ctx, keyname.LineOf("b")).WithTimeout(5 * time.Second).Should(HaveField("Val()", int64(1)))
		second := clitest.Begin(url, "run", "-k", "a", "--verbose", "--", "true")
		Eventually(second.Err).WithTimeout(15 * time.Second).Should(gbytes.Say(`waiting for a: held by alice@.* left, waits itself for b\n`))
		Expect(client.Del(ctx, "b").Err()).To(Succeed())
		Eventually(first).WithTimeout(10 * time.Second).Should(gexec.Exit(0))
		Eventually(second).WithTimeout(10 * time.Second).Should(gexec.Exit(0))
	})
})
