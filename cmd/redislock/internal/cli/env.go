// Package cli is what all commands share at the command line: streams and variables, arguments, signals, errors and exit
// codes. It knows nothing of Redis and locks.
package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Env is the environment of the program.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(name string) string

	Report func(text string) // what to do with the text of an error; nil for a line on stderr
}

// Screen returns what can be shown on stdout.
func (e *Env) Screen() term.Screen { return term.ScreenOf(e.Stdout, e.Getenv) }

// Complain reports err, in one line.
func (e *Env) Complain(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", ": ") // joined errors have lines
	text = strings.ReplaceAll(strings.TrimPrefix(text, "redislock: "), ": redislock: ", ": ")
	if e.Report != nil {
		e.Report(text)
		return
	}
	fmt.Fprintf(e.Stderr, "redislock: %s\n", term.Printable(text))
}
