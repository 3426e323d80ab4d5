//go:build unix

package ls

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const (
	enterScreen = "\x1b[?1049h"
	leaveScreen = "\x1b[?1049l"

	up, down, left       = "\x1b[A", "\x1b[B", "\x1b[D"
	pageUp, pageDown     = "\x1b[5~", "\x1b[6~"
	home, end            = "\x1b[H", "\x1bOF"
	esc, enter, backward = "\x1b", "\r", "\x7f"
)

var _ = Describe("ls --watch at a terminal", func() {
	on := clitest.OnServer()
	var user *clitest.Typist

	locks := func(n int) {
		GinkgoHelper()
		pipe := on.Client.Pipeline()
		for i := range n {
			pipe.Set(context.Background(), fmt.Sprintf("key:%04d", i), tokenOf(i)+
				fmt.Sprintf(` {"host":"db-%d","pid":%d,"user":"ann","command":"./job %d"}`, i%9, 9000-i, i), time.Hour+time.Duration(i)*time.Minute)
		}
		_, err := pipe.Exec(context.Background())
		Expect(err).NotTo(HaveOccurred())
	}
	// begin starts ls at a terminal of that size.
	begin := func(lines, columns uint16, flags string) {
		GinkgoHelper()
		user = clitest.NewTypist(on.URL)
		user.Resizes(lines, columns)
		user.Types(flags + "; echo code $?\n")
		user.Shows(`\d\d:\d\d:\d\d  `)
	}
	line := func(i int) func() string { return func() string { return user.Display.Lines()[i] } }
	// selects waits until this key is selected, and the only one.
	selects := func(key string) {
		GinkgoHelper()
		Eventually(func() (marked []string) {
			for _, line := range user.Display.Lines() {
				if strings.HasPrefix(line, ">") {
					marked = append(marked, strings.Fields(line[2:])[0])
				}
			}
			return marked
		}).Should(Equal([]string{key}))
		Expect(len(user.Display.Selected())).To(BeNumerically("<=", 1))
	}
	// shows waits until these are the first and the last key on the screen.
	shows := func(first, last string) {
		GinkgoHelper()
		Eventually(func() []string {
			keys := regexp.MustCompile(`key:\d+`).FindAllString(user.Display.Text(), -1)
			if len(keys) == 0 {
				return nil
			}
			return []string{keys[0], keys[len(keys)-1]}
		}).Should(Equal([]string{first, last}))
	}

	DescribeTable("fills the screen, scrolls, and knows these keys",
		func(lines, columns uint16, last, afterPage, lastRow, fourth string) {
			locks(5_000)
			begin(lines, columns, "$R ls --watch=1m")
			Eventually(line(int(lines) - 1)).Should(Equal("1 of 5000   / filter  s sort  Enter inspect  f free  ? help  q quit"))
			shows("key:0000", last)
			Expect(line(0)()).To(MatchRegexp(`^\d\d:\d\d:\d\d  5000 locks by key, every 1m0s$`))
			Expect(line(1)()).To(MatchRegexp(`^  KEY  +HOLDER  +PID  +COMMAND  +AGE  +TTL  +LINE$`))
			Expect(line(2)()).To(MatchRegexp(`^>  ?key:0000  +ann@db-0  +9000  \./job 0 .* 59m5\ds     0$`))
			press := func(keys string, selected string) {
				GinkgoHelper()
				user.Types(keys)
				selects(selected)
			}
			press(down, "key:0001")
			press("j", "key:0002")
			press(up, "key:0001")
			press("k", "key:0000")
			press("k", "key:0000")
			for _, page := range []string{pageDown, " ", "\x06"} {
				press(page, afterPage)
				press("g", "key:0000")
			}
			press(end, "key:4999")
			shows(lastRow, "key:4999")
			press(home, "key:0000")
			press("G", "key:4999")
			press(pageUp, fourth)
			press(pageDown, "key:4999")
			press("\x02", fourth)
			press("g", "key:0000")
			user.Types("\x1b[99~x") // keys that mean nothing
			press("j", "key:0001")
			user.Types("q")
			user.Sees("code 0\r\n")
			Expect(user.Display.IsNormal()).To(BeTrue())
			Expect(user.Display.Unknown()).To(BeEmpty())
			user.Types("stty -a\n")
			user.Sees("[^-]icanon")
		},
		Entry("80×24", uint16(24), uint16(80), "key:0020", "key:0021", "key:4979", "key:4978"),
		Entry("200×50", uint16(50), uint16(200), "key:0046", "key:0047", "key:4953", "key:4952"),
	)

	It("reads keys that come in pieces, 200 ms apart, and tells Esc from them", func() {
		locks(30)
		begin(24, 80, "$R ls --watch=1m")
		user.TypesSlowly(down, 200*time.Millisecond)
		selects("key:0001")
		user.TypesSlowly(pageDown, 200*time.Millisecond)
		selects("key:0022")
		user.TypesSlowly("/é", 200*time.Millisecond)
		Eventually(line(23)).Should(Equal("/é_"))
		user.Types(esc)
		Eventually(line(23)).Should(HavePrefix("23 of 30 "))
		user.Types("/9" + enter + esc + "k") // at once
		selects("key:0021")
	})

	It("filters while the user writes", func() {
		locks(30)
		begin(24, 80, "$R ls --watch=1m")
		user.Types("/DB-3")
		Eventually(line(23)).Should(Equal("/DB-3_"))
		shows("key:0003", "key:0021")
		user.Types(backward + "4")
		shows("key:0004", "key:0022")
		user.Types(enter)
		Eventually(line(23)).Should(HavePrefix("1 of 3 with DB-4 "))
		user.Types("G")
		selects("key:0022")
		user.Types("/\x15鍵q" + enter)
		Eventually(line(2)).Should(Equal("  nothing has this text"))
		Eventually(line(23)).Should(HavePrefix("0 of 0 with 鍵q "))
		user.Types(esc)
		selects("key:0022") // from before
		shows("key:0009", "key:0029")
		user.Types("/" + backward + "G")
		selects("key:0029")
	})

	It("sorts by another column, and keeps the selection", func(ctx SpecContext) {
		locks(30)
		clitest.WaitInLine(ctx, on.Client, "key:0007")
		begin(24, 80, "$R ls --watch=1m --sort=-ttl")
		shows("key:0029", "key:0009")
		selects("key:0029")
		for _, by := range []struct{ order, first string }{
			{"key", "key:0000"}, {"age", "key:0000"}, {"ttl", "key:0000"}, {"line", "key:0007"}, {"holder", "key:0000"}, {"-ttl", "key:0029"},
		} {
			user.Types("s")
			Eventually(line(0)).Should(ContainSubstring("30 locks by " + by.order + ","))
			user.Types("g")
			selects(by.first)
			user.Types("G")
		}
	})

	It("shows all about a key, and comes back", func(ctx SpecContext) {
		locks(30)
		begin(24, 80, "$R ls --watch=200ms")
		for _, back := range []string{esc, left, enter, backward} {
			user.Types("g" + down + enter)
			Eventually(line(1)).Should(Equal("key:0001"))
			user.Shows(`(?m)^  token  +` + tokenOf(1) + `$`)
			user.Shows(`(?m)^  command  +\./job 1$`)
			Eventually(line(23)).Should(Equal("Esc back  f free  q quit"))
			user.Types(back)
			selects("key:0001")
		}
		user.Types(enter)
		user.Shows(`in line  +nobody`)
		clitest.WaitInLine(ctx, on.Client, "key:0001")
		user.Shows(`in line  +1, `) // it looks again as well
	})

	It("scrolls what is longer than the screen", func(ctx SpecContext) {
		locks(1)
		clitest.Stand(ctx, on.Client, "key:0000", "p", "", 5*time.Minute, make([]time.Duration, 3)...)
		begin(6, 80, "$R ls --watch=1m")
		user.Types(enter)
		Eventually(line(1)).Should(Equal("key:0000"))
		user.Types("G")
		user.Shows(`process p: 3, the first for`)
		user.Types("g")
		Eventually(line(1)).Should(Equal("key:0000"))
		user.Types(esc + "?")
		Eventually(line(1)).Should(Equal("Keys"))
		user.Types("G")
		user.Shows("(?m)^Marks before a row: > selected")
		user.Types(esc)
		selects("key:0000")
	})

	Describe("frees a key", func() {
		It("after the question of release --force, and not after another answer", func(ctx SpecContext) {
			locks(30)
			begin(24, 80, "$R ls --watch=1m")
			for _, no := range []string{"n", esc, enter, "q"} {
				user.Types(down + "f")
				user.Shows(`key:000\d is held by ann@db-\d, pid \d+ \(\./job \d\), 1h0\dm left`)
				Eventually(line(23)).Should(Equal("Release it nevertheless? [y/N]"))
				user.Types(no)
				Eventually(line(23)).Should(Equal("nothing was released"))
			}
			Expect(on.Client.DBSize(ctx).Val()).To(BeEquivalentTo(30))
			user.Types("f")
			user.Shows(`key:0004 is held by`)
			user.Types("y")
			Eventually(line(23)).Should(MatchRegexp(`^released key:0004, held by ann@db-4, .* left$`))
			Expect(on.Client.Exists(ctx, "key:0004").Val()).To(BeZero())
			Eventually(line(0)).Should(HaveSuffix(", 1 gone")) // it has looked at once
			selects("key:0005")
		})

		It("from the page about it", func(ctx SpecContext) {
			locks(1)
			begin(24, 80, "$R ls --watch=1m")
			user.Types(enter)
			user.Shows(`in line  +nobody`)
			user.Types("f")
			user.Shows(`Release it nevertheless`)
			user.Types("y")
			user.Shows("released key:0000")
			user.Types(esc)
			Eventually(line(0)).Should(HaveSuffix(", 1 gone"))
		})

		It("only from the holder that the question names, and only a lock", func(ctx SpecContext) {
			locks(1)
			Expect(on.Client.Set(ctx, "not", "a lock", 0).Err()).To(Succeed())
			begin(24, 80, "$R ls --watch=1m --all")
			user.Types("f")
			user.Shows(`key:0000 is held by`)
			Expect(on.Client.Set(ctx, "key:0000", tokenOf(7), time.Hour).Err()).To(Succeed())
			user.Types("y")
			Eventually(line(23)).Should(Equal(`not released: "key:0000" has a new holder, or was released meanwhile`))
			user.Types(down + "f")
			Eventually(line(23)).Should(HavePrefix(`nothing was released: "not" has no expiry`))
			Expect(on.Client.DBSize(ctx).Val()).To(BeEquivalentTo(2))
			Expect(on.Client.Del(ctx, "not").Err()).To(Succeed())
			user.Types("f")
			Eventually(line(23)).Should(Equal("not is free"))
		})
	})

	It("marks what has changed since the last look, and keeps the selection at its key", func(ctx SpecContext) {
		locks(5)
		begin(24, 80, "$R ls --watch=500ms")
		user.Types("jj")
		selects("key:0002")
		Expect(on.Client.Set(ctx, "key:0003", tokenOf(100), time.Hour).Err()).To(Succeed())
		Expect(on.Client.Set(ctx, "key:0001a", tokenOf(101), time.Hour).Err()).To(Succeed())
		Expect(on.Client.Del(ctx, "key:0000").Err()).To(Succeed())
		user.Shows(`(?m)^ \+key:0001a`)
		user.Shows(`(?m)^>  ?key:0002`)
		user.Shows(`\d+ locks by key, every 500ms$|every 500ms\n`) // marks are of one look only
		Expect(string(user.Screen.Contents())).To(MatchRegexp(`\*.{0,9}key:0003`))
		Expect(string(user.Screen.Contents())).To(ContainSubstring(", 1 new, 1 changed, 1 gone"))
	})

	It("goes on showing what it had while Redis is away, and obeys keys meanwhile", func(ctx SpecContext) {
		locks(30)
		begin(24, 80, "$R ls --watch=100ms")
		Expect(on.Kill()).To(Succeed())
		Eventually(line(0)).Should(MatchRegexp(`^\d\d:\d\d:\d\d  cannot use the Redis at .*refused`))
		user.Types("j")
		selects("key:0001")
		user.Types(enter)
		Eventually(line(23)).Should(HavePrefix("cannot use the Redis at "))
		Expect(on.Restart()).To(Succeed())
		Eventually(line(0)).Should(MatchRegexp(`^\d\d:\d\d:\d\d  0 locks by key`))
		Expect(on.Pause()).To(Succeed())
		time.Sleep(300 * time.Millisecond)
		user.Types("q")
		user.Sees("code 0\r\n")
	})

	It("ends with the code of a Redis that is away from the start", func() {
		Expect(on.Kill()).To(Succeed())
		user = clitest.NewTypist(on.URL)
		user.Types("$R ls --watch; echo code $?\n")
		user.Sees("code 69\r\n")
		Expect(user.Display.IsNormal()).To(BeTrue())
	})

	It("follows the size of the terminal, down to a line", func() {
		locks(1_000)
		begin(24, 80, "$R ls --watch=1m")
		user.Types("G")
		selects("key:0999")
		for _, size := range [][2]uint16{{50, 200}, {10, 40}, {5, 20}, {3, 20}, {2, 10}, {1, 5}, {24, 80}} {
			user.Resizes(size[0], size[1])
			if size[0] < 3 {
				time.Sleep(200 * time.Millisecond)
				continue
			}
			Eventually(line(int(size[0]) - 1)).Should(HavePrefix("1000 of 1000"))
			selects("key:0999")
			for _, text := range user.Display.Lines() {
				Expect(term.Width(text)).To(BeNumerically("<=", size[1]))
			}
		}
		Expect(user.Display.Unknown()).To(BeEmpty())
	})

	It("needs no colours, and cuts what --wide shows at the edge", func() {
		locks(3)
		begin(24, 80, "NO_COLOR=1 $R ls --watch=1m --wide")
		user.Types("j")
		selects("key:0001")
		Expect(user.Display.Selected()).To(BeEmpty())
		Expect(user.Display.Colours()).To(BeZero())
		Eventually(line(2)).Should(MatchRegexp(`^  key:0000 .*$`))
	})

	It("reads keys when it comes to the foreground, and none before", func() {
		user = clitest.NewTypist(on.URL)
		user.Types("$R ls --watch=1m & sleep 0.5; stty -a\n")
		user.Sees(" icanon")
		user.Types("fg\n")
		time.Sleep(300 * time.Millisecond) // to take the terminal
		user.Types("q")
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo code $?\n")
		user.Sees("code 0\r\n")
	})

	It("needs no keys to end in the background", func() {
		user = clitest.NewTypist(on.URL)
		user.Types("$R ls --watch=100ms & sleep 0.3; echo q; kill -TERM $!; wait $!; echo code $?\n")
		user.Sees("code 143\r\n")
	})

	It("ends as the signal ends other programs, so that a loop ends as well", func() {
		user = clitest.NewTypist(on.URL)
		user.Types("bash -c 'for i in 1 2 3; do $R ls --watch=1m; done'\n")
		user.Shows("looking|0 locks")
		user.Types(clitest.CtrlC)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
	})

	It("restores the terminal after each signal", func() {
		for _, ending := range []string{"INT", "TERM", "HUP", "QUIT"} {
			pid := filepath.Join(GinkgoT().TempDir(), "pid")
			user = clitest.NewTypist(on.URL) // on a slow machine, the signal comes before the first look has ended
			user.Types("(sleep 0.7; kill -" + ending + " $(cat " + pid + ")) & sh -c 'echo $$ >" + pid + "; exec $R ls --watch=100ms'\n")
			user.Sees(regexp.QuoteMeta(enterScreen))
			user.Sees(regexp.QuoteMeta(leaveScreen))
			user.Types("echo; echo code $?; stty -a\n")
			user.Sees("code ")
			Expect(user.Display.IsNormal()).To(BeTrue())
			user.Sees(" icanon")
		}
	})

	It("leaves JSON on the normal screen", func() {
		locks(1)
		user = clitest.NewTypist(on.URL)
		user.Types("$R ls --watch=100ms --json\n")
		user.Sees(`"key":"key:0000"`)
		user.Types(clitest.CtrlC)
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
		Expect(string(user.Screen.Contents())).NotTo(ContainSubstring(enterScreen))
	})

	It("gives the screen back for Ctrl-Z, and takes it again for fg", func() {
		locks(3)
		begin(24, 80, "$R ls --watch=1m")
		user.Types("j")
		selects("key:0001")
		user.Types(clitest.CtrlZ)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("echo sto''pped\n")
		user.Sees("stopped\r\n")
		Expect(user.Display.IsNormal()).To(BeTrue())
		user.Types("stty -a\n")
		user.Sees(" icanon")
		user.Types("fg\n")
		selects("key:0001") // at once, not after a minute
		user.Types("/0" + clitest.CtrlZ)
		user.Sees(regexp.QuoteMeta(leaveScreen))
		user.Types("kill %1; fg; echo code $?\n")
		user.Sees(regexp.QuoteMeta(leaveScreen) + `(.|\n)*code 143\r\n`)
		Expect(string(user.Screen.Contents())).NotTo(MatchRegexp(regexp.QuoteMeta(enterScreen) + `[^h]*code 143`))
	})

	It("prints tables where the terminal is dumb", func() {
		locks(1)
		user = clitest.NewTypist(on.URL)
		user.Types("TERM=dumb $R ls --watch=100ms\n")
		user.Sees(`(?s)key:0000.*key:0000`)
		Expect(string(user.Screen.Contents())).NotTo(ContainSubstring("\x1b["))
	})
})
