package main

import (
	"io"
	"syscall"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// environment is what the program has around it.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(name string) string

	endedBy syscall.Signal // set by finish; 0 if no signal has ended the program
}

// screen returns what can be shown on out, one of the streams.
func (e *environment) screen(out io.Writer) term.Screen { return term.ScreenOf(out, e.getenv) }
