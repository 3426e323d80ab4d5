package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/term"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

// Exit codes. exitCodesHelp is the same for users.
const (
	exitOK          = 0
	exitNo          = 1   // the answer is no: not locked, not released, not free; and whatever else has failed
	exitUsage       = 64  // the command line cannot be used, and nothing was done
	exitUnavailable = 69  // Redis cannot be reached, or refuses what is asked of it
	exitLost        = 76  // the lock was lost while the command ran
	exitNotRunnable = 126 // the command is there, and cannot be run
	exitNotFound    = 127 // there is no such command
)

const exitCodesHelp = `The exit codes of redislock, all that it ever ends with:

    0   what was asked for is done, or the answer is yes
    1   the answer is no: the lock is taken or was not had in time (run), a key is
        free (inspect, ttl), still taken (wait) or not that token's (release); and
        whatever else has failed; warnings (doctor)
    2   something is bad (doctor)
   64   the command line cannot be used; nothing was done
   69   Redis cannot be reached, or refuses what is asked of it
   76   the lock was lost while the command ran (run), and the command ended
  126   the command of run cannot be executed
  127   the command of run was not found
  128+n redislock, or the command of run, was ended by signal n: 130 by Ctrl-C,
        143 by SIGTERM

Otherwise "redislock run" ends with the exit code of its command. Where that may be
1, 69 or 76 itself, choose others with --conflict-exit-code, --unavailable-exit-code and
--lost-exit-code.`

// newExitCodesTopic is no command, but a page of the help.
func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp}
}

// exitError is how a command ends otherwise than with exitOK.
type exitError struct {
	code int
	err  error // what to print; nil if everything was said already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit returns an error that ends the program with that code and says nothing.
func exit(code int) error { return &exitError{code: code} }

// usageError returns an error that says which arguments cannot be used, and what to do instead.
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// unavailable returns an error that says what Redis has refused, or why it cannot be reached.
func unavailable(format string, args ...any) error {
	return &exitError{exitUnavailable, fmt.Errorf(format, args...)}
}

// finish prints err in one line, and returns the exit code for it.
func (e *environment) finish(err error) int {
	if err == nil {
		return exitOK
	}
	var own *exitError
	isOwn := errors.As(err, &own)
	switch signal, ended := errors.AsType[job.Signalled](err); {
	case ended && !isOwn:
		e.endedBy = signal.Signal
	case !isOwn || own.err != nil:
		e.complain(err)
	}
	return codeOf(err)
}

// codeOf returns the exit code for an error.
func codeOf(err error) int {
	var own *exitError
	var signal job.Signalled
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &signal):
		return job.CodeOf(signal.Signal)
	case errors.Is(err, context.Canceled):
		return job.CodeOf(syscall.SIGINT)
	}
	return exitNo
}

// complain prints err to stderr, in one line.
func (e *environment) complain(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", ": ") // joined errors have lines
	text = strings.ReplaceAll(strings.TrimPrefix(text, "redislock: "), ": redislock: ", ": ")
	fmt.Fprintf(e.stderr, "redislock: %s\n", term.Printable(text))
}
