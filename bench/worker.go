package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// workerArgument makes the program a worker: a process with some of the contenders.
const workerArgument = "worker"

// job is what a worker is told first.
type job struct {
	Contender  string // its name
	Addr       string
	Key        string
	Contenders int // in this process
	Hold       time.Duration
	Duration   time.Duration
}

// worker is a process of contenders, seen from the one that started it. They talk in JSON: the worker gets its job, says
// true when it is connected, gets the time to start at, and answers with its outcome. When its input ends, so does it.
type worker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	to   *json.Encoder // to in
	from *json.Decoder // from out
}

// startWorker starts this program again. The worker is killed when ctx ends, and must be closed.
func startWorker(ctx context.Context, j job) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, workerArgument)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, in: in, out: out, to: json.NewEncoder(in), from: json.NewDecoder(out)}
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

// close ends the worker's input, which ends the worker, and waits until it has gone. A worker that still wants to tell
// something is not listened to.
func (w *worker) close() error {
	return errors.Join(w.in.Close(), w.out.Close(), w.cmd.Wait())
}
