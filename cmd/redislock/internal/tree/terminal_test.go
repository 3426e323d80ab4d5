//go:build unix

package tree

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/testing/faultproxy"
)

var _ = Describe("tree at a terminal", func() {
	on := clitest.OnServer()

	var ansi = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

	// shown returns what a terminal shows of a command.
	shown := func(user *clitest.Typist, command string) string {
		GinkgoHelper()
		before := len(user.Screen.Contents())
		user.Types(command + "; echo do''ne\n")
		user.Sees("done\r\n")
		text := strings.ReplaceAll(string(user.Screen.Contents()[before:]), "\r\n", "\n")
		return strings.TrimSuffix(text, "done\n")
	}

	It("draws a circle in red, and without colours if NO_COLOR is set", func(ctx SpecContext) {
		stage(ctx, on.Client)
		user := clitest.NewTypist(on.URL)
		coloured := shown(user, "LC_ALL=C.UTF-8 $R tree circle:a")
		Expect(coloured).To(HavePrefix("\x1b[31mcircle 1: 2 wait for each other, and none can go on\x1b[0m\n"))
		Expect(coloured).To(ContainSubstring("holds \x1b[1mcircle:a\x1b[0m, 3d04h left; 1 waits\x1b[31m (circle 1)\x1b[0m\n"))
		plain := shown(user, "LC_ALL=C.UTF-8 NO_COLOR=1 $R tree circle:a")
		Expect(plain).To(Equal(ansi.ReplaceAllString(coloured, "")))
		Expect(plain).To(Equal(clitest.Stdout(on.Run("tree", "circle:a"))))
	})

	It("draws with ASCII characters where the terminal is not known to have UTF-8", func(ctx SpecContext) {
		stage(ctx, on.Client)
		user := clitest.NewTypist(on.URL)
		for _, locale := range []string{"LC_ALL=C", "LC_ALL= LC_CTYPE= LANG=", "LC_ALL= LC_CTYPE=de_DE.ISO-8859-1 LANG=C.UTF-8"} {
			printed := shown(user, locale+" NO_COLOR=1 $R tree")
			Expect(printed).NotTo(MatchRegexp("[^\\x00-\\x7f]"))
			Expect(printed).To(ContainSubstring("\n|- bob@host-ewa"))
			Expect(printed).To(ContainSubstring("\n|  `- holds user:9"))
			Expect(printed).To(ContainSubstring("token cat___~ holds circle:a"))
		}
		Expect(shown(user, "LC_ALL= LC_CTYPE=de_DE.utf8 $R tree")).To(ContainSubstring("├─"))
	})

	It("fits the width of the terminal", func(ctx SpecContext) {
		stage(ctx, on.Client)
		user := clitest.NewTypist(on.URL)
		for _, columns := range []int{120, 80, 40, 10} {
			printed := shown(user, fmt.Sprintf("stty cols %d; LC_ALL=C.UTF-8 $R tree", columns))
			for line := range strings.Lines(ansi.ReplaceAllString(printed, "")) {
				Expect(term.Width(strings.TrimSuffix(line, "\n"))).To(BeNumerically("<=", columns), line)
			}
		}
	})

	It("is a screen with --watch, where a key is inspected, and q ends", func(ctx SpecContext) {
		stage(ctx, on.Client)
		user := clitest.NewTypist(on.URL)
		user.Resizes(10, 60)
		user.Types("LC_ALL=C.UTF-8 $R tree --watch=1m; echo code $?\n")
		user.Shows("5 waiters, 1 circle")
		user.Shows("circle 1: 2 wait")
		user.Resizes(40, 100)
		user.Shows("nobody holds stock:43")
		user.Shows("/ filter  Enter inspect")
		user.Types("G\r")
		user.Shows("free +for the first in line")
		user.Types("q")
		user.Types("q")
		user.Shows("code 0")
	})

	It("says how far a long scan is, and takes that away", func(ctx SpecContext) {
		stage(ctx, on.Client)
		proxy, err := faultproxy.New(on.Addr())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(proxy.Close)
		proxy.Add(faultproxy.Rule{
			Match: faultproxy.Command("scan"), Action: faultproxy.DelayReply(progressAfter + 100*time.Millisecond),
		})
		user := clitest.NewTypist("redis://" + proxy.Addr())
		Expect(shown(user, "$R tree order:7 >/dev/null")).To(Equal("\rlooked through 500 keys, found 0 lines\x1b[K\r\x1b[K"))
		Expect(shown(user, "$R tree order:7 2>&1 >/dev/null | cat")).To(BeEmpty())
	})
})
