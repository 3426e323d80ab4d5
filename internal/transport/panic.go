package transport

import (
	"errors"
	"fmt"
	"runtime"
)

// A hook of the Redis client that panics does so in the goroutine that sends. Where that is one of this package's own,
// the panic would end the process, and no caller could recover it. There it becomes the error of the call, and a caller
// who waits for the call panics with it. A runtime.Goexit, as of a failing test, goes the same way.

// hookPanicError is the error of a call whose hook has panicked, or has ended its goroutine.
type hookPanicError struct {
	value any // nil for a runtime.Goexit
}

func (p *hookPanicError) Error() string {
	if p.value == nil {
		return "a hook of the Redis client called runtime.Goexit"
	}
	return fmt.Sprintf("a hook of the Redis client panicked: %v", p.value)
}

// guard runs f, which sends the call, in a goroutine of this package's own.
func (c *Call) guard(f func()) {
	returned := false
	defer func() {
		if !returned {
			c.Reply, c.Err = nil, &hookPanicError{recover()}
			c.Doubtful = c.Doubtful || c.left
		}
	}()
	f()
	returned = true
}

// rethrow does to the goroutine of the caller what a hook did while that waited for the call.
func (c *Call) rethrow() {
	var p *hookPanicError
	switch {
	case !errors.As(c.Err, &p):
	case p.value == nil:
		runtime.Goexit()
	default:
		panic(p.value)
	}
}
