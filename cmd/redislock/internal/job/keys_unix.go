//go:build unix

package job

import (
	"os/signal"
	"sync"
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

	mu     sync.Mutex    // protects what follows, and is held while a key is read
	wanted bool          // single keys are
	before *unix.Termios // the settings to restore; nil while the terminal has them
}

// keyTime is how long one attempt to read a key takes, and so how long Give and Close may wait.
const keyTime = 100 * time.Millisecond

// OpenKeyboard calls pressed for each key, one at a time, until Close. It returns nil if there is no terminal. The methods
// of a nil Keyboard do nothing.
func OpenKeyboard(pressed func(key byte)) *Keyboard {
	tty := openTerminal()
	if tty == nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTIN) // if the job leaves the foreground during a read, the read fails instead of stopping it
	k := &Keyboard{pressed: pressed, tty: tty, over: make(chan struct{}), done: make(chan struct{}), wanted: true}
	go k.read()
	return k
}

// Take reads keys from now on, as soon as this process is in the foreground.
func (k *Keyboard) Take() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = true
}

// Give reads no more keys, and gives the terminal its settings back.
func (k *Keyboard) Give() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = false
	if k.before != nil && k.tty.isOurs() { // another job in the foreground has settings of its own
		_ = unix.IoctlSetTermios(k.tty.fd, setTermios, k.before)
	}
	k.before = nil
}

// Close is Give for good.
func (k *Keyboard) Close() {
	if k == nil {
		return
	}
	close(k.over)
	<-k.done
	k.Give()
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.wanted || !k.tty.isOurs() || !k.single() {
		k.mu.Unlock()
		time.Sleep(keyTime)
		k.mu.Lock()
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
