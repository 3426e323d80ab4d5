package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// signals are those that reach this process while it runs a command. Whatever was ignored when it was started, as by
// nohup, stays so, for the command too.
type signals struct {
	caught chan os.Signal
	jobs   []os.Signal // those of job control that were not ignored at the start
}

// listen catches the signals that are passed on.
func listen() *signals {
	s := &signals{caught: make(chan os.Signal, 64)}
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(s.caught, sig)
		}
	}
	for _, sig := range jobControl {
		if !signal.Ignored(sig) {
			s.jobs = append(s.jobs, sig)
		}
	}
	// A message to a stderr that nobody reads any longer must not end this process before it has released.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// addJobControl catches the signals of job control as well. Before a command runs, they do what they do by default.
func (s *signals) addJobControl() {
	if len(s.jobs) > 0 { // none would stand for all
		signal.Notify(s.caught, s.jobs...)
	}
}

// ending returns a ctx that a deadly signal ends, with signalled as its cause. No other signal counts until end is called;
// after that, all are left to others.
func (s *signals) ending(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-s.caught:
				if slices.Contains(deadly, sig) {
					cancel(signalled{sig.(syscall.Signal)})
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
