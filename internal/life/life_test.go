package life_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// lock is an Owner whose replies come from the test. It lasts for a minute.
type lock struct {
	life.Life

	until  time.Time
	events *life.Events
	renews atomic.Bool
}

func (l *lock) Handle() *life.Life        { return &l.Life }
func (l *lock) Names() ([]string, string) { return []string{"a", "b"}, "token" }
func (l *lock) Events() *life.Events      { return l.events }
func (l *lock) ValidUntil() time.Time     { return l.until }
func (l *lock) KnowsTTL() bool            { return true }
func (l *lock) FoundLost() *life.Lost     { return nil }
func (l *lock) StartRenewing() bool       { l.renews.Store(true); return true }
func (l *lock) StopRenewing()             { l.renews.Store(false) }

var errTaken = fmt.Errorf("%w: another holder has it", fault.ErrLockNotHeld)

// Each case is the life of one lock: what happens to it, and then which events its owner gets, what a context says for which
// it was kept alive from the start, and whether the lock is still valid.
func TestEnds(t *testing.T) {
	const refresh, late = "refresh", "a refresh that comes too late"
	for _, c := range []struct {
		steps  []string
		events []string
		cause  error // nil for a context that has not ended
		held   bool
	}{
		{steps: nil, held: true},
		{steps: []string{"half a minute"}, held: true},
		{steps: []string{"a minute"}, events: []string{"lost: lapsed"}, cause: fault.ErrLapsed},
		{steps: []string{"half a minute", refresh, "half a minute"}, held: true},
		{steps: []string{"found lost"}, events: []string{"lost: taken"}, cause: errTaken, held: false},
		{steps: []string{"release"}, events: []string{"released"}, cause: context.Canceled},

		// Each end of a hold is reported once.
		{steps: []string{"found lost", "found lost"}, events: []string{"lost: taken"}, cause: errTaken},
		{steps: []string{"found lost", "a minute"}, events: []string{"lost: taken"}, cause: errTaken},
		{steps: []string{"a minute", "found lost"}, events: []string{"lost: lapsed"}, cause: fault.ErrLapsed},
		{steps: []string{"found lost", "release finds a loss"}, events: []string{"lost: taken", "released again"}, cause: errTaken},
		{steps: []string{"a minute", "release"}, events: []string{"lost: lapsed", "released again"}, cause: fault.ErrLapsed},
		{steps: []string{"release finds a loss"}, events: []string{"lost: taken", "released again"}, cause: context.Canceled},
		{steps: []string{"a minute, unnoticed", "release"}, events: []string{"lost: lapsed", "released again"}, cause: fault.ErrLapsed},
		{steps: []string{"found lost during a release"}, events: []string{"released"}, cause: context.Canceled},
		{steps: []string{"two releases find a loss"}, events: []string{"lost: taken", "released again", "released again"}, cause: context.Canceled},
		{steps: []string{"release", "found lost"}, events: []string{"released"}, cause: context.Canceled},
		{steps: []string{"release", "release finds a loss"}, events: []string{"released", "released again"}, cause: context.Canceled},

		// A refresh that is confirmed in time begins another hold, whose end is reported again.
		{steps: []string{"found lost", refresh}, events: []string{"lost: taken"}, cause: errTaken, held: true},
		{steps: []string{"found lost", refresh, "release"}, events: []string{"lost: taken", "released"}, cause: errTaken, held: false},
		{steps: []string{"found lost", refresh, "found lost"}, events: []string{"lost: taken", "lost: taken"}, cause: errTaken},
		{steps: []string{"found lost", late, "found lost"}, events: []string{"lost: taken"}, cause: errTaken},

		// A released lock stays released.
		{steps: []string{"release", refresh}, events: []string{"released"}, cause: context.Canceled},
		{steps: []string{"release", refresh, "release"}, events: []string{"released", "released again"}, cause: context.Canceled},
	} {
		name := strings.Join(c.steps, ", ")
		bubble.Test(t, func(t *testing.T) {
			var mu sync.Mutex // protects events
			var events []string
			note := func(event string) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, event)
			}
			l := &lock{until: time.Now().Add(time.Minute)}
			l.Since = time.Now()
			l.events = &life.Events{
				Lost: func(_ context.Context, e life.Lost) {
					note("lost: " + []string{"gone", "taken", "lapsed"}[e.Cause])
				},
				Released: func(_ context.Context, e life.Released) {
					if e.Held == 0 { // the end of the hold was reported before
						note("released again")
						return
					}
					note("released")
				},
			}
			ctx, stop := life.KeepAlive(context.Background(), l)
			taken := life.Loss{Cause: life.Taken, Keys: []string{"a"}}
			release := func(err error, during func()) {
				_ = life.Release(context.Background(), l, func(context.Context, time.Time) (life.Loss, error) {
					during()
					return taken, err
				})
			}
			lose := func() {
				l.Mu.Lock()
				event := life.Lose(l, taken, errTaken)
				l.Mu.Unlock()
				l.events.SendLost(context.Background(), event)
				life.Lapse(l)
			}
			for _, step := range c.steps {
				switch step {
				case "half a minute":
					time.Sleep(30 * time.Second)
				case "a minute":
					time.Sleep(time.Minute)
					life.Lapse(l) // as the schedule of renewals does
				case "a minute, unnoticed":
					time.Sleep(time.Minute)
				case "found lost":
					lose()
				case refresh, late:
					l.Mu.Lock()
					if step == refresh {
						l.until = time.Now().Add(time.Minute)
					}
					l.Revive(step == refresh)
					l.Mu.Unlock()
				case "release":
					release(nil, func() {})
				case "release finds a loss":
					release(errTaken, func() {})
				case "found lost during a release":
					release(nil, lose)
				case "two releases find a loss":
					var other sync.WaitGroup
					release(errTaken, func() {
						other.Go(func() { release(errTaken, func() { time.Sleep(time.Second) }) })
						time.Sleep(time.Millisecond)
					})
					other.Wait()
				}
			}
			if !slices.Equal(events, c.events) {
				t.Errorf("%s: the events are %q, want %q", name, events, c.events)
			}
			switch cause := context.Cause(ctx); {
			case c.cause == nil && ctx.Err() != nil, c.cause != nil && !errors.Is(cause, c.cause):
				t.Errorf("%s: the context ended with %v, want %v", name, cause, c.cause)
			case l.renews.Load() != (c.cause == nil):
				t.Errorf("%s: is the lock renewed? %v", name, l.renews.Load())
			}
			l.Mu.Lock()
			held := !l.IsLost() && !l.IsReleased() && time.Now().Before(l.until)
			l.Mu.Unlock()
			if held != c.held {
				t.Errorf("%s: is the lock held? %v", name, held)
			}
			stop()
		})
	}
}

