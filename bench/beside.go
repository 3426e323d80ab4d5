package main

import "context"

// beside does calls in goroutines of its own, so that a caller can return when its ctx ends, whatever go-redis waits for. A
// caller needs at least that, because go-redis does not interrupt a read. The goroutines wait for further calls, because to
// start one for each call costs more.
type beside struct {
	calls chan func()
}

func newBeside() *beside { return &beside{calls: make(chan func())} }

// do returns when call does, or when ctx ends. The call may then go on.
func (b *beside) do(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	work := func() { done <- call() }
	select {
	case b.calls <- work:
	default: // all goroutines are busy
		go func() {
			work()
			for work := range b.calls {
				work()
			}
		}()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the goroutines. do must not be called any more.
func (b *beside) close() { close(b.calls) }
