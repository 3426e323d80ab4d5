package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
)

// child is this program, started again to do a part of the work in its own process. A child ends when its input ends, so no
// child outlives the process that started it, however that ends.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

// startChild starts this program with one argument. The child is killed when ctx ends, and must be closed.
func startChild(ctx context.Context, argument string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, argument)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: out}, nil
}

// close ends the child's input, and so the child, and waits until it has ended. Unread output is lost.
func (c *child) close() error {
	return errors.Join(c.in.Close(), c.out.Close(), c.cmd.Wait())
}