// A caller who asks sees the end of a lock at the exact time, even if nothing else looks at the clock.
func TestKeptContextIsExact(t *testing.T) {
	for name, ended := range map[string]func(context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done":  func(ctx context.Context) bool { return fault.IsClosed(ctx.Done()) },
		"Cause": func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), fault.ErrLapsed) },
	} {
		bubble.Test(t, func(t *testing.T) {
			l := &lock{until: time.Now().Add(time.Minute), events: &life.Events{}}
			ctx, stop := life.KeepAlive(context.Background(), l)
			defer stop()
			if time.Sleep(time.Minute - 1); ended(ctx) {
				t.Errorf("%s: ended too soon", name)
			}
			if time.Sleep(time.Nanosecond); !ended(ctx) {
				t.Errorf("%s: not ended", name)
			}
		})
	}
}

// The lock is renewed while any context needs it.
func TestKeptBySeveral(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &lock{until: time.Now().Add(time.Minute), events: &life.Events{}}
		_, first := life.KeepAlive(context.Background(), l)
		_, second := life.KeepAlive(context.Background(), l)
		first()
		if time.Sleep(time.Nanosecond); !l.renews.Load() || !l.IsKept() {
			t.Error("it is no longer renewed, although a context needs it")
		}
		second()
		if time.Sleep(time.Nanosecond); l.renews.Load() || l.IsKept() {
			t.Error("it is still renewed, although no context needs it")
		}
	})
}
