package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

// Exit codes. exitCodesHelp is the same for users.
const (
	OK          = 0
	No          = 1   // the answer is no: not locked, not released, not free; and whatever else has failed
	Usage       = 64  // the command line cannot be used, and nothing was done
	Unavailable = 69  // Redis cannot be reached, or refuses what is asked of it
	Lost        = 76  // the lock was lost while the command ran
	NotRunnable = 126 // the command is there, and cannot be run
	NotFound    = 127 // there is no such command
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

// NewExitCodesTopic is no command, but a page of the help.
func NewExitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp}
}

// Error is how a command ends otherwise than with OK.
type Error struct {
	Code int
	Err  error // what to print; nil if everything was said already
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Exit returns an error that ends the program with that code and says nothing.
func Exit(code int) error { return &Error{Code: code} }

// Usagef returns an error that says which arguments cannot be used, and what to do instead.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// Unavailablef returns an error that says what Redis has refused, or why it cannot be reached.
func Unavailablef(format string, args ...any) error {
	return &Error{Unavailable, fmt.Errorf(format, args...)}
}

// Finish prints err in one line, and returns the exit code of the program. If a signal has ended the command, it returns
// that too, and prints nothing.
func (e *Env) Finish(err error) (code int, signal syscall.Signal) {
	if err == nil {
		return OK, 0
	}
	own, isOwn := errors.AsType[*Error](err)
	switch ended, isSignal := errors.AsType[job.Signalled](err); {
	case isSignal && !isOwn:
		signal = ended.Signal
	case !isOwn || own.Err != nil:
		e.Complain(err)
	}
	return CodeOf(err), signal
}

// CodeOf returns the exit code for an error.
func CodeOf(err error) int {
	var own *Error
	var signal job.Signalled
	switch {
	case errors.As(err, &own):
		return own.Code
	case errors.As(err, &signal):
		return job.CodeOf(signal.Signal)
	case errors.Is(err, context.Canceled):
		return job.CodeOf(syscall.SIGINT)
	}
	return No
}
