package cli

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

//go:embed exit-codes.txt
var exitCodes string

// The exit codes. exit-codes.txt lists them for users.
const (
	OK          = 0
	No          = 1   // the answer is no: not locked, not released, not free; or any other failure
	Usage       = 64  // the command line cannot be used, and nothing was done
	Unavailable = 69  // Redis cannot be reached, or refuses what is asked of it
	Deadlock    = 75  // the wait for a lock was part of a circle, and was given up
	Lost        = 76  // the lock was lost while the command ran
	TooLong     = 124 // the command was ended because it held the lock for too long; timeout(1) uses this code as well
	NotRunnable = 126 // the command exists, but cannot be run
	NotFound    = 127 // there is no such command
)

// NewExitCodesTopic returns the page "redislock help exit-codes".
func NewExitCodesTopic() *cobra.Command {
	return Describe(exitCodes, &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean"})
}

// Error ends the program with another exit code than OK.
type Error struct {
	Code int
	Err  error // what to print; nil for nothing
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Exit returns an error that ends the program with that code and prints nothing.
func Exit(code int) error { return &Error{Code: code} }

// Usagef returns the error for a command line that cannot be used. The text says what to write instead.
func Usagef(format string, args ...any) error { return &Error{Usage, fmt.Errorf(format, args...)} }

// Unavailablef returns the error for a Redis that refuses a request or cannot be reached.
func Unavailablef(format string, args ...any) error {
	return &Error{Unavailable, fmt.Errorf(format, args...)}
}

// Finish prints err in one line, and returns the exit code. For a signal that has ended the command, it prints nothing.
func (e *Env) Finish(err error) (code int, signal syscall.Signal) {
	if err == nil {
		return OK, 0
	}
	own, isOwn := errors.AsType[*Error](err)
	switch ended, isSignal := errors.AsType[job.SignalError](err); {
	case isSignal && !isOwn:
		signal = ended.Signal
	case !isOwn || own.Err != nil:
		e.Complain(err)
	}
	return CodeOf(err), signal
}

// CodeOf returns the exit code for an error.
func CodeOf(err error) int {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Code
	}
	if signal, ok := errors.AsType[job.SignalError](err); ok {
		return job.CodeOf(signal.Signal)
	}
	return No
}

// UntilSignal returns the RunE of a command that tidies up when a signal comes: the first signal ends the ctx of run, a
// second one ends the program at once. When nobody reads stdout any more, as with `redislock ls | head`, the command ends
// with the code of SIGPIPE. The error of the write decides, because a write to a server may cause a SIGPIPE as well.
func UntilSignal(run func(context.Context, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, end := context.WithCancelCause(cmd.Context())
		defer end(nil)
		ignored := signal.Ignored(syscall.SIGPIPE)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // or Go would end the program in the write
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, job.Endings()...)
		defer signal.Stop(caught)
		go func() {
			select {
			case s := <-caught:
				signal.Stop(caught)
				end(job.SignalError{Signal: s.(syscall.Signal)})
			case <-ctx.Done():
			}
		}()
		err := run(ctx, cmd, args)
		if write, ours := errors.AsType[*fs.PathError](err); ours && !ignored && write.Err == syscall.EPIPE {
			broken := job.SignalError{Signal: syscall.SIGPIPE}
			if err == error(write) {
				return broken // no more to say
			}
			return &Error{CodeOf(broken), err}
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			if err == cause || errors.Is(err, context.Canceled) {
				return cause // the signal says it all
			}
			return &Error{CodeOf(cause), err}
		}
		return err
	}
}
