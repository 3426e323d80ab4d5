//go:build unix

package job

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keyTime is how long one attempt to read a key takes, and so how long the end of ReadKeys may take.
const keyTime = 100 * time.Millisecond

// ReadKeys calls pressed for each key that is pressed while this process has the terminal, without Enter and without an echo,
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

// ScreenSignals catches the signals of a new size of the screen, and of Ctrl-Z, after which the program calls Suspend.
func ScreenSignals() (resized, stopped chan os.Signal) {
	resized, stopped = make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(stopped, syscall.SIGTSTP)
	}
	return resized, stopped
}

// Suspend stops this process, and returns when it goes on. It does nothing if nobody could let it go on.
func Suspend() {
	if !isOrphaned() {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // Go's runtime does not give SIGTSTP its default back
		time.Sleep(stopLag)                                 // another thread may get the signal
	}
}
