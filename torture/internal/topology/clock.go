package topology

import (
	"context"
	_ "embed" // for the library
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/redislock/redislock/torture/internal/plan"
)

//go:embed clock.c.txt
var clockSource string

// CanMoveClocks reports whether the wall clock of a server can be moved: on Linux, with a C compiler.
func CanMoveClocks() bool {
	_, err := exec.LookPath("cc")
	return runtime.GOOS == "linux" && err == nil
}

// wallClock is the wall clock of a server. The library clock.c.txt moves it, by LD_PRELOAD. libfaketime cannot change the
// speed of a clock without a jump.
type wallClock struct {
	dir string

	mu     sync.Mutex // protects the fields below
	number uint64
	from   time.Time
	shows  time.Time
	speed  float64
}

// newWallClock returns a clock, and the environment for its server. It returns nil if clocks cannot be moved.
func newWallClock() (*wallClock, []string, error) {
	if !CanMoveClocks() {
		return nil, nil, nil
	}
	dir, err := os.MkdirTemp("", "torture-clock-")
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	c := &wallClock{dir: dir, from: now, shows: now, speed: 1}
	source, library, file := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		return nil, nil, errors.Join(err, c.close())
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cc: %w\n%s", err, out), c.close())
	}
	if err := c.write(); err != nil {
		return nil, nil, errors.Join(err, c.close())
	}
	return c, []string{"LD_PRELOAD=" + library, "TORTURE_CLOCK=" + file}, nil
}

func (c *wallClock) close() error {
	if c == nil {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// write passes the state to the library. During the write, the number is odd, and the library waits.
func (c *wallClock) write() error {
	file, err := os.OpenFile(filepath.Join(c.dir, "clock"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	order := binary.NativeEndian
	fields := order.AppendUint64(nil, uint64(c.from.UnixNano()))
	fields = order.AppendUint64(fields, uint64(c.shows.UnixNano()))
	fields = order.AppendUint64(fields, math.Float64bits(c.speed))
	number := func(n uint64) error {
		_, err := file.WriteAt(order.AppendUint64(nil, n), 0)
		return err
	}
	if err := number(c.number + 1); err != nil {
		return err
	}
	if _, err := file.WriteAt(fields, 8); err != nil {
		return err
	}
	c.number += 2
	return number(c.number)
}

// move sets the clock forward or back, and sets its speed.
func (c *wallClock) move(by time.Duration, speed float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	shown := c.shows.Add(time.Duration(float64(now.Sub(c.from)) * c.speed))
	c.from, c.shows, c.speed = now, shown.Add(by), speed
	return c.write()
}

// fast is a speed within the 1 % by which clocks may differ.
const fast = 1.009

func (c *wallClock) inject(ctx context.Context, f plan.Fault) (Harm, error) {
	if c == nil {
		return Harm{}, errors.New("clocks cannot be moved here")
	}
	step := 200*time.Millisecond + f.Delay
	switch f.Kind {
	case plan.ClockForward: // keys expire early
		return harm(true), c.move(step, 1)
	case plan.ClockBack: // keys live longer
		return Harm{}, c.move(-step, 1)
	case plan.ClockDrift:
		if err := c.move(0, fast); err != nil {
			return Harm{}, err
		}
		wait(ctx, f.For)
		return Harm{}, c.move(0, 1)
	}
	return Harm{}, fmt.Errorf("a clock has no fault %q", f.Kind)
}
