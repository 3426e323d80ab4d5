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
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Patience says how long a command waits, and how much it says meanwhile.
type Patience struct {
	Limit   time.Duration // counts if Limited; 0: do not wait
	Limited bool          // false: wait for ever

	Quiet, Verbose bool

	// Say tells the user who is in the way; nil for a line on stderr.
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

func (p *Patience) complain(target *connect.Target, err error) {
	target.Complain(fmt.Errorf("waiting for Redis: %w", p.Unreachable(context.Background(), target, err)))
}

const (
	firstWord   = 300 * time.Millisecond // a shorter wait is not worth a word
	shortestGap = 2 * time.Second        // between two lines; it doubles
	longestGap  = time.Minute
)

// Teller says who is in the way after a moment, and again, less and less often, when that has changed. It also says when
// Redis goes away. It belongs to one goroutine.
type Teller struct {
	say  func(*redislock.RefusedError) // nil: nobody wants to know
	fail func(error)

	began time.Time
	next  time.Time // when to speak again at the earliest
	gap   time.Duration
	told  redislock.RefusedError // what was said last
	spoke bool
	away  bool // the last look has failed, and that was said
}

// speaks reports whether to say what keeps the command waiting: at a terminal, or with --verbose.
func (p *Patience) speaks(target *connect.Target) bool {
	return !p.Quiet && (p.Verbose || term.Is(target.Stderr))
}

// NewTeller returns the Teller for a wait that begins now.
func (p *Patience) NewTeller(target *connect.Target) *Teller {
	now := time.Now()
	t := &Teller{say: p.Say, began: now, next: now.Add(firstWord), gap: shortestGap}
	t.fail = func(err error) { p.complain(target, err) }
	if t.say == nil && p.speaks(target) {
		t.say = func(e *redislock.RefusedError) {
			what := "waiting for " + term.Escape(e.Key)
			if e.Closed > 0 {
				what = "waiting"
			}
			target.Complain(errors.New(what + ": " + show.InTheWay(e)))
		}
	}
	return t
}

// See notes who is in the way now.
func (t *Teller) See(e *redislock.RefusedError) {
	now := time.Now()
	same := !t.away && e.Key == t.told.Key && e.Token == t.told.Token && e.Ahead == t.told.Ahead
	if t.say == nil || now.Before(t.next) || t.spoke && same {
		return
	}
	t.say(e)
	t.told, t.spoke, t.away = *e, true, false
	t.rest()
}

// Miss notes that nobody knows who is in the way, because Redis did not answer.
func (t *Teller) Miss(err error) {
	if t.say == nil || t.away || time.Now().Before(t.next) {
		return
	}
	t.fail(err)
	t.spoke, t.away = true, true
	t.rest()
}

// rest puts off the next line.
func (t *Teller) rest() { t.next, t.gap = time.Now().Add(t.gap), min(2*t.gap, longestGap) }

// look finds out who is in the way; nil if nobody is.
type look func(context.Context) (*redislock.RefusedError, error)

// watch looks again and again, until ctx ends.
func (t *Teller) watch(ctx context.Context, look look) {
	if t.say == nil {
		return
	}
	for {
		select {
		case <-time.After(max(time.Until(t.next), 0)):
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, time.Second)
		e, err := look(asking)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Miss(err)
		case e != nil:
			t.See(e)
		}
		if now := time.Now(); t.next.After(now) { // that was said
			continue
		} else if t.next = now.Add(firstWord); t.spoke { // looking costs the server something
			t.rest()
		}
	}
}
