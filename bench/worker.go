package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// workerArgument makes the program a worker: a process with some of the contenders.
const workerArgument = "worker"

// job is what a worker is told first.
type job struct {
	On         topology
	Contender  string // its name
	Addrs      []string
	Sets       [][]string // of keys: contender i of all wants those of number i, modulo their number
	First      int        // the number of the first contender in this process
	Contenders int        // in this process
	Hold       time.Duration
	Rest       time.Duration // after each lock, on average; 0 to come back at once
	Duration   time.Duration
}

// worker is a process of contenders, seen from the one that started it. They talk in JSON: the worker gets its job, says
// true when it is connected, gets the time to start at, and answers with its outcome.
type worker struct {
	*child
	to   *json.Encoder // to its input
	from *json.Decoder // from its output
}

// startWorker starts a worker and gives it its job. The worker is killed when ctx ends, and must be closed.
func startWorker(ctx context.Context, j job) (*worker, error) {
	c, err := startChild(ctx, workerArgument)
	if err != nil {
		return nil, err
	}
	w := &worker{child: c, to: json.NewEncoder(c.in), from: json.NewDecoder(c.out)}
	if err := w.to.Encode(j); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// ready blocks until the worker is connected.
func (w *worker) ready() error {
	var ready bool
	if err := w.from.Decode(&ready); err != nil {
		return fmt.Errorf("a worker failed to start: %w", err)
	}
	return nil
}

// start tells the worker when to start.
func (w *worker) start(at time.Time) error {
	return w.to.Encode(at)
}

// outcome blocks until the worker is done.
func (w *worker) outcome() (outcome, error) {
	var o outcome
	if err := w.from.Decode(&o); err != nil {
		return outcome{}, fmt.Errorf("a worker failed: %w", err)
	}
	return o, nil
}
