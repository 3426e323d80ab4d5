package locking

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

// Obstacles are what keeps a command waiting.
type Obstacles struct {
	Blocked  []*redislock.RefusedError // one for each key that is in the way; or one alone, for a closed guard
	Asked    time.Time                 // when Redis was asked for them
	Position int                       // in line, 1 for the first; 0 if that is unknown, or the command is in no line
}

// Teller tells the user what keeps a command waiting. Its methods are called from one goroutine.
type Teller interface {
	See(Obstacles)    // notes what is in the way now
	Miss(error)       // notes that nobody knows, because Redis did not answer
	End(granted bool) // ends the wait; granted: the locks are acquired

	next() time.Time // when to look again
}

const (
	firstWord   = 300 * time.Millisecond // a shorter wait is not worth a word
	shortestGap = 2 * time.Second        // between two messages; it doubles
	longestGap  = time.Minute
)

// NewTeller returns the Teller for a wait that begins now. The caller calls its End.
func (p *Patience) NewTeller(target *connect.Target) Teller {
	tty, _ := target.Stderr.(*os.File)
	now := time.Now()
	switch {
	case p.Say == nil && !p.speaks(target):
		return silent{}
	case p.Say == nil && term.Is(tty) && target.Getenv("TERM") != "dumb":
		return &liveLine{patience: p, target: target, tty: tty, began: now, renewals: renewals{}}
	}
	m := &messages{say: p.Say, began: now, due: now.Add(firstWord), gap: shortestGap}
	m.fail = func(err error) { p.complain(target, err) }
	if m.say == nil {
		m.say = func(e *redislock.RefusedError) {
			what := "waiting for " + words.Escape(e.Key)
			if e.Closed > 0 {
				what = "waiting"
			}
			target.Complain(errors.New(what + ": " + show.InTheWay(e)))
		}
		m.granted = func(wait time.Duration) { target.Complain(acquiredAfter(wait)) }
	}
	return m
}

func acquiredAfter(wait time.Duration) error {
	return fmt.Errorf("acquired after %s", words.Duration(wait))
}

// silent is the Teller of a command that says nothing.
type silent struct{}

func (silent) See(Obstacles)   {}
func (silent) Miss(error)      {}
func (silent) End(bool)        {}
func (silent) next() time.Time { return time.Now().Add(time.Hour) }

// messages says who is in the way after a moment, and again, less and less often, when that has changed. It also says when
// Redis goes away.
type messages struct {
	say     func(*redislock.RefusedError)
	fail    func(error)
	granted func(wait time.Duration) // nil: nobody wants to know

	began time.Time
	due   time.Time // when to speak again at the earliest
	gap   time.Duration
	told  redislock.RefusedError // what was said last
	spoke bool
	away  bool // the last look has failed, and that was said
}

func (m *messages) See(o Obstacles) {
	if len(o.Blocked) == 0 {
		return
	}
	e, now := o.Blocked[0], time.Now()
	same := !m.away && e.Key == m.told.Key && e.Token == m.told.Token && e.Ahead == m.told.Ahead &&
		slices.Equal(e.Waits, m.told.Waits)
	if now.Before(m.due) || m.spoke && same {
		return
	}
	m.say(e)
	m.told, m.spoke, m.away = *e, true, false
	m.rest()
}

func (m *messages) Miss(err error) {
	if m.away || time.Now().Before(m.due) {
		return
	}
	m.fail(err)
	m.spoke, m.away = true, true
	m.rest()
}

func (m *messages) End(granted bool) {
	if granted && m.spoke && m.granted != nil {
		m.granted(time.Since(m.began))
	}
}

func (m *messages) next() time.Time {
	if now := time.Now(); !m.due.After(now) { // the last look had no news
		if m.due = now.Add(firstWord); m.spoke { // looking costs the server something
			m.rest()
		}
	}
	return m.due
}

// rest puts off the next message.
func (m *messages) rest() { m.due, m.gap = time.Now().Add(m.gap), min(2*m.gap, longestGap) }

// look finds out what is in the way, perhaps nothing.
type look func(context.Context) (Obstacles, error)

// watch looks again and again, until ctx ends, and tells what it sees.
func watch(ctx context.Context, t Teller, look look) {
	for {
		select {
		case <-time.After(time.Until(t.next())):
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, time.Second)
		asked := time.Now()
		o, err := look(asking)
		o.Asked = asked
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Miss(err)
		default:
			t.See(o)
		}
	}
}
