package majority

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// edits returns lock.go without some rules.
func edits(rules []without) (string, error) {
	source, err := os.ReadFile("lock.go")
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, r := range rules {
		if r.old == "" {
			continue
		}
		if n := strings.Count(text, r.old); n != 1 {
			return "", fmt.Errorf("lock.go has %d times, instead of once:\n%s", n, r.old)
		}
		text = strings.Replace(text, r.old, r.new, 1)
	}
	return text, nil
}

// edited is the variable that tells a test which rules were edited out of the package that it was built with.
const edited = "REDISLOCK_TEST_EDITED"

// rebuilt runs a test of this package again, built without some rules, which have these names.
func rebuilt(t *testing.T, rules []without, names, run string) (output string, err error) {
	t.Helper()
	text, err := edits(rules)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	lock, overlay := filepath.Join(folder, "lock.go"), filepath.Join(folder, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "lock.go"): lock}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{lock: []byte(text), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-v", "-overlay="+overlay, "-run="+run, ".")
	cmd.Env = append(os.Environ(), edited+"="+names)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
