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

// job is the first message to a worker.
type job struct {
	On         topology
	Contender  string // the name of the contender
	Addrs      []string
	Sets       [][]string // of keys: contender i wants the set i, modulo the number of sets
	First      int        // the index of the first contender in this process
	Contenders int        // how many contenders are in this process
	Hold       time.Duration
	Rest       time.Duration // after each lock, on average; 0 to come back at once
	Duration   time.Duration
}

// worker is a process of contenders, seen from its parent. They exchange JSON: the worker gets its job, says true when it is
// connected, gets the time of the start, and answers with its outcome.
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

// start sends the worker the time of the start.
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
