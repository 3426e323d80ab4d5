//go:build unix

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// deadly are the signals that end a redislock which waits: those that end a program which does not catch them.
var deadly = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
}

// passedOn are the signals that the command gets when this process does. Those of job control are another matter.
var passedOn = append(slices.Clip(deadly), syscall.SIGWINCH)

// raise ends this process by the signal, which tells a shell more than an exit code: after a Ctrl-C it ends its loop.
func raise(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(syscall.Getpid(), sig)
	time.Sleep(time.Second) // it comes to another thread; an init process is not ended by it
}
