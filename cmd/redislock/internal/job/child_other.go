//go:build !unix

package job

import (
	"os"
	"syscall"
	"time"
)

// Child is a running command. Systems without process groups and signals get what os.Process offers: the command can be
// killed, without a grace period, and what it has started goes on.
type Child struct {
	process *os.Process

	Ended   chan End
	Stopped chan syscall.Signal
	Awake   <-chan time.Time
}

var (
	passedOn   = []os.Signal{os.Interrupt, syscall.SIGTERM}
	deadly     = passedOn
	jobControl []os.Signal
)

func Start(command Command) (*Child, error) {
	process, err := os.StartProcess(command.Path, command.Args, command.attr())
	if err != nil {
		return nil, err
	}
	c := &Child{process: process, Ended: make(chan End, 1)}
	go func() {
		state, _ := process.Wait()
		c.Ended <- End{Code: state.ExitCode()} // -1 for no state
	}()
	return c, nil
}

// Pass does nothing: Ctrl-C reaches the command without help.
func (c *Child) Pass(os.Signal) {}

func (c *Child) Suspend(syscall.Signal) {}
func (c *Child) Resume()                {}
func (c *Child) Terminate()             { c.Kill() }
func (c *Child) Kill()                  { _ = c.process.Kill() }
func (c *Child) InterruptJob(End) bool  { return false }
func (c *Child) Gone() bool             { return true }
func (c *Child) Sweep()                 {}
func (c *Child) Close()                 {}

func Raise(syscall.Signal)                 {}
func ReadKeys(func(key byte)) (end func()) { return func() {} }
func Resizes() chan os.Signal              { return nil }
func Stops() chan os.Signal                { return nil }
func InBackground(*os.File) bool           { return false }
func Suspend()                             {}
