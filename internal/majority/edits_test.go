package majority

import (
	"os"
	"os/exec"
	"testing"

	"github.com/redislock/redislock/internal/testing/overlay"
)

// A rule is one that the owner of a Lock follows, here its driver. Such rules can be switched off.
type rule int

const (
	ownToken       rule = 1 << iota // 1
	fromSending                     // 2
	abandoned                       // 6a
	limits                          // 7
	keepsWhileHeld                  // 10
	freesLate                       // 10b
)

// A without is how to do without a rule: a rule of the driver is switched off, one of the package is edited out of lock.go.
type without struct {
	off      rule
	old, new string // old must stand in lock.go once
}

func off(r rule) without                { return without{off: r} }
func edit(old, replaced string) without { return without{old: old, new: replaced} }

// edits returns this package without some rules.
func edits(rules []without) (map[string]string, error) {
	var all []overlay.Edit
	for _, r := range rules {
		if r.old != "" {
			all = append(all, overlay.Edit{File: "lock.go", Old: r.old, New: r.new})
		}
	}
	return overlay.Apply(".", all)
}

// edited is the variable that tells a test which rules were edited out of the package that it was built with.
const edited = "REDISLOCK_TEST_EDITED"

// rebuilt runs a test of this package again, built without some rules, which have these names.
func rebuilt(t *testing.T, rules []without, names, run string) (output string, err error) {
	t.Helper()
	files, err := edits(rules)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := overlay.Write(here, t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-v", "-overlay="+replaced, "-run="+run, ".")
	cmd.Env = append(os.Environ(), edited+"="+names)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
