//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/control"
)

func needRedis(t *testing.T) {
	t.Helper()
	err := redistest.Available()
	switch {
	case err == nil:
	case os.Getenv("REDISLOCK_TEST_REQUIRE") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// build builds the program, without a protection if one is named.
func build(t *testing.T, without string) string {
	t.Helper()
	c := control.Control{Name: "none"}
	if without != "" {
		c = control.All[slices.IndexFunc(control.All, func(c control.Control) bool { return c.Name == without })]
	}
	root, err := control.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program, err := c.Build(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestARunEndsWithAReport(t *testing.T) {
	needRedis(t)
	out := t.TempDir()
	cmd := exec.Command(build(t, ""), "--topology", "one", "--minutes", "0.05", "--round", "4s", "--workers", "3", "--seed", "3",
		"--out", out)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	report, err := os.ReadFile(filepath.Join(out, "report.md"))
	if err != nil || !strings.Contains(string(report), "| one | 1 |") {
		t.Errorf("%v\n%s", err, report)
	}
	if svg, err := os.ReadFile(filepath.Join(out, "timeline.svg")); err != nil || !strings.Contains(string(svg), "</svg>") {
		t.Error(err)
	}
	if rest, _ := filepath.Glob(filepath.Join(out, "round-*")); len(rest) != 0 {
		t.Errorf("histories without a violation are left: %v", rest)
	}
}

func TestAViolationEndsWithOneAndEvidence(t *testing.T) {
	needRedis(t)
	out := t.TempDir()
	cmd := exec.Command(build(t, "release-any-token"), "--topology", "one", "--minutes", "0.05", "--round", "4s", "--workers", "3",
		"--seed", "3", "--out", out)
	printed, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, printed)
	}
	for _, text := range []string{
		"repeat the plan with: go run ./torture --topology one --seed 3 ", " grant at=", "name=Release", "promises were broken",
	} {
		if !strings.Contains(string(printed), text) {
			t.Errorf("the output has no %q", text)
		}
	}
	if rest, _ := filepath.Glob(filepath.Join(out, "round-000", "w*")); len(rest) == 0 {
		t.Error("the histories are gone")
	}
}

func TestAnInterruptLeavesNoProcessBehind(t *testing.T) {
	needRedis(t)
	program := build(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		out := t.TempDir()
		cmd := exec.CommandContext(ctx, program, "--topology", "one", "--out", out)
		cmd.Env = append(os.Environ(), "TMPDIR="+out) // what it starts has this in its command
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "workers are there", func() bool { return len(running(t, out)) >= 7 })
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if sig == syscall.SIGINT && cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("exit code %d", cmd.ProcessState.ExitCode())
		}
		eventually(t, "nothing is left after "+sig.String(), func() bool { return len(running(t, out)) == 0 })
	}
}

// running returns the commands of all processes that mention a text.
func running(t *testing.T, text string) (found []string) {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, text) && !strings.Contains(line, "--out") {
			found = append(found, line)
		}
	}
	return found
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !check(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
