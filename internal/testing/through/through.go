// Package through runs the specs of the library through a client of Redis that a module has an adapter for.
package through

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/overlay"
	"github.com/redislock/redislock/internal/testing/race"
)

// file is the file in the root that names the suite of an adapter, and in testdata of a module the one to put in its place.
const file = "through_test.go"

// Specs runs a suite of the specs in the root that testdata/through_test.go of the module adds. The module stands in a
// directory of the root, and in a workspace with it: elsewhere, the test is skipped.
func Specs(t *testing.T, suite string) {
	t.Helper()
	need.Server(t)
	module, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(module)
	if _, err := os.Stat(filepath.Join(root, "go.work")); err != nil || os.Getenv("GOWORK") == "off" {
		t.Skip("the library and its modules are no workspace here")
	}
	text, err := os.ReadFile(filepath.Join(module, "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := overlay.Write(root, t.TempDir(), map[string]string{file: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-overlay", replaced, "-run", "^TestSpecs$/^" + suite + "$", "-count=1", "-timeout=10m"}
	if race.Enabled {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, ".")...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
