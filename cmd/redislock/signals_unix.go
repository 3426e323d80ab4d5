//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// passedOn are the signals that the command gets when this process does. Those of job control are another matter.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGWINCH,
}

// raise ends this process by the signal, which tells a shell more than an exit code: after a Ctrl-C it ends its loop.
func raise(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(syscall.Getpid(), sig)
	time.Sleep(time.Second) // it comes to another thread; an init process is not ended by it
}
