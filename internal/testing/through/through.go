// Package through runs the specs of the library through a client of Redis that a module has an adapter for.
package through

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/race"
)

// file is the file in the root that names the suite of an adapter, and in testdata of a module the one to put in its place.
const file = "through_test.go"

// Specs runs a suite of the specs in the root, as testdata/through_test.go of the module adds it. The module stands in a
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
	replace := map[string]string{filepath.Join(root, file): filepath.Join(module, "testdata", file)}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-overlay", overlay, "-run", "^TestSpecs$/^" + suite + "$", "-count=1", "-timeout=10m"}
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
