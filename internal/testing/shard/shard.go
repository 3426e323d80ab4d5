// Package shard runs the specs of a package in several processes side by side: ginkgo runs the specs of a process one after
// the other, and specs that wait in real time would wait one after the other. It knows nothing about Redis.
//
// The process that go test starts runs no spec. It starts a process for each suite. A suite that waits gets more processes
// while what is left would take long. Each of its processes goes through all specs of the suite, and runs those that it is
// the first to claim. So none of them ends much later than the others, and no list of durations is kept.
//
//	go test ──► quorums ──► process 1   spec 1, spec 2,         spec 4, …
//	       │           └──► process 2                   spec 3,         …
//	       └──► others ───► process 1   …
package shard

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/redislock/redislock/internal/testing/race"
)

// Suites are the suites of a package, by name.
type Suites map[string]Suite

// Suite is a part of the specs of a package.
type Suite struct {
	// Labels is the filter, in the language of ginkgo, that selects its specs; "" selects all.
	Labels string

	// FakeTime says that its specs work, and do not wait. They have one process, which gives way to others where there is a
	// nice command.
	FakeTime bool
}

// Run runs the specs of a suite in this process. [RunSpecs] is one.
type Run func(t *testing.T, suite string, config types.SuiteConfig, reporter types.ReporterConfig)

// RunSpecs is [ginkgo.RunSpecs].
func RunSpecs(t *testing.T, suite string, config types.SuiteConfig, reporter types.ReporterConfig) {
	t.Helper()
	ginkgo.RunSpecs(t, suite, config, reporter)
}

// While a suite has specs that no process has begun, and they would take longer than goal at the present pace, the suite
// gets one more process each interval.
var (
	goal     = 10 * time.Second
	interval = 250 * time.Millisecond
)

const startup = 300 * time.Millisecond // of a process, until its first spec

// These variables tell such a process the name of its suite, and the directory of the claims if there can be others.
const (
	suiteVariable  = "REDISLOCK_TEST_SUITE"
	claimsVariable = "REDISLOCK_TEST_CLAIMS"
)

// Name returns the name of the suite whose specs this process runs, and "" in the process that starts them.
func Name() string { return os.Getenv(suiteVariable) }

// Most is how many processes a package may have at the same time. They wait more than they work, under the race detector
// less so, and go test runs as many packages at the same time as there are processors.
var Most = func() int {
	if race.Enabled {
		return 2 + 2*runtime.GOMAXPROCS(0)
	}
	return 4 + 4*runtime.GOMAXPROCS(0)
}()

// Run starts this test once more for each suite that has a spec to run, in processes of their own, most of them at the same
// time, and shows what they have printed. In such a process, it calls run instead.
func (s Suites) Run(t *testing.T, most int, run Run) {
	t.Helper()
	if suite := Name(); suite != "" {
		s.runHere(t, suite, run)
		return
	}
	t.Parallel()
	room := make(chan struct{}, most)
	var wait sync.WaitGroup
	for name, units := range s.units(t) {
		wait.Go(func() { // and not t.Parallel, which would start no more than there are processors
			t.Run(name, func(t *testing.T) { s[name].share(t, name, units, room) })
		})
	}
	wait.Wait()
}

// runHere runs the specs of a suite that this process is the first to claim.
func (s Suites) runHere(t *testing.T, suite string, run Run) {
	config, reporter := ginkgo.GinkgoConfiguration()
	if labels := s[suite].Labels; config.LabelFilter == "" {
		config.LabelFilter = labels
	} else if labels != "" {
		config.LabelFilter = "(" + config.LabelFilter + ") && " + labels
	}
	if dir := os.Getenv(claimsVariable); dir != "" {
		reporter.SilenceSkips = true
		taken := newClaims(dir)
		ginkgo.BeforeEach(func() {
			if !taken.claim(ginkgo.CurrentSpecReport()) {
				ginkgo.Skip(Elsewhere)
			}
		})
	}
	run(t, suite, config, reporter)
}

