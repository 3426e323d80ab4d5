//go:build unix

package job

import (
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Keyboard reads single keys from the terminal, without Enter and without an echo. Keys that make signals, like Ctrl-C,
// still make them.
type Keyboard struct {
	pressed func(key byte)

	tty  *terminal
	over chan struct{}
	done chan struct{}

	before *unix.Termios // the settings to restore; nil while the terminal has them
}

// keyTime is how long one attempt to read a key takes, and so how long Close may wait.
const keyTime = 100 * time.Millisecond

// OpenKeyboard calls pressed for each key, one at a time, until Close. It returns nil if there is no terminal.
func OpenKeyboard(pressed func(key byte)) *Keyboard {
	tty := openTerminal()
	if tty == nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTIN) // if the job leaves the foreground during a read, the read fails instead of stopping it
	k := &Keyboard{pressed: pressed, tty: tty, over: make(chan struct{}), done: make(chan struct{})}
	go k.read()
	return k
}

// Close reads no more keys, and gives the terminal its settings back. It does nothing to a nil Keyboard.
func (k *Keyboard) Close() {
	if k == nil {
		return
	}
	close(k.over)
	<-k.done
	if k.before != nil && k.tty.isOurs() { // another job in the foreground has settings of its own
		_ = unix.IoctlSetTermios(k.tty.fd, setTermios, k.before)
	}
	_ = unix.Close(k.tty.fd)
}

func (k *Keyboard) read() {
	defer close(k.done)
	for {
		if key, is := k.next(); is {
			k.pressed(key)
		}
		select {
		case <-k.over:
			return
		default:
		}
	}
}

// next returns the next key, if it comes within keyTime.
func (k *Keyboard) next() (key byte, is bool) {
	if !k.tty.isOurs() || !k.single() {
		time.Sleep(keyTime)
		return 0, false
	}
	buffer := make([]byte, 1)
	n, err := unix.Read(k.tty.fd, buffer)
	if err != nil { // hung up: do not ask again at once
		time.Sleep(keyTime)
	}
	return buffer[0], n == 1
}

// single makes the terminal deliver each key at once, and end a read without a key after keyTime.
func (k *Keyboard) single() bool {
	if k.before != nil {
		return true
	}
	before, err := unix.IoctlGetTermios(k.tty.fd, getTermios)
	if err != nil {
		return false
	}
	single := *before
	single.Lflag &^= unix.ICANON | unix.ECHO
	single.Cc[unix.VMIN], single.Cc[unix.VTIME] = 0, uint8(keyTime/(100*time.Millisecond))
	if unix.IoctlSetTermios(k.tty.fd, setTermios, &single) != nil {
		return false
	}
	k.before = before
	return true
}

// OnResize calls changed when the size of the terminal has changed, until end is called.
func OnResize(changed func()) (end func()) { return whenever(syscall.SIGWINCH, changed) }
