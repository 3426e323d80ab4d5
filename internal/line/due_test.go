package line

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/goredis"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/transport"
)

const ms = time.Millisecond

// deaf is a source through which no message can come.
type deaf struct{}

func (deaf) CanListen() bool { return false }

func (deaf) Listen(context.Context, string, func(bool), func(string)) {}

// nobody is a Redis client to which nothing is sent.
type nobody struct{ redis.Scripter }

func (nobody) Options() *redis.Options { return &redis.Options{} }

// newWaiter returns a waiter whose messages come only from the test.
func newWaiter() *Waiter {
	conn, err := goredis.New(nobody{})
	if err != nil {
		panic(err)
	}
	redis := transport.New(conn)
	l := &Lines{Hub: NewHub(redis, deaf{}, "test"), Link: redis.Link(false)}
	w := l.New(nil)
	w.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"})}, new(transport.Call))
	w.last = answer{time.Now(), 1000}
	w.session.beats.running = true // no beats
	return w
}

// every is a strategy.
type every time.Duration

func (e every) NextBackoff() time.Duration { return time.Duration(e) }

// A refused waiter tries again when the script says so, or sooner if a message says so.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		wait        time.Duration // in the reply
		pace        every
		message     string // after 100 ms
		early       bool   // it comes before the waiter waits
		least, most time.Duration
	}{
		"when a ttl ends":                       {wait: 300 * ms, least: 300 * ms, most: 300 * ms},
		"a net, at a random moment":             {least: leastNet * 3 / 4, most: leastNet},
		"its turn":                              {wait: 300 * ms, message: "-", least: 100 * ms, most: 100 * ms},
		"its turn came before":                  {wait: 300 * ms, message: "-", early: true},
		"the keys are taken until then":         {wait: 300 * ms, message: "after 49", least: 150 * ms, most: 150 * ms},
		"the keys are taken for longer":         {wait: 300 * ms, message: "after 999", least: 300 * ms, most: 300 * ms},
		"the keys are handed over":              {wait: 300 * ms, message: "granted 2000 7", least: 100 * ms, most: 100 * ms},
		"words that nobody knows":               {wait: 300 * ms, message: "hello", least: 100 * ms, most: 100 * ms},
		"a strategy counts where none can come": {wait: 300 * ms, pace: every(50 * ms), least: 50 * ms, most: 50 * ms},
		"but it never delays a try":             {wait: 300 * ms, pace: every(time.Minute), least: 300 * ms, most: 300 * ms},
		"a strategy that stops changes nothing": {wait: 300 * ms, pace: every(-1), least: 300 * ms, most: 300 * ms},
		"what a ttl ended before":               {wait: ms, least: ms, most: ms},
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newWaiter()
			if c.pace != 0 {
				w.pace = c.pace
			}
			w.Refuse(time.Now(), &script.Grant{Ticket: 5, Served: 1000, Wait: c.wait})
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
func TestNetsAreSpread(t *testing.T) {
	first, last := time.Hour, time.Duration(0)
	for range 100 {
		w := newWaiter()
		sent := time.Now()
		w.Refuse(sent, &script.Grant{Ticket: 5})
		wait := w.next.Sub(sent)
		first, last = min(first, wait), max(last, wait)
	}
	if last-first < leastNet/10 {
		t.Errorf("a hundred waiters try within %v", last-first)
	}
}

// The first of many waiters was refused when few waited, and its net was short.
func TestNetGrowsWithTheLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for name, wait := range map[string]func(w *Waiter){
			"alone": func(w *Waiter) { w.Await(context.Background(), nil) },
			"at several places": func(w *Waiter) {
				for next, _ := w.Due(); time.Now().Before(next); next, _ = w.Due() {
					time.Sleep(time.Until(next))
				}
			},
		} {
			w := newWaiter()
			began := time.Now()
			w.Refuse(began, &script.Grant{Ticket: 5, Served: 1000})
			w.session.entries += 30_000 // others: a net of 60 s
			wait(w)
			if took, net := time.Since(began), w.session.net(); net < time.Minute || took < net*3/4 || took > net {
				t.Errorf("%s, with a net of %v: it waited %v", name, net, took)
			}
		}
	})
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
			w.last = answer{}
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
	if w.Rest(now); w.next.Sub(now) > Interval || w.next.Sub(now) < Interval*3/4 {
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
