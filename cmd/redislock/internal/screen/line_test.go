//go:build unix

package screen_test

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/screen"
)

func TestScreen(t *testing.T) { clitest.RunSpecs(t, "screen") }

var _ = Describe("Line", func() {
	var (
		tty     *os.File
		display *clitest.Display
	)

	BeforeEach(func() {
		master, slave, err := pty.Open()
		Expect(err).NotTo(HaveOccurred())
		Expect(pty.Setsize(slave, &pty.Winsize{Rows: 8, Cols: 20})).To(Succeed())
		tty, display = slave, clitest.NewDisplay(8, 20)
		go func() {
			buffer := make([]byte, 1000)
			for n, err := 0, error(nil); err == nil; n, err = master.Read(buffer) {
				_, _ = display.Write(buffer[:n])
			}
		}()
		DeferCleanup(func() { _, _ = slave.Close(), master.Close() })
	})

	It("is below what is printed meanwhile, and gone at the end", func() {
		var text atomic.Value
		text.Store("a line that is longer than the terminal is wide")
		line := screen.ShowLine(tty, os.Getenv, func() string { return text.Load().(string) })
		Eventually(display.Text).Should(Equal("a line that is lon…"))
		line.Print("one\ntwo\n")
		Eventually(display.Text).Should(Equal("one\ntwo\na line that is lon…"))
		text.Store("short")
		line.Print("three\n")
		Eventually(display.Text).Should(Equal("one\ntwo\nthree\nshort"))
		line.End("last\n")
		Eventually(display.Text).Should(Equal("one\ntwo\nthree\nlast"))
		line.Print("late\n")
		Eventually(display.Text).Should(Equal("one\ntwo\nthree\nlast\nlate"))
		Expect(display.Unknown()).To(BeEmpty())
	})
})
