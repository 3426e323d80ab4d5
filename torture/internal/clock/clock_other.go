//go:build !unix

// Package clock reads the clock that all processes of a machine share.
package clock

import "time"

var start = time.Now()

// Now returns the time since this process started, in ns. Other processes would read another time, but there are none,
// because redis-server does not run here.
func Now() int64 { return int64(time.Since(start)) }

// Sub returns how long after other at is.
func Sub(at, other int64) time.Duration { return time.Duration(at - other) }
