package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

func TestOutputThatNobodyReads(t *testing.T) {
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

// A write to a server that has closed its connection causes SIGPIPE too.
func TestBrokenConnection(t *testing.T) {
	cmd := new(cobra.Command)
	cmd.SetContext(t.Context())
	err := cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		conn, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		accepted, err := server.Accept()
		if err != nil {
			return err
		}
		_ = accepted.Close()
		for range 100 {
			if _, err = conn.Write([]byte("PING\r\n")); errors.Is(err, syscall.EPIPE) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		select {
		case <-ctx.Done():
			t.Errorf("%v: ctx has ended: %v", err, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
		return cli.Unavailablef("asking Redis: %w", err)
	})(cmd, nil)
	if code := cli.CodeOf(err); code != cli.Unavailable {
		t.Errorf("exit code %d: %v", code, err)
	}
}
