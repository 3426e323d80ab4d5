// Package job runs a command as a job: in a process group of its own, with the signals, the terminal and the stops that
// a shell would give it. It knows nothing of Redis, locks or flags.
package job

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// Signals are the signals that reach this process while it runs a command. A signal that was ignored when this process
// started, as under nohup, stays ignored, by the command as well.
type Signals struct {
	Caught chan os.Signal

	jobs []os.Signal // those of job control that were not ignored at the start
}

// Listen catches the signals that are passed on.
func Listen() *Signals {
	s := &Signals{Caught: make(chan os.Signal, 64), jobs: notIgnored(jobControl)}
	signal.Notify(s.Caught, notIgnored(passedOn)...)
	// A message to a stderr that nobody reads any more must not end this process before it has released its locks.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// AddJobControl catches the signals of job control as well. Until a command runs, they have their default effect.
func (s *Signals) AddJobControl() {
	if len(s.jobs) > 0 { // Notify takes an empty list for all signals
		signal.Notify(s.Caught, s.jobs...)
	}
}

// RemoveJobControl gives the signals of job control their default effect again, when no command runs any more.
func (s *Signals) RemoveJobControl() {
	if len(s.jobs) > 0 {
		signal.Reset(s.jobs...)
	}
}

// Ending returns a ctx that a deadly signal ends, with SignalError as the cause. It drops all other signals until end.
func (s *Signals) Ending(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var dropping sync.WaitGroup
	dropping.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-s.Caught:
				if slices.Contains(deadly, sig) {
					cancel(SignalError{sig.(syscall.Signal)})
				}
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		dropping.Wait()
	}
}

// Endings returns the signals that end a program. Those that were ignored when it started, as under nohup, are left out.
func Endings() []os.Signal { return notIgnored(deadly) }

func notIgnored(signals []os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
}

// SignalError is the error for what a signal has ended. A command that returns it has nothing more to say.
type SignalError struct{ Signal syscall.Signal }

func (s SignalError) Error() string { return "ended by a signal: " + s.Signal.String() }

// Interrupted returns the signal that has ended a ctx of Ending, or err if none has.
func Interrupted(ctx context.Context, err error) error {
	if signal, ok := errors.AsType[SignalError](context.Cause(ctx)); ok {
		return signal
	}
	return err
}

// CodeOf returns the exit code of a process that a signal has ended, as shells have it.
func CodeOf(sig syscall.Signal) int { return 128 + int(sig) }

// Command is a command to start.
type Command struct {
	Path           string
	Args, Env      []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Complain func(error) // called with what fails while the command runs; must not block
}

func (c Command) attr() *os.ProcAttr {
	return &os.ProcAttr{Env: c.Env, Files: []*os.File{fileOf(c.Stdin), fileOf(c.Stdout), fileOf(c.Stderr)}}
}

func fileOf(stream any) *os.File {
	file, _ := stream.(*os.File)
	return file
}

// End is how a command has ended.
type End struct {
	Code   int            // CodeOf(Signal) if a signal ended it
	Signal syscall.Signal // 0 if none did
}
