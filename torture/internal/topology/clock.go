package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redislock/redislock/torture/internal/plan"
)

// wallClock moves the wall clock of a server, through Debian's libfaketime.
type wallClock struct {
	file string // which libfaketime reads at each look at the clock

	mu     sync.Mutex // protects the fields below
	offset float64    // s
}

// library returns where libfaketime is, or "".
func library() string {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// CanMoveClocks reports whether libfaketime is installed.
func CanMoveClocks() bool { return library() != "" }

// newWallClock returns a clock and the environment of a server that has it, or nothing if there is no libfaketime.
func newWallClock() (*wallClock, []string, error) {
	lib := library()
	if lib == "" {
		return nil, nil, nil
	}
	dir, err := os.MkdirTemp("", "torture-clock-")
	if err != nil {
		return nil, nil, err
	}
	c := &wallClock{file: filepath.Join(dir, "offset")}
	if err := c.set(0, 1); err != nil {
		return nil, nil, err
	}
	return c, []string{
		"LD_PRELOAD=" + lib, "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}, nil
}

// set makes the clock run at a speed, ahead by an offset. libfaketime counts the time that a speed applies to from the start
// of the process, so a speed comes with a jump of its own; it is small for one near 1.
func (c *wallClock) set(offset, speed float64) error {
	text := fmt.Sprintf("%+.3f", offset)
	if speed != 1 {
		text += fmt.Sprintf(" x%.4f", speed)
	}
	whole := c.file + ".new"
	if err := os.WriteFile(whole, []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(whole, c.file) // so that nobody reads half of it
}

func (c *wallClock) inject(_ context.Context, f plan.Fault) (Harm, error) {
	if c == nil {
		return Harm{}, errors.New("libfaketime is not installed")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	step := (500*time.Millisecond + f.Delay).Seconds()
	switch f.Kind {
	case plan.ClockForward:
		c.offset += step
		return harm(true), c.set(c.offset, 1)
	case plan.ClockBack:
		c.offset -= step
		return Harm{}, c.set(c.offset, 1)
	}
	return Harm{}, fmt.Errorf("the clock has no fault %q", f.Kind)
}
