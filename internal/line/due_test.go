package line

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/bubble"
)

const ms = time.Millisecond

// deaf is a source through which no message can come.
type deaf struct{}

func (deaf) CanListen() bool { return false }

func (deaf) Listen(context.Context, string, func(bool), func(string)) {}

// newWaiter returns a waiter whose messages come only from the test.
func newWaiter() *Waiter {
	return &Waiter{
		inbox: inbox.New(deaf{}, "test", 0).Join(false), woken: make(chan struct{}, 1), life: leastLife,
		sent: time.Now(), served: 1000,
	}
}

// every is a strategy.
type every time.Duration

func (e every) NextBackoff() time.Duration { return time.Duration(e) }

// A refused waiter tries again when the script says so, or sooner if a message says so.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		wait, life  time.Duration // in the reply
		pace        every
		message     string // after 100 ms
		early       bool   // it comes before the waiter waits
		least, most time.Duration
	}{
		"when a ttl ends":                          {wait: 300 * ms, least: 300 * ms, most: 300 * ms},
		"a sign of life, at a random moment":       {wait: time.Second, least: 750 * ms, most: time.Second},
		"less often where many wait":               {wait: 10 * time.Second, life: 30 * time.Second, least: 7500 * ms, most: 10 * time.Second},
		"when a ttl ends, where many wait":         {wait: 5 * time.Second, life: 30 * time.Second, least: 5 * time.Second, most: 5 * time.Second},
		"its turn":                                 {wait: 300 * ms, message: "-", least: 100 * ms, most: 100 * ms},
		"its turn came before":                     {wait: 300 * ms, message: "-", early: true},
		"the keys are taken until then":            {wait: 300 * ms, message: "after 49", least: 150 * ms, most: 150 * ms},
		"the keys are taken for longer":            {wait: 300 * ms, message: "after 999", least: 300 * ms, most: 300 * ms},
		"the keys are handed over":                 {wait: 300 * ms, message: "granted 2000 7", least: 100 * ms, most: 100 * ms},
		"words that nobody knows":                  {wait: 300 * ms, message: "hello", least: 100 * ms, most: 100 * ms},
		"a strategy counts where none can come":    {wait: 300 * ms, pace: every(50 * ms), least: 50 * ms, most: 50 * ms},
		"but it never delays a try":                {wait: 300 * ms, pace: every(time.Minute), least: 300 * ms, most: 300 * ms},
		"a strategy that stops changes nothing":    {wait: 300 * ms, pace: every(-1), least: 300 * ms, most: 300 * ms},
		"a wait of nothing is still a millisecond": {least: ms, most: ms},
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newWaiter()
			if c.pace != 0 {
				w.pace = c.pace
			}
			w.Refuse(time.Now(), &script.Grant{Ticket: 5, Served: 1000, Wait: c.wait, Life: c.life})
			began := time.Now()
			switch {
			case c.early:
				w.notify(c.message)
			case c.message != "":
				time.AfterFunc(100*ms, func() { w.notify(c.message) })
			}
			if !w.Await(context.Background(), nil) {
				t.Errorf("%s: it gave up", name)
			}
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("%s: it waited %v, want %v to %v", name, took, c.least, c.most)
			}
			time.Sleep(time.Second) // for the timer of the test
		})
	}
}

// Waiters that were refused together must not try together.
func TestSignsOfLifeAreSpread(t *testing.T) {
	first, last := time.Hour, time.Duration(0)
	for range 100 {
		w := newWaiter()
		sent := time.Now()
		w.Refuse(sent, &script.Grant{Ticket: 5, Wait: Interval})
		wait := w.next.Sub(sent)
		first, last = min(first, wait), max(last, wait)
	}
	if last-first < Interval/10 {
		t.Errorf("a hundred waiters try within %v", last-first)
	}
}

func TestAwaitEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWaiter()
		w.Refuse(time.Now(), &script.Grant{Ticket: 5, Wait: 500 * ms})
		ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
		defer cancel()
		if w.Await(ctx, nil) {
			t.Error("ctx has ended, and it tries again")
		}
		closed := make(chan struct{})
		time.AfterFunc(100*ms, func() { close(closed) })
		if w.Await(context.Background(), closed) {
			t.Error("the Client is closed, and it tries again")
		}
	})
}

// Only a hand-off that was made after the last answered try counts, and only once.
func TestHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		message    string
		unanswered bool // no try was answered yet
		want       bool
	}{
		"after the last answer":              {message: "granted 1001 7", want: true},
		"in the same moment":                 {message: "granted 1000 7", want: true},
		"before the last answer":             {message: "granted 999 7"},
		"no try was answered":                {message: "granted 1001 7", unanswered: true},
		"no hand-off":                        {message: "after 10"},
		"a hand-off without a fencing token": {message: "granted 1001"},
		"a hand-off at no time":              {message: "granted soon 7"},
	} {
		w := newWaiter()
		if c.unanswered {
			w.sent = time.Time{}
		}
		w.notify(c.message)
		h := w.handedOver()
		if (h != nil) != c.want || h != nil && h.Fence != 7 {
			t.Errorf("%s: %+v", name, h)
		}
		if w.handedOver() != nil {
			t.Errorf("%s: a second time", name)
		}
	}
}

// A waiter that was never refused has no position to keep, and comes back less and less often. One with a position tries once per
// interval.
func TestRest(t *testing.T) {
	w, now := newWaiter(), time.Now()
	for i, most := range []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, Interval, Interval} {
		w.Rest(now)
		if wait := w.next.Sub(now); wait > most || wait < most*3/4 {
			t.Errorf("after error %d it waits %v, want %v or up to a quarter less", i+1, wait, most)
		}
	}
	w.refused = true
	if w.Rest(now); w.next.Sub(now) != Interval {
		t.Errorf("with a position it waits %v", w.next.Sub(now))
	}
}

func TestBear(t *testing.T) {
	limited, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	passes, final := fault.ErrUnanswered, answered("WRONGTYPE not a string")
	for name, c := range map[string]struct {
		waits, refused bool
		ctx            context.Context
		err            error
		want           bool
	}{
		"refused, and the error may pass":       {waits: true, refused: true, ctx: context.Background(), err: passes, want: true},
		"refused, and the error is final":       {waits: true, refused: true, ctx: limited, err: final},
		"never refused, but with a deadline":    {waits: true, ctx: limited, err: passes, want: true},
		"never refused, and without a deadline": {waits: true, ctx: context.Background(), err: passes},
		"not in line":                           {ctx: limited, err: passes},
	} {
		var w *Waiter
		if c.waits {
			w = newWaiter()
			w.refused = c.refused
		}
		if got := w.Bear(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// answered is an error that a server answers.
type answered string

func (a answered) Error() string { return string(a) }

func (answered) RedisError() {}

// Only a few abandoned tries may run at a time, and where answers take long, the waiter waits longer for them.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		refused   bool
		usual     time.Duration
		abandoned int
		want      time.Duration // 0 for no limit
	}{
		"answers are fast":            {refused: true, usual: ms, want: Interval},
		"answers take long":           {refused: true, usual: time.Second, want: 4 * time.Second},
		"one less than the bound":     {refused: true, abandoned: 3, want: Interval},
		"as many as may be abandoned": {refused: true, abandoned: 4},
		"never refused":               {},
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newWaiter()
			w.refused, w.usual = c.refused, c.usual
			ctx, cancel := w.Patience(context.Background(), c.abandoned)
			defer cancel()
			began := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			switch took := time.Since(began); {
			case c.want == 0 && ctx.Err() != nil, c.want > 0 && took != c.want:
				t.Errorf("%s: %v after %v", name, ctx.Err(), took)
			case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
				t.Errorf("%s: %v", name, ctx.Err())
			}
		})
	}
}
