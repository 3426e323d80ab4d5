//go:build !unix

package main

import (
	"os"
	"syscall"
)

var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}

var deadly = passedOn

// raise is for systems whose shells look at signals.
func raise(syscall.Signal) {}
