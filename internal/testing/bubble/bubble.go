// Package bubble runs tests on fake time.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is [synctest.Test]. The process has one processor from then on. The goroutines of a bubble wake each other all the
// time, which takes 1.6 times the CPU time if the other one is on another processor. With the race detector, the process
// could die as well: two goroutines of a bubble whose timers fire at the same time on two processors write to the same
// memory of the detector (https://go.dev/issue/78156). It finds the same races on one processor, since it does not wait for
// them to happen.
func Test(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	oneProcessor()
	synctest.Test(t, run)
}

var oneProcessor = sync.OnceFunc(func() { runtime.GOMAXPROCS(1) })
