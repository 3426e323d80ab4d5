package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

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
