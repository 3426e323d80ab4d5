//go:build unix

package ls

import (
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
})
