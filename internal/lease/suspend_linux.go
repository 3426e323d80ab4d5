package lease

import (
	"syscall"
	"time"
	"unsafe"
)

// sinceBoot returns CLOCK_BOOTTIME. It goes without golang.org/x/sys, which takes longer to compile than this whole library.
func sinceBoot() (time.Duration, bool) {
	const bootTime = 7
	var at syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&at)), 0)
	return time.Duration(at.Nano()), failed == 0
}
