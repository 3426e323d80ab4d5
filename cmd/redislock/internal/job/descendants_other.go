//go:build unix && !linux

package job

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA

// Without a way to adopt orphans, what has left the group is out of reach.
func adopt() {}

func (c *Child) killLeft() {}

// Sweep warns if the whole group belongs to another user.
func (c *Child) Sweep() {
	if c.signal(0) == syscall.EPERM && !c.asked[c.pid] {
		c.asked[c.pid] = true
		c.complain(errors.New("cannot end the command, which runs as another user; it goes on without the lock"))
	}
}

// Gone reports whether nothing is left of the command that this process could end.
func (c *Child) Gone() bool { return c.groupGone() }
