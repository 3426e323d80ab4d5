package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BuildForBench builds the program for a benchmark.
func BuildForBench(b *testing.B) (program string) {
	b.Helper()
	program, err := build(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return program
}

// Measure runs a program to its end. It returns what the program has printed to stdout, and the most memory that it has had,
// in KiB; 0 where the system does not tell.
func Measure(b *testing.B, program string, args ...string) (printed string, peak int) {
	b.Helper()
	cmd := exec.Command(program, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				b.Fatal(err)
			}
			return out.String(), peak
		case <-time.After(10 * time.Millisecond):
			peak = max(peak, peakOf(cmd.Process.Pid))
		}
	}
}

// peakOf returns the most memory that a process has had, in KiB; 0 where the system does not tell.
func peakOf(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(fields[0])
	return kib
}
