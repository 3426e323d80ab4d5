//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the one that controls this process.
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

// give makes a process group the foreground job.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

// take makes this process' own group the foreground job again, from the background.
func (t *terminal) take() {
	signal.Ignore(syscall.SIGTTOU)
	t.give(t.own)
}

// pass passes a signal on to the group.
func (c *child) pass(sig os.Signal) {
	switch sig {
	case syscall.SIGCONT:
		c.resume()
		return
	case syscall.SIGINT:
		c.interrupted = true
	}
	_ = c.signal(sig.(syscall.Signal))
}

// stopLag is how long after a stop a process waits for the SIGCONT that has ended it.
const stopLag = 100 * time.Millisecond

// suspend is called when the command has been stopped. Who has stopped it by Ctrl-Z wants the shell back, so this process
// stops too, after it has taken the terminal back. A command that was stopped only because it needs the terminal gets that
// if this process has it. And a SIGSTOP in the background is between the command and whoever sent that: the locks are kept.
func (c *child) suspend(sig syscall.Signal) {
	needs := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case c.tty == nil, sig == syscall.SIGSTOP && !c.given:
		return
	case needs && !c.given && c.tty.isOurs():
		c.wanted = true
		c.resume()
		return
	}
	c.wanted = c.wanted || c.given || needs
	if c.given {
		c.tty.take()
		c.given = false
	}
	if c.tty.isOrphaned() {
		c.resume()
		return
	}
	signal.Ignore(syscall.SIGTSTP) // the supervisor listens again when this process goes on
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // Go's runtime does not give SIGTSTP its default back
	c.awake = time.After(stopLag)                       // unless SIGCONT comes before
}

// isOrphaned reports whether nobody could let this job go on once it has stopped, as the kernel sees it: it is the one of
// the session leader, whom no shell has started as a job, or the shell is gone.
func (t *terminal) isOrphaned() bool {
	session, err := unix.Getsid(0)
	return err != nil || session == t.own || unix.Getppid() == 1
}

// resume lets the group go on, in the foreground if it was there before and this process is.
func (c *child) resume() {
	c.awake = nil
	if c.wanted && c.tty.isOurs() {
		c.tty.give(c.pid)
		c.given, c.wanted = true, false
	}
	_ = c.signal(syscall.SIGCONT)
}

// aroundStops has Ctrl-Z call before, then stop this process, and call after when it goes on. So it is until end is called,
// which waits for that.
func aroundStops(before, after func()) (end func()) {
	tty := openTerminal()
	if tty == nil || signal.Ignored(syscall.SIGTSTP) {
		return func() {}
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-stops:
			}
			if tty.isOrphaned() {
				continue // nobody could let it go on
			}
			before()
			goesOn := make(chan os.Signal, 1)
			signal.Notify(goesOn, syscall.SIGCONT)
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // as in suspend
			select {
			case <-goesOn:
			case <-time.After(stopLag):
			}
			signal.Stop(goesOn)
			after()
		}
	}()
	return func() {
		close(over)
		<-done
	}
}
