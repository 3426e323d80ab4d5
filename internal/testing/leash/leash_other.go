//go:build !unix

package leash

import (
	"errors"
	"os"
	"time"
)

// ErrUnsupported is the reason why this platform has no leashes.
var ErrUnsupported = errors.New("processes can be stopped and continued on Unix systems only")

// EndLimit is how long to wait for a process to end.
const EndLimit = 30 * time.Second

// ErrNotRunning is returned by Pause and Resume if the process has ended.
var ErrNotRunning = errors.New("the process is not running")

// Process keeps the packages that use this one compiling here: no process can be started.
type Process struct{ exited chan struct{} }

// Start returns ErrUnsupported.
func Start(string, *os.File, []string, string, ...string) (*Process, error) {
	return nil, ErrUnsupported
}

func (*Process) Pid() int                  { return 0 }
func (*Process) Running() bool             { return false }
func (p *Process) Exited() <-chan struct{} { return p.exited }
func (*Process) Pause() error              { return ErrUnsupported }
func (*Process) Resume() error             { return ErrUnsupported }
func (*Process) Kill() error               { return nil }
func (*Process) Quit() error               { return ErrUnsupported }
func (*Process) Terminate() error          { return nil }
