//go:build !unix

package main

import (
	"os"
	"syscall"
	"time"
)

// child is a running command. Systems without process groups and signals get what os.Process has: the command can be
// killed, without grace, and what it has started lives on.
type child struct {
	process *os.Process

	ended   chan childEnd
	stopped chan syscall.Signal
	awake   <-chan time.Time
}

var jobControl []os.Signal

func startChild(path string, args, variables []string, env *environment) (*child, error) {
	attr := &os.ProcAttr{Env: variables, Files: []*os.File{fileOf(env.stdin), fileOf(env.stdout), fileOf(env.stderr)}}
	process, err := os.StartProcess(path, args, attr)
	if err != nil {
		return nil, err
	}
	c := &child{process: process, ended: make(chan childEnd, 1)}
	go func() {
		state, err := process.Wait()
		if err != nil {
			c.ended <- childEnd{code: exitNo}
			return
		}
		c.ended <- childEnd{code: state.ExitCode()}
	}()
	return c, nil
}

func fileOf(stream any) *os.File {
	file, _ := stream.(*os.File)
	return file
}

// pass does nothing: Ctrl-C reaches the command by itself.
func (c *child) pass(os.Signal) {}

func (c *child) suspend(syscall.Signal)     {}
func (c *child) resume()                    {}
func (c *child) terminate()                 { c.kill() }
func (c *child) kill()                      { _ = c.process.Kill() }
func (c *child) interruptJob(childEnd) bool { return false }
func (c *child) groupGone() bool            { return true }
func (c *child) close()                     {}

// aroundStops does nothing where no Ctrl-Z stops a process.
func aroundStops(_, _ func()) (end func()) { return func() {} }
