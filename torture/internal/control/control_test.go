package control_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/torture/internal/control"
	"github.com/redislock/redislock/torture/internal/plan"
)

const root = "../../.."

func TestEveryControlApplies(t *testing.T) {
	names := map[string]bool{}
	for _, c := range control.All {
		files, err := c.Apply(root)
		if err != nil {
			t.Error(err)
		}
		for name, text := range files {
			before, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || string(before) == text {
				t.Errorf("%s does not change %s (%v)", c.Name, name, err)
			}
		}
		if names[c.Name] || c.Off == "" || len(c.Edits) == 0 || len(c.Checks) == 0 || plan.Menu(c.Topology) == nil {
			t.Errorf("control %q is named twice, or says too little", c.Name)
		}
		names[c.Name] = true
		for _, name := range c.Checks {
			if !slices.Contains(check.All, name) {
				t.Errorf("control %s expects the check %q, which does not exist", c.Name, name)
			}
		}
	}
	if len(names) < 12 {
		t.Errorf("there are only %d controls", len(names))
	}
}

// A check that no control proves to work could be one that never fails.
func TestEveryCheckHasAControl(t *testing.T) {
	for _, name := range check.All {
		if !slices.ContainsFunc(control.All, func(c control.Control) bool { return slices.Contains(c.Checks, name) }) {
			t.Errorf("no control expects the check %s", name)
		}
	}
}

func TestAControlThatDoesNotApplyFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, fits := range map[string]bool{"one": true, "two": false, "three": false} {
		c := control.Control{Name: "c", Edits: []control.Edit{{File: "a.go", Old: old, New: "x"}}}
		if _, err := c.Apply(dir); (err == nil) != fits {
			t.Errorf("replacing %q: %v", old, err)
		}
	}
	if _, err := (control.Control{Edits: []control.Edit{{File: "b.go"}}}).Apply(dir); err == nil {
		t.Error("a file that does not exist was changed")
	}
}
