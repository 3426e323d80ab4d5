package transport

import (
	"errors"
	"fmt"
	"runtime"
)

// If a hook of the Redis client panics, it does so in the goroutine that sends. In a goroutine of this package, the panic
// would end the process, and no caller could recover from it. There, catch turns the panic into the error of the call, and
// a caller that waits for the call panics with the same value. A runtime.Goexit, for example of a failing test, takes the
// same way.

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

// catch runs f, which sends the call, in a goroutine of this package.
func (c *Call) catch(f func()) {
	catch(f, func(panicked error) {
		c.land()
		c.Reply, c.Err = nil, panicked
		c.Doubtful = c.Doubtful || c.departed
	})
}

// catch runs f, which sends something, and reports whether f has returned. If a hook panics, or ends the goroutine, it
// calls failed.
func catch(f func(), failed func(panicked error)) (returned bool) {
	defer func() {
		if !returned {
			failed(&hookPanicError{recover()})
		}
	}()
	f()
	return true
}

// rethrow panics, or calls runtime.Goexit, if a hook did so.
func (c *Call) rethrow() {
	if c.Err == nil {
		return // without an allocation for p
	}
	var p *hookPanicError
	switch {
	case !errors.As(c.Err, &p):
	case p.value == nil:
		runtime.Goexit()
	default:
		panic(p.value)
	}
}
