//go:build unix

package job

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// deadly are the signals that end a program which does not catch them, and so end a redislock that waits.
var deadly = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
}

// passedOn are the signals that the command gets when this process gets them. Those of job control are handled apart.
var passedOn = append(slices.Clip(deadly), syscall.SIGWINCH)

// jobControl are the signals that move a job between foreground and background.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

// Raise ends this process by the signal. A shell learns more from that than from an exit code: a Ctrl-C also ends the
// loop in which the shell runs this process.
func Raise(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(syscall.Getpid(), sig)
	time.Sleep(time.Second) // another thread gets the signal; and an init process survives it
}
