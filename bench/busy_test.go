package main

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestMain lets the test's own binary be the child that startChild starts.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{busyArgument}) {
		if keepBusy(os.Stdin) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestBusyCoresAreBusyInProcessesOfTheirOwn(t *testing.T) {
	cores, err := startBusyCores(2)
	if err != nil {
		t.Fatal(err)
	}
	// What this process burns meanwhile is the measure: how much time passes says nothing on a busy machine.
	own := cpu(t)
	for cpu(t) < own+200*time.Millisecond {
	}
	own = cpu(t)
	if err := cores.close(); err != nil {
		t.Fatal(err)
	}
	own = cpu(t) - own
	for _, c := range cores {
		state := c.cmd.ProcessState
		burnt := state.UserTime() + state.SystemTime()
		if burnt < 50*time.Millisecond {
			t.Errorf("a busy process took %v of CPU time, while this one took 200 ms", burnt)
		}
		if own > burnt/2 {
			t.Errorf("the CPU time of this process rose by %v when a child that took %v had ended", own, burnt)
		}
	}
}

// cpu returns the CPU time of this process.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	used, err := processCPU()
	if err != nil {
		t.Fatal(err)
	}
	return used
}
