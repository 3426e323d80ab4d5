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
			target.Complain(errors.New("waiting for " + term.Escape(e.Key) + ": " + show.InTheWay(e)))
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
