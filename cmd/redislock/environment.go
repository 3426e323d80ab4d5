package main

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/term"
)

// environment is what the program has around it.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(name string) string

	endedBy syscall.Signal // set by finish; 0 if no signal has ended the program
}

// isTerminal reports whether a stream of the environment is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// coloured reports whether what is written to out may have colours: on a terminal that knows them, unless NO_COLOR is set.
func (e *environment) coloured(out io.Writer) bool {
	return isTerminal(out) && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb"
}
