// Package locking acquires locks for the commands that do so, and waits for them: the flags that these commands share, who
// is in the way, a Redis that is away, and the words of a refusal. It does not know what is done under the locks.
package locking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Patience says how long a command waits, and how much it says meanwhile.
type Patience struct {
	Limit   time.Duration // counts if Limited; 0: do not wait
	Limited bool          // false: wait for ever

	Quiet, Verbose bool

	// Say tells the user who is in the way; nil for a message on stderr, or a line that is redrawn there.
	Say func(*redislock.RefusedError)
}

// AddFlags adds --wait, which is also called --timeout, --verbose and --quiet.
func (p *Patience) AddFlags(flags *pflag.FlagSet, wait, quiet string) {
	cli.DurationVar(flags, &p.Limit, "wait", "", 0, wait+"; --timeout is the same")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "timeout" {
			name = "wait"
		}
		return pflag.NormalizedName(name)
	})
	flags.BoolVarP(&p.Verbose, "verbose", "v", false, "say who is in the way, also if stderr is not a terminal")
	flags.BoolVarP(&p.Quiet, "quiet", "q", false, quiet)
}

// Check returns a usage error if the flags cannot be used.
func (p *Patience) Check(flags *pflag.FlagSet) error {
	p.Limited = p.Limited || flags.Changed("wait")
	switch {
	case p.Limit < 0:
		return cli.Usagef("--wait %v is negative; --wait 0 does not wait", p.Limit)
	case p.Quiet && p.Verbose:
		return cli.Usagef("--quiet and --verbose exclude each other")
	}
	return nil
}

// NoWait reports whether the command does not wait.
func (p *Patience) NoWait() bool { return p.Limited && p.Limit == 0 }

// Context returns a ctx that ends when the wait does.
func (p *Patience) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.Limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.Limit)
}

// Open connects to Redis. With a limit, it waits for a Redis that is away. Without one, a wrong address would wait for ever.
func (p *Patience) Open(
	ctx context.Context, target *connect.Target, opts ...redislock.ClientOption,
) (s *connect.Session, err error) {
	err = p.Bear(ctx, target, func() (err error) {
		s, err = target.Open(ctx, opts...)
		return err
	})
	return s, err
}

// Close ends a session. The library gives up its position in line meanwhile. If Redis does not answer, that must not
// exceed a limit: the position expires a few seconds later.
func (p *Patience) Close(s *connect.Session, why error) {
	if p.Limit == 0 {
		s.Close()
	} else if cli.CodeOf(why) != cli.Unavailable { // otherwise the end of the program closes the connections
		Within(200*time.Millisecond, s.Close)
	}
}

// Within calls do in a goroutine, and returns when do has, or after the limit.
func Within(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// longestPause is the longest time between two tries to reach a Redis that is away.
const longestPause = 500 * time.Millisecond

// Bear calls ask. With a limit, it repeats the call while Redis is away, until ctx ends; the error can then be printed.
func (p *Patience) Bear(ctx context.Context, target *connect.Target, ask func() error) error {
	var why error // says more than that nobody answered in time
	told := ""
	for pause := longestPause / 32; ; pause = min(2*pause, longestPause) {
		err := ask()
		if err == nil || p.Limit == 0 || !connect.IsAway(err) {
			return err
		}
		if why == nil || !connect.IsSilent(err) {
			why = err
		}
		if ctx.Err() == nil && pause == longestPause && err.Error() != told && p.speaks(target) {
			told = err.Error()
			p.complain(target, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return p.Unreachable(ctx, target, why)
		}
	}
}

// Unreachable returns the error for a Redis that has failed. If it merely has not answered when ctx ended, it says so.
func (p *Patience) Unreachable(ctx context.Context, target *connect.Target, err error) error {
	if p.Limit > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) && connect.IsSilent(err) {
		return target.Silence(p.Limit)
	}
	if _, explained := errors.AsType[*cli.Error](err); explained {
		return err
	}
	return target.Refusal(err)
}

// speaks reports whether to say what keeps the command waiting: at a terminal, or with --verbose.
func (p *Patience) speaks(target *connect.Target) bool {
	return !p.Quiet && (p.Verbose || term.Is(target.Stderr))
}

func (p *Patience) complain(target *connect.Target, err error) {
	target.Complain(fmt.Errorf("waiting for Redis: %w", p.Unreachable(context.Background(), target, err)))
}
