// Package bubble runs tests on fake time.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redislock/redislock/internal/testing/race"
)

// Test is [synctest.Test]. With the race detector, the process has one processor from then on: two goroutines of a bubble
// whose timers fire at the same time on two processors write to the same memory of the detector, and the process dies
// (https://go.dev/issue/78156). It finds the same races on one processor, since it does not wait for them to happen.
func Test(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if race.Enabled {
		oneProcessor()
	}
	synctest.Test(t, run)
}

var oneProcessor = sync.OnceFunc(func() { runtime.GOMAXPROCS(1) })
