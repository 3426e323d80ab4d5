package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns CLOCK_MONOTONIC, which goes on while the machine is suspended, other than the clock of package time.
func sinceBoot() (time.Duration, bool) {
	var at unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return time.Duration(at.Nano()), err == nil
}
