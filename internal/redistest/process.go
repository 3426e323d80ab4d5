//go:build unix

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// unsupported is the reason why this platform cannot run Redis, or nil.
var unsupported error

// leashed runs its arguments as a command that dies with us.
//
// The shell leaves a guardian behind, which blocks in read on a pipe whose only
// write end is ours, and then becomes the command itself, so that the process
// we started, wait for and signal is redis-server and not a wrapper. The kernel
// closes the pipe when we end, even by SIGKILL; read then fails and the
// guardian kills $$, which a subshell inherits from its shell: the pid of
// redis-server. A line on the pipe releases the guardian without a kill.
//
// The guardian ignores SIGHUP, which the kernel sends to a process group that
// has a stopped member, a paused server, when the last parent outside it ends:
// just when the guardian is needed.
//
// Linux has Pdeathsig for this, but that signal comes when the thread that
// forked ends, not the process, and other systems do not have it.
const leashed = `trap '' HUP; (read -r line <&3 || kill -KILL $$) & exec "$@" 3<&-`

var errNotRunning = errors.New("redistest: the server is not running")

// A process is one run of redis-server.
type process struct {
	cmd *exec.Cmd

	// exited is closed by reap when the process is gone.
	exited chan struct{}
}

// spawn starts bin in dir with its output in log. The goroutine it leaves
// behind ends when the process does.
func spawn(dir string, log *os.File, bin string, args ...string) (*process, error) {
	hold, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()

	cmd := exec.Command("sh", append([]string{"-c", leashed, "leashed", bin}, args...)...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{hold} // descriptor 3
	// Out of our process group, an interrupt typed at the terminal reaches the
	// test alone, and its clean-up still finds the servers there.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		leash.Close()
		return nil, err
	}

	p := &process{cmd: cmd, exited: make(chan struct{})}
	go p.reap(leash)
	return p, nil
}

func (p *process) reap(leash *os.File) {
	_ = p.cmd.Wait() // an exit by a signal is no failure here
	// From now on the pid may belong to another process: release the guardian.
	_, _ = leash.WriteString("\n")
	_ = leash.Close()
	close(p.exited)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// running reports whether the process has not ended yet. A nil process is not
// running.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// signal returns errNotRunning if the process has ended. A signal cannot reach
// a later process of the same pid: os.Process refuses once it was waited for.
func (p *process) signal(sig os.Signal) error {
	if !p.running() {
		return errNotRunning
	}
	if err := p.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		return errNotRunning
	} else if err != nil {
		return err
	}
	return nil
}

// pause stops the process. No request sent after pause has returned is
// executed before resume: the signal is pending by then, and a process takes
// its signals before it sees the result of any system call.
func (p *process) pause() error { return p.signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

// kill ends the process at once, paused or not, and waits until it is gone. It
// returns nil if it is gone already.
func (p *process) kill() error { return p.end(killLimit, syscall.SIGKILL) }

// terminate asks the process to end, and waits until it is gone. It returns nil
// if it is gone already.
func (p *process) terminate() error {
	// A paused process keeps the SIGTERM for later; SIGCONT lets it act.
	return p.end(stopLimit, syscall.SIGTERM, syscall.SIGCONT)
}

func (p *process) end(limit time.Duration, signals ...os.Signal) error {
	if p == nil {
		return nil
	}
	for _, sig := range signals {
		if err := p.signal(sig); err != nil && !errors.Is(err, errNotRunning) {
			return err
		}
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("redistest: process %d is still there %v after the signal %q",
			p.pid(), limit, signals[0])
	}
}
