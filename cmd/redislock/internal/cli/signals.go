package cli

import (
	"context"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

// UntilSignal returns the RunE of a command that needs to tidy up when a signal comes: the ctx of run ends, and a second
// signal ends the program at once. SIGPIPE is what `redislock demo | head` gets.
func UntilSignal(run func(context.Context, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, end := context.WithCancelCause(cmd.Context())
		defer end(nil)
		caught := make(chan os.Signal, 1)
		dies := !signal.Ignored(syscall.SIGPIPE)
		signal.Notify(caught, job.Endings()...)
		// Not so a second SIGPIPE, which comes from the next line that is printed.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		defer signal.Stop(caught)
		go func() {
			select {
			case s := <-caught:
				signal.Stop(caught)
				end(job.Signalled{Signal: s.(syscall.Signal)})
			case <-ctx.Done():
			}
		}()
		err := run(ctx, cmd, args)
		if write, ours := err.(*fs.PathError); ours && dies && write.Err == syscall.EPIPE { //nolint:errorlint // no more to say
			return job.Signalled{Signal: syscall.SIGPIPE} // nobody reads any longer
		}
		if err != nil && ctx.Err() != nil {
			return &Error{CodeOf(context.Cause(ctx)), err}
		}
		return err
	}
}

// EndOnQuit has Ctrl-\ end this process as other programs are ended by it. Go would print all its goroutines.
func EndOnQuit() {
	if signal.Ignored(syscall.SIGQUIT) {
		return
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	go func() {
		<-quit
		os.Exit(job.CodeOf(syscall.SIGQUIT))
	}()
}
