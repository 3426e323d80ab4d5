package calm

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// Suites are processes that run the specs of a package side by side: ginkgo runs one suite in a process, and its specs one
// after the other. Each has the specs whose labels the filter under its name selects.
type Suites map[string]string

// RunSuite runs the specs of a suite in this process. [RunSpecs] is one.
type RunSuite func(t *testing.T, suite string, config types.SuiteConfig, reporter types.ReporterConfig) bool

// suiteVariable names, in the environment of such a process, the suite that it runs.
const suiteVariable = "REDISLOCK_TEST_SUITE"

// Run starts this test once more for each suite that has a spec to run, in a process of its own, and shows what it has
// printed: all of them at once if together is true, since they wait more than they work. In such a process, it calls run
// instead.
func (s Suites) Run(t *testing.T, together bool, run RunSuite) {
	t.Helper()
	if suite := os.Getenv(suiteVariable); suite != "" {
		config, reporter := ginkgo.GinkgoConfiguration()
		if config.LabelFilter != "" {
			config.LabelFilter = "(" + config.LabelFilter + ") && "
		}
		config.LabelFilter += s[suite]
		run(t, suite, config, reporter)
		return
	}
	t.Parallel()
	var wait sync.WaitGroup
	for _, suite := range s.withSpecs(t) {
		wait.Go(func() { // and not t.Parallel, which would start no more than there are processors
			t.Run(suite, func(t *testing.T) { start(t, suite) })
		})
		if !together {
			wait.Wait()
		}
	}
	wait.Wait()
}

// withSpecs returns the suites that have a spec to run.
func (s Suites) withSpecs(t *testing.T) []string {
	t.Helper()
	specs := ginkgo.PreviewSpecs(t.Name()).SpecReports
	var found []string
	for suite, labels := range s {
		selects, err := types.ParseLabelFilter(labels)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(specs, func(spec types.SpecReport) bool {
			return spec.State != types.SpecStateSkipped && selects(spec.Labels())
		}) {
			found = append(found, suite)
		}
	}
	return found
}

// Apart runs a test in a process of its own, so that it does not wait for the others, and returns true. In that process it
// returns false, and the test goes on.
func Apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(suiteVariable) != "" {
		return false
	}
	start(t, t.Name())
	return true
}

// start runs a suite in a process of its own.
func start(t *testing.T, suite string) {
	test, _, _ := strings.Cut(t.Name(), "/")
	args := []string{"-test.run=^" + test + "$"}
	for _, arg := range os.Args[1:] {
		switch {
		case strings.HasPrefix(arg, "-test.timeout="), strings.HasPrefix(arg, "-test.v="), strings.HasPrefix(arg, "-test.short="):
		case strings.HasPrefix(arg, "-test."):
			continue
		case strings.Contains(arg, "-report="):
			arg += "." + suite // a file for each
		}
		args = append(args, arg)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), suiteVariable+"="+suite)
	output, err := cmd.CombinedOutput()
	t.Logf("\n%s", output)
	if err != nil {
		t.Fatal(err)
	}
}
