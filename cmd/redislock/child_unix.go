//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// child is a running command, in a process group of its own.
type child struct {
	pid   int // and the id of its group
	env   *environment
	tty   *terminal // nil if there is none
	leash *os.File

	given       bool // the terminal belongs to its group, as far as is known
	wanted      bool // it is to have the terminal when it goes on
	hadIt       bool // the terminal, when it ended
	interrupted bool // a SIGINT has reached this process

	ended   chan childEnd       // one value
	stopped chan syscall.Signal // by which the command has been stopped
	awake   <-chan time.Time    // when this process should have stopped, and has not or not any longer
}

// jobControl are the signals that move a job between foreground and background.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

// startChild starts the command. At a terminal it is the foreground job; unless its output goes into a pipe: whoever reads
// that, a pager, may need the terminal more.
func startChild(path string, args, variables []string, env *environment) (*child, error) {
	c := &child{
		env: env, tty: openTerminal(),
		ended: make(chan childEnd, 1), stopped: make(chan syscall.Signal, 1),
	}
	attr := &os.ProcAttr{
		Env:   variables,
		Files: []*os.File{fileOf(env.stdin), fileOf(env.stdout), fileOf(env.stderr)},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if term.Is(env.stdin) && !isPipe(env.stdout) && c.tty.isOurs() {
		attr.Sys.Foreground, attr.Sys.Ctty, c.given = true, c.tty.fd, true
	}
	endWithUs(attr.Sys)
	runtime.LockOSThread() // the kernel takes the thread that starts a process for its parent
	process, err := os.StartProcess(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without #!, which shells run all the same
		process, err = os.StartProcess("/bin/sh", append([]string{"sh", path}, args[1:]...), attr)
	}
	if err != nil {
		if c.given { // to a process that is no more
			c.tty.take()
		}
		return nil, err
	}
	c.pid = process.Pid
	if c.tty != nil {
		// Only now, for the command would inherit it. Taking the terminal back, and writing to it, is allowed then.
		signal.Ignore(syscall.SIGTTOU)
	}
	go c.wait()
	c.guard()
	return c, nil
}

func fileOf(stream any) *os.File {
	file, _ := stream.(*os.File)
	return file
}

func isPipe(stream any) bool {
	file := fileOf(stream)
	if file == nil {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// wait tells of each stop, and of the end.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			c.ended <- childEnd{code: exitNo} // cannot be: nobody else waits for it
			return
		case status.Stopped():
			c.stopped <- status.StopSignal()
		case status.Signaled():
			c.ended <- childEnd{code: exitSignal + int(status.Signal()), signal: status.Signal()}
			return
		case status.Exited():
			c.ended <- childEnd{code: status.ExitStatus()}
			return
		}
	}
}

// guarding is a shell that ends the command's whole group if this process ends without a word, by SIGKILL for example.
const guarding = `trap '' HUP INT QUIT TERM; read -r word || kill -s KILL -- "-$1"`

// guard starts the guardian. It holds nothing open but its end of a pipe, the other end of which the kernel closes when
// this process ends. On Linux the command itself is safe without it; what the command has started is not.
func (c *child) guard() {
	hold, leash, err := os.Pipe()
	if err != nil {
		return
	}
	defer hold.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		leash.Close()
		return
	}
	defer null.Close()
	_, err = os.StartProcess("/bin/sh", []string{"sh", "-c", guarding, "redislock-guard", strconv.Itoa(c.pid)}, &os.ProcAttr{
		Files: []*os.File{hold, null, null},
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // out of reach of Ctrl-C
	})
	if err != nil {
		leash.Close()
		return
	}
	c.leash = leash
}

// signal sends a signal to the whole group.
func (c *child) signal(sig syscall.Signal) error { return syscall.Kill(-c.pid, sig) }

// terminate asks the group to end, also if it is stopped.
func (c *child) terminate() {
	if err := c.signal(syscall.SIGTERM); err != nil && err != syscall.ESRCH {
		c.env.complain(errors.New("cannot send SIGTERM to the command: " + err.Error()))
	}
	_ = c.signal(syscall.SIGCONT)
}

func (c *child) kill() {
	if err := c.signal(syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		c.env.complain(errors.New("cannot kill the command: " + err.Error()))
	}
}

// interruptJob does to this process' own job, to a script that runs it for example, what Ctrl-C would have done had the
// command not had the terminal. It reports whether the command was ended by a Ctrl-C.
func (c *child) interruptJob(end childEnd) bool {
	if end.signal != syscall.SIGINT {
		return false
	}
	if c.hadIt {
		_ = syscall.Kill(0, syscall.SIGINT) // it is caught here
	}
	return c.hadIt || c.interrupted
}

// groupGone reports whether nobody is left in the group.
func (c *child) groupGone() bool { return c.signal(0) == syscall.ESRCH }

// close takes the terminal back, and calls the guardian off, after the end of the command.
func (c *child) close() {
	if c.given {
		c.hadIt = true
		c.tty.take()
		c.given = false
	}
	if c.leash != nil {
		_, _ = c.leash.WriteString("\n")
		_ = c.leash.Close()
	}
}
