package main

import (
	"fmt"
	"syscall"
	"time"
)

// processCPU returns how long this process has been on a processor, user and system. It does not count redis-server, the
// workers and the processes of --busy, which are other processes.
func processCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("CPU time of this process: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
