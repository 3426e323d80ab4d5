package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// asProgram makes the test binary the program itself.
const asProgram = "REDISLOCK_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		main()
	}
	os.Exit(m.Run())
}

// program is a process that runs the command line.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *strings.Builder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	stderr = new(strings.Builder)
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = stderr
	return cmd, stderr
}

// outcome is what a command line came to.
type outcome struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// noVariables is an empty environment.
func noVariables(string) string { return "" }

func running(ctx context.Context, args ...string) outcome {
	var stdout, stderr strings.Builder
	start := time.Now()
	code := execute(ctx, &environment{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, getenv: noVariables}, args)
	return outcome{code, stdout.String(), stderr.String(), time.Since(start)}
}

func TestUsage(t *testing.T) {
	const list = "\n  demo "
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string // what it holds; "" for nothing at all
	}{
		{args: "", code: 64, stderr: list},
		{args: "help", stdout: list},
		{args: "-h", stdout: list},
		{args: "--help", stdout: list},
		{args: "--version", stdout: "redislock "},
		{args: "help demo", stdout: "--redis URL"},
		{args: "demo -h", stdout: "--redis URL"},
		{args: "demo --help", stdout: "Examples:\n  redislock demo\n"},
		{args: "help exit-codes", stdout: "  69   Redis cannot be reached"},
		{args: "completion bash", stdout: "__start_redislock"},
		{args: "completion fish", stdout: "complete -c redislock"},
		{args: "dmeo", code: 64, stderr: `no subcommand "dmeo"; did you mean "redislock demo"?`},
		{args: "help frobnicate", code: 64, stderr: `no subcommand "frobnicate"; run "redislock help"`},
		{args: "frobnicate", code: 64, stderr: `no subcommand "frobnicate"; run "redislock help"`},
		{args: "--frob", code: 64, stderr: `unknown flag: --frob; run "redislock --help"`},
		{args: "demo --frob", code: 64, stderr: `unknown flag: --frob; run "redislock demo --help"`},
		{args: "demo --redis", code: 64, stderr: `needs an argument: --redis; run "redislock demo --help"`},
		{args: "demo redis://:secret@host", code: 64, stderr: `flags only; run "redislock demo --help"`},
		{args: "demo --redis redis://:se%cret@host", code: 64, stderr: "write it like redis://"},
		{args: "demo --redis redis://user:1/secret@host", code: 64, stderr: "write it like redis://"},
		{args: "demo --redis host:6379", code: 64, stderr: "write it like redis://"},
	} {
		t.Run(test.args, func(t *testing.T) {
			got := running(t.Context(), strings.Fields(test.args)...)
			if got.code != test.code {
				t.Errorf("exit code %d, want %d", got.code, test.code)
			}
			holds(t, "stdout", got.stdout, test.stdout)
			holds(t, "stderr", got.stderr, test.stderr)
			if strings.Contains(got.stderr, "secret") {
				t.Errorf("stderr tells the password: %s", got.stderr)
			}
			if test.args != "" {
				oneLine(t, got.stderr)
			}
		})
	}
}

// holds fails the test if text is without part, or, where part is "", is anything at all.
func holds(t *testing.T, name, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) || (part == "" && text != "") {
		t.Errorf("%s is %q, want %q in it", name, text, part)
	}
}

func oneLine(t *testing.T, stderr string) {
	t.Helper()
	if stderr != "" && strings.Index(stderr, "\n") != len(stderr)-1 {
		t.Errorf("stderr is not one line: %q", stderr)
	}
}

func exitCodeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}
