// Package calm runs specs that wait for real time, on machines that may be busy. It knows nothing about Redis.
package calm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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

	// crowded is the part of the last ten seconds, in percent, from which on the machine was too busy if something waited
	// for a processor.
	crowded = 25
)

// RunSpecs is [ginkgo.RunSpecs], except that it runs a spec that has failed again, and then says so, if the machine was
// too busy for it: if a goroutine that only sleeps was woken late meanwhile, or if Linux says that processors were short.
// The goroutine alone would not notice that, because the scheduler prefers those who sleep to those who work. Only the
// last attempt counts. A spec that fails on a calm machine has failed.
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
		waited := pressure()
		before := failure(spec)
		if late < busy && waited < crowded {
			ginkgo.Fail("it has failed before, on a calm machine: " + before)
		}
		fmt.Printf("\nagain, because the machine was %v late, and short of processors for %.0f %% of ten seconds: %s\n%s\n",
			late.Round(time.Millisecond), waited, spec.FullText(), before)
	})
	return ginkgo.RunSpecs(t, name, config, reporter)
}

// failure says how the attempt before this one failed, and where. Ginkgo shows that only if it is verbose.
func failure(spec ginkgo.SpecReport) string {
	if len(spec.AdditionalFailures) == 0 {
		return "Ginkgo does not say how"
	}
	last := spec.AdditionalFailures[len(spec.AdditionalFailures)-1].Failure
	return fmt.Sprintf("%s\n%s", last.Message, last.Location)
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

// pressure returns for which part of the last ten seconds, in percent, something on this machine waited for a processor.
// It returns 0 where the system does not tell. Linux brings the figure up to date every two seconds.
func pressure() float64 {
	text, _ := os.ReadFile("/proc/pressure/cpu") // some avg10=‹percent› avg60=…
	_, rest, _ := strings.Cut(string(text), "some avg10=")
	number, _, _ := strings.Cut(rest, " ")
	percent, _ := strconv.ParseFloat(number, 64)
	return percent
}
