//go:build unix

// Package leash starts processes that die with the one that started them, however that one ends, and stops, continues
// and kills them.
package leash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// ErrUnsupported is the reason why this platform has no leashes, or nil.
var ErrUnsupported error

// EndLimit is how long to wait for a process to end. A machine with a busy disk has taken 15 s to end one that was killed,
// and a Redis 7 that shuts down gives its replicas up to 10 s to catch up.
const EndLimit = 30 * time.Second

// leashed runs its arguments as a command that dies with us.
//
// The shell leaves a guardian behind, which blocks in read on a pipe whose only
// write end is ours, and then becomes the command itself, so that the process
// we started, wait for and signal is the command and not a wrapper. The kernel
// closes the pipe when we end, even by SIGKILL; read then fails and the
// guardian kills $$, which a subshell inherits from its shell: the pid of
// the command. A line on the pipe releases the guardian without a kill.
//
// The guardian ignores SIGHUP, which the kernel sends to a process group that
// has a stopped member when the last parent outside it ends:
// just when the guardian is needed.
//
// Linux has Pdeathsig for this, but that signal comes when the thread that
// forked ends, not the process, and other systems do not have it.
const leashed = `trap '' HUP; (read -r line <&3 || kill -KILL $$) & exec "$@" 3<&-`

// ErrNotRunning is returned by Pause and Resume if the process has ended.
var ErrNotRunning = errors.New("the process is not running")

// A Process is one run of a command. A nil Process is not running. It is safe for concurrent use.
type Process struct {
	cmd *exec.Cmd

	// exited is closed by reap when the process is gone.
	exited chan struct{}
}

// Start starts bin in dir with its output in log, and with env beside the environment of this process. The goroutine it
// leaves behind ends when the process does.
func Start(dir string, log *os.File, env []string, bin string, args ...string) (*Process, error) {
	hold, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()

	cmd := exec.Command("sh", append([]string{"-c", leashed, "leashed", bin}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{hold} // descriptor 3
	// Out of our process group, an interrupt typed at the terminal reaches us alone, and our clean-up still finds the
	// processes there.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		leash.Close()
		return nil, err
	}

	p := &Process{cmd: cmd, exited: make(chan struct{})}
	go p.reap(leash)
	return p, nil
}

func (p *Process) reap(leash *os.File) {
	_ = p.cmd.Wait() // an exit by a signal is no failure here
	// From now on the pid may belong to another process: release the guardian.
	_, _ = leash.WriteString("\n")
	_ = leash.Close()
	close(p.exited)
}

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running reports whether the process has not ended yet. A nil process is not running.
func (p *Process) Running() bool {
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

// signal returns ErrNotRunning if the process has ended. A signal cannot reach
// a later process of the same pid: os.Process refuses once it was waited for.
func (p *Process) signal(sig os.Signal) error {
	if !p.Running() {
		return ErrNotRunning
	}
	if err := p.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	} else if err != nil {
		return err
	}
	return nil
}

// Pause stops the process, with SIGSTOP. No request sent after Pause has returned is executed before Resume: the signal is
// pending by then, and a process takes its signals before it sees the result of any system call.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on. It returns ErrNotRunning if the process has ended.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Kill ends the process at once, paused or not, and waits until it is gone. It returns nil if it is gone already.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

// Quit sends SIGQUIT, on which a Go program prints its goroutines and exits. It returns ErrNotRunning if the process has
// ended.
func (p *Process) Quit() error { return p.signal(syscall.SIGQUIT) }

// Terminate asks the process to end, and waits until it is gone. It returns nil if it is gone already.
func (p *Process) Terminate() error {
	// A paused process keeps the SIGTERM for later; SIGCONT lets it act.
	return p.end(syscall.SIGTERM, syscall.SIGCONT)
}

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

func (p *Process) end(signals ...os.Signal) error {
	if p == nil {
		return nil
	}
	for _, sig := range signals {
		if err := p.signal(sig); err != nil && !errors.Is(err, ErrNotRunning) {
			return err
		}
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(EndLimit):
		return fmt.Errorf("process %d is still there %v after the signal %q",
			p.Pid(), EndLimit, signals[0])
	}
}
