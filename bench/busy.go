package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
)

// busyArgument makes the program a process that keeps a core busy.
const busyArgument = "busy"

// keepBusy keeps one core busy until in ends. It ignores interrupts. A terminal also sends them to the program that started
// it. That program ends in, and this process then ends without a failure.
func keepBusy(in io.Reader) error {
	signal.Ignore(os.Interrupt)
	var ended atomic.Bool
	failed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, in)
		failed <- err
		ended.Store(true)
	}()
	for !ended.Load() {
	}
	return <-failed
}

// busyCores are processes that keep a core busy each, so that a run shows what happens on a busy machine.
type busyCores []*child

// startBusyCores starts n processes. They must be closed.
func startBusyCores(n uint) (busyCores, error) {
	var cores busyCores
	for range n {
		c, err := startChild(context.Background(), busyArgument)
		if err != nil {
			return nil, errors.Join(err, cores.close())
		}
		cores = append(cores, c)
	}
	return cores, nil
}

// close ends the processes, and waits until they have ended.
func (cores busyCores) close() error {
	var errs []error
	for _, c := range cores {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
