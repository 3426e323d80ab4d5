package redislock

import (
	"fmt"
	"runtime"
)

// A hook of the Redis client that panics does so in the goroutine that sends. Where that is one of the library's own, the
// panic would end the process, and no caller could recover it. There it becomes the error of the call, and whoever waits for
// the call panics with it. A runtime.Goexit, as of a failing test, goes the same way.

// hookPanic is the error of a call whose hook has panicked, or has ended its goroutine.
type hookPanic struct {
	value any // nil for a runtime.Goexit
}

func (p *hookPanic) Error() string {
	if p.value == nil {
		return "a hook of the Redis client called runtime.Goexit"
	}
	return fmt.Sprintf("a hook of the Redis client panicked: %v", p.value)
}

// guard runs f, which sends the call, in a goroutine of the library's own.
func (c *call) guard(f func()) {
	returned := false
	defer func() {
		if !returned {
			c.reply, c.err = nil, &hookPanic{recover()}
			c.doubtful = c.doubtful || c.left
		}
	}()
	f()
	returned = true
}

// rethrow does to the goroutine of the caller what a hook did while that waited for the call.
func (c *call) rethrow() {
	p, panicked := c.err.(*hookPanic)
	switch {
	case !panicked:
	case p.value == nil:
		runtime.Goexit()
	default:
		panic(p.value)
	}
}
