//go:build unix

package job

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Child is a running command, in a process group of its own. It belongs to one goroutine.
type Child struct {
	pid      int            // and the id of its group
	tty      *terminal      // nil if there is none
	leash    io.WriteCloser // to the guardian; nil if there is none
	guardian int            // its pid
	complain func(error)    // with what cannot be done to the command

	asked map[int]bool // the processes outside the group that were asked to end, or cannot be

	given       bool // the terminal belongs to its group, as far as is known
	wanted      bool // it is to get the terminal when it goes on
	hadIt       bool // it had the terminal when it ended
	interrupted bool // a SIGINT has reached this process

	Ended   chan End            // one value
	Stopped chan syscall.Signal // the signals that have stopped the command
	Awake   <-chan time.Time    // fires when this process should be stopped, and is not, or not any more
}

// Start starts the command. At a terminal it becomes the foreground job, unless its output goes into a pipe: the reader of
// that pipe, perhaps a pager, may need the terminal more.
func Start(command Command) (*Child, error) {
	c := &Child{
		complain: command.Complain, tty: openTerminal(),
		Ended: make(chan End, 1), Stopped: make(chan syscall.Signal, 1), asked: make(map[int]bool),
	}
	adopt()
	attr := command.attr()
	attr.Sys = &syscall.SysProcAttr{Setpgid: true}
	if term.Is(command.Stdin) && !isPipe(command.Stdout) && c.tty.isOurs() {
		attr.Sys.Foreground, attr.Sys.Ctty, c.given = true, c.tty.fd, true
	}
	// The kernel kills the command when this process ends. Some systems lack that, and the field; there, the guardian kills it.
	if field := reflect.ValueOf(attr.Sys).Elem().FieldByName("Pdeathsig"); field.IsValid() {
		field.SetInt(int64(syscall.SIGKILL))
	}
	runtime.LockOSThread() // the kernel takes the thread that starts a process for its parent
	process, err := os.StartProcess(command.Path, command.Args, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without #!, which shells run nevertheless
		process, err = os.StartProcess("/bin/sh", append([]string{"sh", command.Path}, command.Args[1:]...), attr)
	}
	if err != nil {
		if c.given { // to a process that is gone
			c.tty.take()
		}
		return nil, err
	}
	c.pid = process.Pid
	if c.tty != nil {
		// Without SIGTTOU, this process may take the terminal back and write to it. Not before the start, because the
		// command would inherit it.
		signal.Ignore(syscall.SIGTTOU)
	}
	go c.wait()
	c.guard()
	return c, nil
}

func isPipe(stream any) bool {
	info, err := fileOf(stream).Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// wait reports each stop, and the end. It also reaps the orphans that this process has adopted. It ends with the last child.
func (c *Child) wait() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return
		case pid != c.pid:
		case status.Stopped():
			c.Stopped <- status.StopSignal()
		case status.Signaled():
			c.Ended <- End{Code: CodeOf(status.Signal()), Signal: status.Signal()}
		case status.Exited():
			c.Ended <- End{Code: status.ExitStatus()}
		}
	}
}

// guarding kills the command's whole group if this process ends without a word, for example by SIGKILL.
const guarding = `trap '' HUP INT QUIT TERM; read -r word || kill -s KILL -- "-$1"`

// guard starts the guardian. It reads from a pipe whose other end the kernel closes when this process ends. Where Pdeathsig
// works, the command itself is safe without the guardian, but what the command has started is not.
func (c *Child) guard() {
	guardian := exec.Command("/bin/sh", "-c", guarding, "redislock-guard", strconv.Itoa(c.pid))
	guardian.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of reach of Ctrl-C
	leash, err := guardian.StdinPipe()
	if err != nil || guardian.Start() != nil {
		return
	}
	c.leash, c.guardian = leash, guardian.Process.Pid // wait reaps it
}

func (c *Child) signal(sig syscall.Signal) error { return syscall.Kill(-c.pid, sig) }

// Terminate asks the group to end, even if it is stopped, and what has left the group: see Sweep.
func (c *Child) Terminate() {
	_ = c.signal(syscall.SIGTERM) // fails if the group is gone, or of another user, which Sweep reports
	_ = c.signal(syscall.SIGCONT)
	c.Sweep()
}

// Kill kills the group, and what has left it. What starts meanwhile is not seen: call it again until all is gone.
func (c *Child) Kill() {
	_ = c.signal(syscall.SIGKILL)
	c.killLeft()
}

// InterruptJob passes a Ctrl-C that has ended the command on to this process' own job, for example to the script that runs
// it, which would have got it if the command had not had the terminal. It reports whether a Ctrl-C ended the command.
func (c *Child) InterruptJob(end End) bool {
	if end.Signal != syscall.SIGINT {
		return false
	}
	if c.hadIt {
		_ = syscall.Kill(0, syscall.SIGINT) // it is caught here
	}
	return c.hadIt || c.interrupted
}

func (c *Child) groupGone() bool { return c.signal(0) != nil }

// Close takes the terminal back and dismisses the guardian, after the end of the command.
func (c *Child) Close() {
	if c.given {
		c.hadIt = true
		c.tty.take()
		c.given = false
	}
	if c.leash != nil {
		_, _ = io.WriteString(c.leash, "\n")
		_ = c.leash.Close()
	}
}

// deadly are the signals that end a program which does not catch them, and so end a redislock that waits.
var deadly = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
}

// passedOn are the signals that the command gets when this process gets them. Those of job control are handled apart.
var passedOn = append(slices.Clip(deadly), syscall.SIGWINCH)

// jobControl are the signals that move a job between foreground and background.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

// Raise ends this process by the signal, which tells a shell more than an exit code: Ctrl-C also ends a loop of the shell.
func Raise(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(syscall.Getpid(), sig)
	time.Sleep(time.Second) // another thread gets the signal; and an init process survives it
}
