//go:build unix

// Package clock reads the clock that all processes of a machine share.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC, in ns. The clock goes on while the process is stopped, and is the same for every process
// of the machine.
func Now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails only for an unknown clock
	return t.Nano()
}

// Sub returns how long after other at is.
func Sub(at, other int64) time.Duration { return time.Duration(at - other) }
