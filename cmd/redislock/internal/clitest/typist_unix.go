//go:build unix

package clitest

import (
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/creack/pty"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"golang.org/x/sys/unix"
)

// The keys that make signals.
const (
	CtrlC         = "\x03"
	CtrlZ         = "\x1a"
	CtrlBackslash = "\x1c"
)

// Typist is somebody at a terminal, in a shell with job control that echoes nothing.
type Typist struct {
	Shell   *exec.Cmd
	Screen  *gbytes.Buffer // all that was written
	Display *Display       // what the terminal shows of it

	keyboard *os.File
}

// NewTypist opens a terminal. In its shell, the variable R is the program.
func NewTypist(url string) *Typist {
	ginkgo.GinkgoHelper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		ginkgo.Skip(err.Error())
	}
	cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	cmd.Env = Environ("R="+Program(), "REDIS_URL="+url, "PS1=", "PS2=", "HISTFILE=")
	t := NewTypistIn(cmd)
	t.Types("stty -echo; echo rea''dy\n")
	t.Sees("ready\r\n")
	return t
}

// NewTypistIn opens a terminal in which a program runs that ignores no signals.
func NewTypistIn(cmd *exec.Cmd) *Typist {
	ginkgo.GinkgoHelper()
	catchIgnored()
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	keyboard := interruptible(terminal)
	t := &Typist{Shell: cmd, Screen: gbytes.NewBuffer(), Display: NewDisplay(40, 200), keyboard: keyboard}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.MultiWriter(t.Display, t.Screen, ginkgo.GinkgoWriter), keyboard)
	}()
	ginkgo.DeferCleanup(func() {
		_ = cmd.Process.Kill()
		_ = keyboard.Close() // hangs up, so that jobs end
		_ = cmd.Wait()
		<-read
	})
	return t
}

// interruptible replaces a file by one whose Close ends a Read that is under way: pty leaves the terminal in blocking
// mode, where Close waits for that Read. The Read would go on for as long as any process has the terminal open.
func interruptible(file *os.File) *os.File {
	ginkgo.GinkgoHelper()
	defer func() { gomega.Expect(file.Close()).To(gomega.Succeed()) }()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(unix.SetNonblock(fd, true)).To(gomega.Succeed())
	return os.NewFile(uintptr(fd), file.Name())
}

// Types sends what somebody types.
func (t *Typist) Types(text string) {
	ginkgo.GinkgoHelper()
	_, err := t.keyboard.WriteString(text)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// Resizes changes the size of the terminal.
func (t *Typist) Resizes(lines, columns uint16) {
	ginkgo.GinkgoHelper()
	t.Display.Resize(int(lines), int(columns))
	conn, err := t.keyboard.SyscallConn() // pty.Setsize would switch to blocking mode
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	failed := conn.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns})
	})
	gomega.Expect(failed).NotTo(gomega.HaveOccurred())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// TypesSlowly sends text a byte at a time, as a slow network may deliver it.
func (t *Typist) TypesSlowly(text string, gap time.Duration) {
	ginkgo.GinkgoHelper()
	for i := range len(text) {
		if i > 0 {
			time.Sleep(gap)
		}
		t.Types(text[i : i+1])
	}
}

// Shows waits until the text of the display matches.
func (t *Typist) Shows(expression string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(t.Display.Text).Should(gomega.MatchRegexp(expression))
}

// Sees waits for output that matches, after all that was seen before.
func (t *Typist) Sees(expression string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(t.Screen).Should(gbytes.Say(expression))
}
