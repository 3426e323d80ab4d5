//go:build unix

package ls

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

var _ = Describe("ls at a terminal", func() {
	on := clitest.OnServer()

	locks := func(n int) {
		GinkgoHelper()
		pipe := on.Client.Pipeline()
		for i := range n {
			pipe.Set(context.Background(), fmt.Sprintf("backup:customer:%05d", i), tokenOf(i)+
				fmt.Sprintf(` {"host":"db-%d.internal","pid":%d,"user":"deploy","command":"./backup.sh %d","since":%q}`,
					i%9, 4_000_000+i, i, time.Now().Add(-longTTL).Format(time.RFC3339)), time.Hour)
		}
		_, err := pipe.Exec(context.Background())
		Expect(err).NotTo(HaveOccurred())
	}
	// shown returns the lines that a terminal of that width shows, without colours.
	shown := func(text []byte, columns int) []string {
		GinkgoHelper()
		ansi := regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
		var lines []string
		for line := range strings.Lines(string(text)) {
			line = ansi.ReplaceAllString(strings.TrimRight(line, "\r\n"), "")
			Expect(term.Width(line)).To(BeNumerically("<=", columns), line)
			lines = append(lines, line)
		}
		return lines
	}

	DescribeTable("ls fits the width of the terminal, and tells keys apart that begin alike",
		func(columns int, head, first string) {
			locks(3)
			user := clitest.NewTypist(on.URL)
			before := len(user.Screen.Contents())
			user.Types(fmt.Sprintf("stty cols %d; $R ls; echo done\n", columns))
			user.Sees("done")
			lines := shown(user.Screen.Contents()[before:], columns)
			Expect(lines[0]).To(Equal(head))
			Expect(lines[1]).To(MatchRegexp(first))
		},
		Entry("wide", 120, "KEY                    HOLDER                    PID  COMMAND          AGE     TTL  LINE",
			`^backup:customer:00000  deploy@db-0.internal  4000000  \./backup.sh 0  3d04h  59m5\ds     0$`),
		Entry("usual", 80, "KEY                HOLDER                PID  COMMAND          AGE     TTL  LINE",
			`^backup:c…er:00000  deploy@db-0.int…  4000000  \./backup.sh 0  3d04h  59m5\ds     0$`),
		Entry("narrow", 60, "KEY           HOLDER        COMMAND        AGE     TTL  LINE",
			`^backup…00000  deploy@db-0…  \./backup.s…  3d04h  59m5\ds     0$`),
		Entry("40 columns", 40, "KEY           HOLDER           TTL  LINE", `^backup…00000  deploy@db-0…  59m5\ds     0$`),
		Entry("hardly any", 15, "KEY        HOL…", `^back…0000  dep…$`),
	)

	It("ls --watch fits the screen, also when its size changes, and ends on q", func() {
		locks(1_000)
		user := clitest.NewTypist(on.URL)
		user.Types("stty cols 60 rows 10; $R ls --watch=1m --limit=1000; echo code $?\n")
		user.Sees("… and 994 more")
		user.Resizes(5, 40)
		user.Sees(`1000\+ locks, q ends`)
		user.Sees("… and 999 more.*\x1b\\[J")
		before := len(user.Screen.Contents())
		user.Resizes(3, 40)
		user.Sees("\x1b\\[J")
		Expect(bytes.Count(user.Screen.Contents()[before:], []byte("\n"))).To(Equal(2))
		user.Types("xq")
		user.Sees("code 0\r\n")
		user.Types("stty -a\n")
		user.Sees("[^-]icanon")
		shown(user.Screen.Contents(), 60)
	})

	It("ls --watch reads keys when it comes to the foreground, and none before", func() {
		user := clitest.NewTypist(on.URL)
		user.Types("$R ls --watch=1m & sleep 0.5; stty -a\n")
		user.Sees(" icanon")
		user.Types("fg\n")
		time.Sleep(300 * time.Millisecond) // to take the terminal
		user.Types("q")
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo code $?\n")
		user.Sees("code 0\r\n")
	})

	It("ls --watch needs no keys to end in the background", func() {
		user := clitest.NewTypist(on.URL)
		user.Types("$R ls --watch=100ms & sleep 0.3; echo q; kill -TERM $!; wait $!; echo code $?\n")
		user.Sees("code 143\r\n")
	})

	It("ls --watch ends as the signal ends other programs, so that a loop ends as well", func() {
		user := clitest.NewTypist(on.URL)
		user.Types("bash -c 'for i in 1 2 3; do $R ls --watch=1m; done'\n")
		user.Sees(regexp.QuoteMeta(enterScreen))
		user.Types(clitest.CtrlC)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
	})

	It("ls --watch restores the screen at its end, and leaves JSON on it", func(ctx SpecContext) {
		user := clitest.NewTypist(on.URL)
		for _, ending := range []string{"INT", "TERM", "HUP", "QUIT"} {
			user.Types("$R ls --watch=100ms &\n")
			user.Sees(regexp.QuoteMeta(enterScreen))
			user.Types("kill -" + ending + " $!; wait $!; echo ended\n")
			user.Sees(regexp.QuoteMeta(leaveScreen))
			user.Sees("ended\r\n")
		}
		Expect(on.Client.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()).To(Succeed())
		before := len(user.Screen.Contents())
		user.Types("$R ls --watch=100ms --json\n")
		user.Sees(`"key":"a"`)
		user.Types(clitest.CtrlC)
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
		Expect(string(user.Screen.Contents()[before:])).NotTo(ContainSubstring(enterScreen))
	})

	It("ls --watch restores the screen for Ctrl-Z, and takes it again for fg", func(ctx SpecContext) {
		Expect(on.Client.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()).To(Succeed())
		user := clitest.NewTypist(on.URL)
		user.Types("$R ls --watch=1m\n")
		user.Sees("\\x1b\\[1ma\\x1b")
		user.Types(clitest.CtrlZ)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo sto''pped\n")
		user.Sees("stopped\r\n")
		user.Types("stty -a\n")
		user.Sees(" icanon")
		user.Types("fg\n")
		user.Sees(regexp.QuoteMeta(enterScreen))
		user.Sees("\\x1b\\[1ma\\x1b") // at once, not after a minute
		user.Types(clitest.CtrlZ)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("kill %1; fg; echo code $?\n")
		user.Sees(regexp.QuoteMeta(leaveScreen) + `(.|\n)*code 143\r\n`)
		Expect(string(user.Screen.Contents())).NotTo(MatchRegexp(regexp.QuoteMeta(enterScreen) + `[^h]*code 143`))
	})
})
