//go:build unix

package calm_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/redislock/redislock/internal/testing/calm"
)

// stopVariable says, in the environment of a process, that the spec stops it for a while before it fails.
const stopVariable = "CALM_TEST_STOP"

// reason is the message of the first failure.
const reason = "this is the first time"

func TestASpecThatFailsIsRepeatedOnlyOnABusyMachine(t *testing.T) {
	if stop, inside := os.LookupEnv(stopVariable); inside {
		runFailingSpec(t, stop == "1")
		return
	}
	for _, c := range []struct {
		name, stop string
		passes     bool
		says       string
	}{
		{"busy", "1", true, "again, because the machine was "},
		{"calm", "0", false, "it has failed before, on a calm machine: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.TrimSuffix(t.Name(), "/"+c.name)+"$")
			cmd.Env = append(os.Environ(), stopVariable+"="+c.stop)
			output, err := cmd.CombinedOutput()
			if c.stop == "0" && strings.Contains(string(output), "again, because") {
				t.Skip("this machine is busy")
			}
			if (err == nil) != c.passes || !strings.Contains(string(output), c.says) ||
				!strings.Contains(string(output), reason) {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// runFailingSpec runs a spec that fails the first time, after the process was stopped if stop is true.
func runFailingSpec(t *testing.T, stop bool) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	failed := false
	ginkgo.It("fails the first time", func(ctx ginkgo.SpecContext) {
		if failed {
			return
		}
		failed = true
		if stop {
			script := "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID"
			gomega.Expect(exec.CommandContext(ctx, "sh", "-c", script).Run()).To(gomega.Succeed())
		}
		ginkgo.Fail(reason)
	})
	config, reporter := ginkgo.GinkgoConfiguration()
	calm.RunSpecs(t, "calm", config, reporter)
}
