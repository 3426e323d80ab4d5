package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// A write to a closed pipe fails at once, and SIGPIPE arrives in another goroutine: a command may return before it.
func TestClosedPipeBeforeItsSignal(t *testing.T) {
	closed := &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
	for name, test := range map[string]struct {
		err    error
		code   int
		silent bool
	}{
		"nothing more to say":     {closed, 141, true},
		"something more to say":   {fmt.Errorf("%w; no key is left behind", closed), 141, false},
		"another error of a file": {&fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}, 1, false},
		"a broken connection":     {fmt.Errorf("asking Redis: %w", syscall.EPIPE), 1, false},
	} {
		cmd := new(cobra.Command)
		cmd.SetContext(t.Context())
		err := cli.UntilSignal(func(context.Context, *cobra.Command, []string) error { return test.err })(cmd, nil)
		if code := cli.CodeOf(err); code != test.code {
			t.Errorf("%s: exit code %d, want %d", name, code, test.code)
		}
		if silent := !errors.Is(err, test.err); silent != test.silent {
			t.Errorf("%s: silent is %t", name, silent)
		}
	}
}
