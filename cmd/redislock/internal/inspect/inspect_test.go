//go:build unix

package inspect

import (
	"encoding/json"
	"fmt"
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
           process [\w-]{8}…: 1, for (\d+ms|\d\.\ds)
$`))
	})

	const (
		fresh, late = 500 * time.Second, 100 * time.Second // until a mark ends
		dead, early = -time.Second, time.Hour              // of marks that do not count

		// ago is about n hours. A spec that takes less than half a minute reads the same.
		hour, half = time.Hour, 30 * time.Second
	)

	It("lists which processes wait, in the order of their first waiters", func(ctx SpecContext) {
		clitest.Hold(on.Client, "", "a")
		orders := `{"host":"api-4","pid":977,"program":"orders"}`
		clitest.Stand(ctx, on.Client, "a", "orders-0000.1", orders, fresh, 5*hour+half, 2*hour)
		clitest.Stand(ctx, on.Client, "a", "orders-0000.2", orders, late, hour)
		clitest.Stand(ctx, on.Client, "a", "ship-0000.1", clitest.Bob, fresh, 4*hour+half)
		clitest.Stand(ctx, on.Client, "a", "text-00000.1", "job 7", late, 3*hour+half, hour)
		clitest.Stand(ctx, on.Client, "a", "nameless-0000.1", "", late, 2*hour+half)
		Expect(clitest.Stdout(on.Run("inspect", "a"))).To(HaveSuffix(`
  in line  7 from 4 processes, the first for 5h00m
           api-4, pid 977 (orders): 3, the first for 5h00m, 1 late
           bob@api-3, pid 4121 (./ship 7): 1, for 4h00m
           job 7, process text-000…: 2, the first for 3h00m, late
           process nameless…: 1, for 2h00m, late
`))
	})

	It("shows ten waiting processes, and says how many more there are", func(ctx SpecContext) {
		clitest.Hold(on.Client, "", "a")
		for i := range 12 {
			clitest.Stand(ctx, on.Client, "a", fmt.Sprintf("%08d-0000.1", i), "", fresh, time.Duration(20-i)*hour+half)
		}
		Expect(clitest.Stdout(on.Run("inspect", "a"))).To(MatchRegexp(
			`in line  12 from 12 processes, the first for 20h00m(\n +process 0000000\d…: 1, for [12]\dh00m){10}\n +… and 2 more\n$`))
		var seen struct{ Processes, Line []any }
		Expect(json.Unmarshal([]byte(clitest.Stdout(on.Run("inspect", "--json", "a"))), &seen)).To(Succeed())
		Expect(seen.Processes).To(HaveLen(12))
		Expect(seen.Line).To(HaveLen(12))
	})

	It("leaves out waiters whose process shows no signs of life, for each KEY", func(ctx SpecContext) {
		clitest.Hold(on.Client, "", "a", "b")
		for _, key := range []string{"a", "b"} {
			clitest.Stand(ctx, on.Client, key, "dead.1", "", dead, 9*hour)
			clitest.Stand(ctx, on.Client, key, "early.1", "", early, 8*hour)
			clitest.Stand(ctx, on.Client, key, "unmarked.1", "", 0, 7*hour)
		}
		clitest.Stand(ctx, on.Client, "a", "alive.1", "", fresh, 6*hour+half)
		Expect(clitest.Stdout(on.Run("inspect", "a", "b"))).To(MatchRegexp(
			`in line  1, the first for 6h00m\n +process alive: 1, for 6h00m\n\nb\n.*\n.*\n +in line  nobody\n$`))
	})

	It("prints in JSON which processes wait, and who is in line", func(ctx SpecContext) {
		metadata := `{"host":"api-4","pid":977}`
		clitest.Stand(ctx, on.Client, "a", "orders.1", metadata, fresh, 3*hour)
		clitest.Stand(ctx, on.Client, "a", "orders.2", "job 7", late, hour)
		clitest.Stand(ctx, on.Client, "a", "ship.1", "job 7", fresh, 2*hour)
		session := on.Run("inspect", "--json", "a", "b")
		Expect(session).To(gexec.Exit(1))
		lines := strings.Split(strings.TrimSpace(clitest.Stdout(session)), "\n")
		Expect(lines).To(HaveLen(2))
		var seen struct {
			Waiters   int
			Processes []map[string]any
			Line      []map[string]any
		}
		Expect(json.Unmarshal([]byte(lines[0]), &seen)).To(Succeed())
		Expect(seen.Waiters).To(Equal(3))
		since := HaveKeyWithValue("since", HaveSuffix("Z"))
		Expect(seen.Processes).To(HaveExactElements(
			And(since, HaveKeyWithValue("process", "orders"), HaveKeyWithValue("metadata", metadata),
				HaveKeyWithValue("fields", Equal(map[string]any{"host": "api-4", "pid": 977.})),
				HaveKeyWithValue("waiters", 2.), HaveKeyWithValue("late", 1.)),
			And(since, HaveKeyWithValue("process", "ship"), HaveKeyWithValue("metadata", "job 7"), Not(HaveKey("fields")),
				HaveKeyWithValue("waiters", 1.), HaveKeyWithValue("late", 0.)),
		))
		Expect(seen.Line).To(HaveExactElements(
			And(since, HaveKeyWithValue("token", "orders.1-0"), HaveKeyWithValue("process", "orders"), HaveKeyWithValue("late", false)),
			And(since, HaveKeyWithValue("token", "ship.1-0"), HaveKeyWithValue("process", "ship"), HaveKeyWithValue("late", false)),
			And(since, HaveKeyWithValue("token", "orders.2-0"), HaveKeyWithValue("process", "orders"), HaveKeyWithValue("late", true)),
		))
		Expect(lines[1]).To(Equal(`{"key":"b","token":"","metadata":"","ttl_ms":0,"waiters":0}`))
	})

	It("breaks long lines about who waits between words on a terminal", func() {
		clitest.Hold(on.Client, clitest.Bob, "a")
		for i, who := range []string{"carol", "dave"} {
			waiting := clitest.Command([]string{"REDIS_URL=" + on.URL, "USER=" + who}, "run", "-k", "a", "--", "echo", "the whole order", who)
			clitest.Start(waiting)
			Eventually(func() string { return clitest.Stdout(on.Run("inspect", "a")) }).
				Should(MatchRegexp(`in line  %d.*\n(.*\n)?.* %s.*, pid \d+ \(echo 'the whole order' %[2]s\): 1, for .*\n`, i+1, who))
		}
		Expect(clitest.Stdout(on.Run("inspect", "a"))).To(MatchRegexp(`in line  2 from 2 processes, .*\n +carol.*\n +dave`))

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
