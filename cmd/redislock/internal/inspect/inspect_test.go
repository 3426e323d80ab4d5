//go:build unix

package inspect

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

func TestInspect(t *testing.T) { clitest.RunSpecs(t, "inspect") }

var _ = Describe("inspect", func() {
	on := clitest.OnServer()

	It("shows the holder, what it has left, the time and the line", func(ctx SpecContext) {
		clitest.Hold(on.Client, clitest.Bob, "a")
		clitest.WaitInLine(ctx, on.Client, "a")
		session := on.Run("inspect", "a")
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
           1\. [\w-]{22}, for (\d+ms|\d\.\ds)
$`))
	})

	It("lists who waits, in order, and breaks long lines between words on a terminal", func() {
		clitest.Hold(on.Client, clitest.Bob, "a")
		for i, who := range []string{"carol", "dave"} {
			waiting := clitest.Command([]string{"REDIS_URL=" + on.URL, "USER=" + who}, "run", "-k", "a", "--", "echo", "the whole order", who)
			clitest.Start(waiting)
			Eventually(func() string { return clitest.Stdout(on.Run("inspect", "a")) }).
				Should(MatchRegexp(`\n +%d\. %s.*, pid \d+ \(echo 'the whole order' %[2]s\), for .*\n`, i+1, who))
		}
		Expect(clitest.Stdout(on.Run("inspect", "a"))).To(MatchRegexp(`in line  2, .*\n +1\. carol.*\n +2\. dave`))

		user := clitest.NewTypist(on.URL)
		user.Types("stty cols 40; $R inspect a; echo done\n")
		user.Sees("done")
		for line := range strings.Lines(string(user.Screen.Contents())) {
			line = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(strings.TrimRight(line, "\r\n"), "")
			Expect(term.Width(line)).To(BeNumerically("<=", 40), line)
		}
	})

	It("ends with 1 if a key is free, and shows the others", func() {
		clitest.Hold(on.Client, "job 7", "a")
		session := on.Run("inspect", "a", "b")
		Expect(session).To(gexec.Exit(1))
		Expect(clitest.Stdout(session)).To(MatchRegexp(
			`^a\n  token     the-token\n  metadata  job 7\n  left      5\ds\n  in line   nobody\n\nb\n  free\n$`))
	})

	It("prints JSON", func() {
		clitest.Hold(on.Client, clitest.Bob, "a")
		session := on.Run("inspect", "--json", "a", "b")
		Expect(session).To(gexec.Exit(1))
		lines := strings.Split(strings.TrimSpace(clitest.Stdout(session)), "\n")
		Expect(lines).To(HaveLen(2))
		var seen map[string]any
		Expect(json.Unmarshal([]byte(lines[0]), &seen)).To(Succeed())
		Expect(seen).To(And(HaveKeyWithValue("key", "a"), HaveKeyWithValue("token", "the-token"),
			HaveKeyWithValue("metadata", clitest.Bob), HaveKeyWithValue("held_since", "2026-03-01T04:10:00Z"),
			HaveKeyWithValue("waiters", 0.), HaveKeyWithValue("fields", HaveKeyWithValue("user", "bob"))))
		Expect(lines[1]).To(Equal(`{"key":"b","token":"","metadata":"","ttl_ms":0,"waiters":0}`))
	})

	It("escapes what would reach the terminal", func(ctx SpecContext) {
		Expect(on.Client.Set(ctx, "a\x1b[2J", "to\x07ken {\"host\":\"\\u001b[31m\"}", time.Minute).Err()).To(Succeed())
		session := on.Run("inspect", "a\x1b[2J")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(HavePrefix("a\\x1b[2J\n  token    to\\x07ken\n  host     \\x1b[31m\n"))
	})

	It("recognises a value that is not a lock", func(ctx SpecContext) {
		Expect(on.Client.LPush(ctx, "a", "x").Err()).To(Succeed())
		session := on.Run("inspect", "a")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("a\n  taken    by something that is not a lock\n  left     none\n  in line  nobody\n"))
	})

	It("dies quietly by a closed pipe", func() {
		clitest.Hold(on.Client, clitest.Bob, "a")
		cmd := exec.Command("sh", "-c", `"$0" inspect a | true; exit 0`, clitest.Program())
		cmd.Env = append(cmd.Environ(), "REDIS_URL="+on.URL)
		session := clitest.Start(cmd)
		Eventually(session).Should(gexec.Exit(0))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})
})
