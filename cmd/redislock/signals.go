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
}

// listen catches the signals that are passed on.
func listen() *signals {
	s := &signals{caught: make(chan os.Signal, 64)}
	s.add(passedOn...)
	// A message to a stderr that nobody reads any longer must not end this process before it has released.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

func (s *signals) add(more ...os.Signal) {
	for _, sig := range more {
		if !signal.Ignored(sig) {
			signal.Notify(s.caught, sig)
		}
	}
}

// deadly are the signals that end a redislock which waits.
var deadly = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

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
