//go:build unix

package job

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the terminal that controls this process.
type terminal struct {
	fd  int
	own int // process group
}

// openTerminal returns nil if no terminal controls this process.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, own: unix.Getpgrp()}
}

// isOurs reports whether this process is in the foreground job.
func (t *terminal) isOurs() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// take makes this process' own group the foreground job again, even from the background.
func (t *terminal) take() {
	signal.Ignore(syscall.SIGTTOU)
	t.give(t.own)
}

// Pass passes a signal on to the group.
func (c *Child) Pass(sig os.Signal) {
	switch sig {
	case syscall.SIGCONT:
		c.Resume()
		return
	case syscall.SIGINT:
		c.interrupted = true
	}
	_ = c.signal(sig.(syscall.Signal))
}

// stopLag is how long it may take until a process that stops itself has stopped.
const stopLag = 100 * time.Millisecond

// Suspend is called when the command has been stopped. After a Ctrl-Z, this process takes the terminal back and stops as
// well. A command that was stopped only because it needs the terminal gets the terminal, if this process has it. A SIGSTOP
// in the background concerns only the command: this process goes on, and keeps the locks.
func (c *Child) Suspend(sig syscall.Signal) {
	needs := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case c.tty == nil, sig == syscall.SIGSTOP && !c.given:
		return
	case needs && !c.given && c.tty.isOurs():
		c.wanted = true
		c.Resume()
		return
	}
	c.wanted = c.wanted || c.given || needs
	if c.given {
		c.tty.take()
		c.given = false
	}
	if isOrphaned() {
		c.Resume()
		return
	}
	signal.Ignore(syscall.SIGTSTP) // the caller listens again when this process goes on
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // as in Suspend
	c.Awake = time.After(stopLag)                       // unless SIGCONT comes before
}

// isOrphaned reports whether nobody could let this job go on: no shell has started it as a job, or the shell is gone.
func isOrphaned() bool {
	session, err := unix.Getsid(0)
	return err != nil || session == unix.Getpgrp() || unix.Getppid() == 1
}

// Resume lets the group go on: in the foreground if it was there before and this process is there now.
func (c *Child) Resume() {
	c.Awake = nil
	if c.wanted && c.tty.isOurs() {
		c.tty.give(c.pid)
		c.given, c.wanted = true, false
	}
	_ = c.signal(syscall.SIGCONT)
}

// keyTime is how long one attempt to read a key takes, and so how long the end of ReadKeys may take.
const keyTime = 100 * time.Millisecond

// ReadKeys calls pressed for each key that is pressed while this process has the terminal, without Enter or an echo,
// until end is called. Keys that make signals, like Ctrl-C, still make them. Without a terminal it does nothing.
func ReadKeys(pressed func(key byte)) (end func()) {
	tty := openTerminal()
	if tty == nil {
		return func() {}
	}
	signal.Ignore(syscall.SIGTTIN) // if the job leaves the foreground during a read, the read fails instead of stopping it
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var before *unix.Termios // the settings to restore
		for {
			select {
			case <-over:
				if before != nil && tty.isOurs() { // another job in the foreground has settings of its own
					_ = unix.IoctlSetTermios(tty.fd, setTermios, before)
				}
				_ = unix.Close(tty.fd)
				return
			default:
			}
			if before == nil && tty.isOurs() {
				before = tty.deliverKeys()
			}
			if before == nil || !tty.isOurs() {
				time.Sleep(keyTime)
				continue
			}
			key := make([]byte, 1)
			if n, err := unix.Read(tty.fd, key); n == 1 {
				pressed(key[0])
			} else if err != nil { // hung up: do not ask again at once
				time.Sleep(keyTime)
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// deliverKeys makes the terminal deliver each key at once. It returns the settings from before, or nil if it cannot.
func (t *terminal) deliverKeys() *unix.Termios {
	before, err := unix.IoctlGetTermios(t.fd, getTermios)
	if err != nil {
		return nil
	}
	keys := *before
	keys.Lflag &^= unix.ICANON | unix.ECHO
	keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 0, uint8(keyTime/(100*time.Millisecond))
	if unix.IoctlSetTermios(t.fd, setTermios, &keys) != nil {
		return nil
	}
	return before
}

// Resizes catches the signals of a new size of the screen. The caller ends that with signal.Stop.
func Resizes() chan os.Signal {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	return resized
}

// Stops catches the signals of Ctrl-Z, after which the program calls Suspend.
func Stops() chan os.Signal {
	stopped := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(stopped, syscall.SIGTSTP)
	}
	return stopped
}

// InBackground reports whether another job has this terminal, so that this process should not draw on it.
func InBackground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp() // an error means that the terminal controls no job of this session
}

// Suspend stops this process, and returns when it goes on. It does nothing if nobody could let it go on.
func Suspend() {
	if !isOrphaned() {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // Go's runtime does not give SIGTSTP its default back
		time.Sleep(stopLag)                                 // another thread may get the signal
	}
}
