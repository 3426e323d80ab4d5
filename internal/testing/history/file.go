package history

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
)

// Writer writes the history of one process to a file. It is safe for concurrent use.
type Writer struct {
	worker string

	mu     sync.Mutex // protects the fields below
	file   *os.File
	buffer []byte
	err    error
}

// Create makes the file of a worker. The name must be new.
func Create(name, worker string) (*Writer, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{worker: worker, file: file}, nil
}

// Write writes an event. When Write has returned, the kernel has the event, so a SIGKILL does not lose it. A SIGKILL during
// Write can only leave an unfinished last line.
func (w *Writer) Write(e Event) {
	e.Worker = w.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buffer = e.Append(w.buffer[:0])
	if _, err := w.file.Write(w.buffer); err != nil {
		w.err = errors.Join(w.err, err)
	}
}

// Close closes the file. It returns the first errors of all writes.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.err, w.file.Close())
}

// Reader reads a history that is still being written.
type Reader struct {
	file *os.File
	rest []byte // the beginning of an unfinished line
}

// Open opens the file of a Writer.
func Open(name string) (*Reader, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &Reader{file: file}, nil
}

// Read returns the events that were written since the last call. It leaves an unfinished last line for the next call.
func (r *Reader) Read() ([]Event, error) {
	more, err := io.ReadAll(r.file)
	if err != nil {
		return nil, err
	}
	data := slices.Concat(r.rest, more)
	var events []Event
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			r.rest = bytes.Clone(data)
			return events, nil
		}
		data = rest
		e, err := Parse(string(line))
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
