//go:build unix

package run

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

var _ = Describe("redislock run that waits at a terminal", func() {
	on := clitest.OnServer()

	var (
		ctx    context.Context
		holder *redislock.Lock
		user   *clitest.Typist
	)

	BeforeEach(func() {
		ctx = context.Background()
		holder = clitest.Hold(on.Client, clitest.Bob, "a")
		user = clitest.NewTypist(on.URL)
		user.Types("clear(){ printf '\\33[H\\33[J'; }; clear\n")
	})

	It("shows in one line for how long and for whom it waits, and removes it before the command starts", func() {
		user.Types("$R run -k a -- echo ran\n")
		user.Shows(`^redislock: waiting [01]s, number 1 in line; a: bob@api-3 the-to…, 5\ds left$`)
		user.Shows(`^redislock: waiting 2s, number 1 in line; a: bob@api-3 the-to…, 5\ds left$`)
		Expect(holder.Release(ctx)).To(Succeed())
		user.Shows(`^redislock: acquired after [2-9]\.\ds\nran$`)
	})

	It("shows its position, and each key that is in the way", func() {
		clitest.Hold(on.Client, "job 7", "b")
		clitest.WaitInLine(ctx, on.Client, "b")
		user.Types("$R run -k a -k free -k b -- true\n")
		user.Shows(`^redislock: waiting \ds, number 2 in line; a: bob@api-3 the-to…, 5\ds left; b: job 7 the-to…, 5\ds left$`)
	})

	It("shows when a key was renewed, once it has seen that", func() {
		user.Types("$R run -k a -- true\n")
		user.Shows(`a: bob@api-3 the-to…, 5\ds left$`)
		time.Sleep(time.Second)
		Expect(holder.Refresh(ctx, time.Minute, nil)).To(Succeed())
		user.Shows(`a: bob@api-3 the-to…, renewed [01]s ago$`)
		user.Shows(`a: bob@api-3 the-to…, renewed 3s ago$`)
		Expect(holder.Refresh(ctx, time.Minute, nil)).To(Succeed())
		user.Shows(`a: bob@api-3 the-to…, renewed [01]s ago$`)
	})

	It("never takes a second line, also with wide characters, and follows the size", func() {
		clitest.Hold(on.Client, strings.Repeat("鍵", 50), "b")
		user.Resizes(10, 40)
		user.Types("$R run -k b -- true\n")
		user.Shows(`^redislock: waiting \ds, number 1 in lin…$`)
		for _, columns := range []int{61, 21, 60, 17} {
			user.Resizes(10, uint16(columns))
			Eventually(func() int { return term.Width(user.Display.Text()) }).Should(
				And(BeNumerically("<", columns), BeNumerically(">=", columns-2)))
			Expect(user.Display.Text()).To(HavePrefix("redislock: wait"))
		}
		Expect(user.Display.Unknown()).To(BeEmpty())
	})

	DescribeTable("leaves a clean line",
		func(end, shown string) {
			user.Types("$R run -k a --wait 2s -- true; echo code $?\n")
			user.Shows("waiting")
			user.Types(end)
			user.Shows(shown)
		},
		Entry("when the wait is over", "", `^redislock: not acquired within 2s: "a" is held by bob@api-3, .*\ncode 1$`),
		Entry("after Ctrl-C", clitest.CtrlC+"\necho ended\n", `^\nended$`),
		Entry("after Ctrl-\\", clitest.CtrlBackslash, `^code 131$`),
	)

	It("shows nothing while another job has the terminal", func() {
		user.Types("$R run -k a -- echo ran\n")
		user.Shows("waiting")
		user.Types(clitest.CtrlZ)
		user.Shows(`(?s)\n.*Stopped`)
		user.Types("bg; clear\n")
		user.Shows("^$")
		Consistently(user.Display.Text, "1500ms").Should(BeEmpty())
		user.Types("fg\n")
		user.Shows(`redislock: waiting \ds, number 1 in line; a: bob@api-3 [^\n]*$`)
		Expect(holder.Release(ctx)).To(Succeed())
		user.Shows(`redislock: acquired after .*\nran$`)
		Expect(user.Display.Text()).NotTo(ContainSubstring("waiting"))
	})

	It("shows in the line that Redis is away, and then what is in the way again", func() {
		user.Types("$R run -k a -- true\n")
		user.Shows("waiting")
		Expect(on.Pause()).To(Succeed())
		user.Shows(`^redislock: waiting \ds, number 1 in line; cannot use the Redis at [^\n]*; a: bob@api-3 [^\n]*$`)
		Expect(on.Resume()).To(Succeed())
		user.Shows(`^redislock: waiting \d+s, number 1 in line; a: bob@api-3 [^\n]*$`)
	})

	DescribeTable("writes messages instead",
		func(command string) {
			user.Types(command + "\n")
			user.Shows(`(?m)^redislock: waiting for a: held by bob@api-3, pid 4121 \(\./ship 7\), 5\ds left$`)
		},
		Entry("where stderr is no terminal", "$R run -k a --verbose -- true 2>&1 | cat"),
		Entry("on a terminal that is dumb", "TERM=dumb $R run -k a -- true"),
	)

	It("needs no colours", func() {
		user.Types("NO_COLOR=1 $R run -k a -- true\n")
		user.Shows("waiting")
		Expect(user.Display.Colours()).To(BeZero())
	})
})