// units returns, for each suite that has a spec to run, how many units it has.
func (s Suites) units(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	specs := ginkgo.PreviewSpecs(t.Name()).SpecReports
	for name, suite := range s {
		selects, err := types.ParseLabelFilter(suite.Labels)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		of := unitNames{}
		for _, spec := range specs {
			if spec.LeafNodeType == types.NodeTypeIt && spec.State != types.SpecStateSkipped && selects(spec.Labels()) {
				names[of.unit(spec)] = true
			}
		}
		if len(names) > 0 {
			found[name] = len(names)
		}
	}
	return found
}

// share runs a suite of that many units in as many processes as it needs, while there is room. A process that ends has left
// none unclaimed, so no further one is needed then, whatever has become of it.
func (s Suite) share(t *testing.T, name string, units int, room chan struct{}) {
	claims := ""
	if !s.FakeTime && cap(room) > 1 && units > 1 {
		claims = t.TempDir()
	}
	ended, end := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	begin := func(n int) {
		processes.Go(func() {
			defer func() { <-room }()
			defer end()
			s.start(t, name, n, claims)
		})
	}
	room <- struct{}{}
	begin(1)
	for begun := []time.Time{time.Now()}; ; {
		select {
		case <-ended.Done():
			processes.Wait()
			config, _ := ginkgo.GinkgoConfiguration()
			// A spec that is tried again claims another unit.
			if claims != "" && !config.DryRun && !t.Failed() && claimed(t, claims) < units {
				t.Errorf("only %d of %d specs have begun", claimed(t, claims), units)
			}
			return
		case <-time.After(interval):
		}
		if claims != "" && late(begun, claimed(t, claims), units, goal) {
			select {
			case room <- struct{}{}:
				begun = append(begun, time.Now())
				begin(len(begun))
			default:
			}
		}
	}
}

// late reports whether processes that began then, and have claimed so many units, need more than goal for the rest.
func late(begun []time.Time, claimed, units int, goal time.Duration) bool {
	spent := time.Duration(0)
	for _, began := range begun {
		spent += max(0, time.Since(began)-startup)
	}
	n := float64(len(begun))
	done := float64(claimed) - n/2 // those under way are half done
	left := float64(units-claimed) * spent.Seconds() / done
	return done > 0 && left > n*goal.Seconds()
}

// Apart runs a test in a process of its own, so that it does not wait for the others, and returns true. In that process it
// returns false, and the test goes on.
func Apart(t *testing.T) bool {
	t.Helper()
	if Name() != "" {
		return false
	}
	Suite{}.start(t, t.Name(), 1, "")
	return true
}

// start runs a suite in a process of its own, the n-th, and shows what that has printed.
func (s Suite) start(t *testing.T, suite string, n int, claims string) {
	test, _, _ := strings.Cut(t.Name(), "/")
	args := []string{"-test.run=^" + test + "$"}
	for _, arg := range os.Args[1:] {
		switch {
		case strings.HasPrefix(arg, "-test.timeout="), strings.HasPrefix(arg, "-test.v="), strings.HasPrefix(arg, "-test.short="):
		case strings.HasPrefix(arg, "-test."):
			continue
		case strings.Contains(arg, "-report="):
			arg += "." + suite // a file for each
			if n > 1 {
				arg += "." + strconv.Itoa(n)
			}
		}
		args = append(args, arg)
	}
	command := append([]string{os.Args[0]}, args...)
	if nice, err := exec.LookPath("nice"); s.FakeTime && err == nil {
		command = append([]string{nice, "-n", "5"}, command...)
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), suiteVariable+"="+suite, claimsVariable+"="+claims)
	output, err := cmd.CombinedOutput()
	t.Logf("\n%s", output)
	if err != nil {
		t.Error(err)
	}
}
