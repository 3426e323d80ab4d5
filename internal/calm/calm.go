// Package calm runs specs that wait for real time, on machines that may be busy. It knows nothing about Redis.
package calm

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

const (
	// attempts is how often a spec runs at most.
	attempts = 3

	// sample is the interval at which the watch looks at the clock, and busy is by how much a look must be late.
	sample = 5 * time.Millisecond
	busy   = 40 * time.Millisecond
)

// RunSpecs is [ginkgo.RunSpecs], except that it runs a spec that has failed again, and then says so, if the machine was
// too busy for it: if a goroutine that only sleeps was woken late meanwhile. Only the last attempt counts. A spec that
// fails on a calm machine has failed.
func RunSpecs(t *testing.T, name string, config types.SuiteConfig, reporter types.ReporterConfig) bool {
	t.Helper()
	w := &watch{}
	over := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() { w.run(over) })
	defer ended.Wait()
	defer close(over)
	config.FlakeAttempts = attempts
	ginkgo.BeforeEach(func() {
		late := w.reset()
		spec := ginkgo.CurrentSpecReport()
		if spec.NumAttempts == 1 {
			return
		}
		if late < busy {
			ginkgo.Fail("it has failed before, on a calm machine")
		}
		fmt.Printf("\nagain, because the machine was %v late: %s\n", late.Round(time.Millisecond), spec.FullText())
	})
	return ginkgo.RunSpecs(t, name, config, reporter)
}

// watch looks at the clock again and again.
type watch struct {
	mu   sync.Mutex    // protects the fields below
	due  time.Time     // when the next look is due
	late time.Duration // by how much the most overdue look was late, since the last reset
}

// run watches until over is closed.
func (w *watch) run(over <-chan struct{}) {
	for {
		w.look()
		select {
		case <-over:
			return
		case <-time.After(sample):
		}
	}
}

// look notes how late it is, and when the next look is due.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.due.IsZero() {
		w.late = max(w.late, now.Sub(w.due))
	}
	w.due = now.Add(sample)
}

// reset returns by how much the most overdue look was late since the last reset. It counts one that is still due.
func (w *watch) reset() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.late
	if !w.due.IsZero() {
		late = max(late, time.Since(w.due))
	}
	w.late = 0
	return late
}
