package claim

import (
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const (
	firstWord   = 300 * time.Millisecond // a shorter wait is not worth a word
	shortestGap = 2 * time.Second        // between two lines; it doubles
	longestGap  = time.Minute
)

// Teller says who is in the way: when a wait has lasted for a moment, and again, less and less often, when that has changed.
// It belongs to one goroutine.
type Teller struct {
	say func(*redislock.RefusedError) // nil: nobody wants to know

	began time.Time
	next  time.Time // when to speak again at the earliest
	gap   time.Duration
	told  redislock.RefusedError // what was said last
	spoke bool
}

// speaks reports whether to say what keeps the command waiting: to a person at a terminal, or to whoever asks for it.
func (p *Patience) speaks(target *connect.Target) bool {
	return !p.Quiet && (p.Verbose || term.Is(target.Stderr))
}

// NewTeller returns the Teller for a wait that begins now.
func (p *Patience) NewTeller(target *connect.Target) *Teller {
	now := time.Now()
	t := &Teller{say: p.Say, began: now, next: now.Add(firstWord), gap: shortestGap}
	if t.say == nil && p.speaks(target) {
		t.say = func(e *redislock.RefusedError) {
			target.Complain(errors.New("waiting for " + term.Escape(e.Key) + ": " + show.InTheWay(e)))
		}
	}
	return t
}

// See notes who is in the way now.
func (t *Teller) See(e *redislock.RefusedError) {
	now := time.Now()
	same := e.Key == t.told.Key && e.Token == t.told.Token && e.Ahead == t.told.Ahead
	if t.say == nil || now.Before(t.next) || t.spoke && same {
		return
	}
	t.say(e)
	t.told, t.spoke = *e, true
	t.rest()
}

// rest puts off the next line.
func (t *Teller) rest() { t.next, t.gap = time.Now().Add(t.gap), min(2*t.gap, longestGap) }

// Spoke returns how long the wait has lasted, if anything was said of it.
func (t *Teller) Spoke() (waited time.Duration, ok bool) { return time.Since(t.began), t.spoke }

// watch looks again and again, until ctx ends.
func (t *Teller) watch(ctx context.Context, look func(context.Context) (*redislock.RefusedError, error)) {
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
		if err == nil && e != nil && ctx.Err() == nil {
			t.See(e)
		}
		switch now := time.Now(); {
		case t.next.After(now): // it was told
		case t.spoke: // looking costs the server something
			t.rest()
		default:
			t.next = now.Add(firstWord)
		}
	}
}
