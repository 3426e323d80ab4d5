package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/goredis"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/transport"
)

// beaten is a Redis client of one server, which answers beats.
type beaten struct {
	mu    sync.Mutex                       // protects the fields below
	reply func(keys []string) (any, error) // nil for "all is well"
	beats []sentBeat
}

// answer sets how beats are answered from now on; nil for "all is well".
func (b *beaten) answer(reply func(keys []string) (any, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reply = reply
}

// sentBeat is a beat that was sent.
type sentBeat struct {
	at   time.Time
	keys []string
	args []string
	ctx  context.Context
	over error // ctx.Err() by then
}

func (b *beaten) Options() *redis.Options { return &redis.Options{} }

func (b *beaten) Eval(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	return b.EvalSha(ctx, "", keys, args...)
}

func (b *beaten) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	sent := sentBeat{at: time.Now(), keys: keys[:len(keys)/2], ctx: ctx, over: ctx.Err()}
	for _, arg := range args {
		sent.args = append(sent.args, fmt.Sprint(arg))
	}
	b.mu.Lock()
	b.beats = append(b.beats, sent)
	answer := b.reply
	b.mu.Unlock()
	cmd := redis.NewCmd(ctx)
	if answer == nil {
		cmd.SetVal(well())
	} else if reply, err := answer(sent.keys); err != nil {
		cmd.SetErr(err)
	} else {
		cmd.SetVal(reply)
	}
	return cmd
}

func (*beaten) EvalRO(context.Context, string, []string, ...any) *redis.Cmd    { panic("not called") }
func (*beaten) EvalShaRO(context.Context, string, []string, ...any) *redis.Cmd { panic("not called") }
func (*beaten) ScriptExists(context.Context, ...string) *redis.BoolSliceCmd    { panic("not called") }
func (*beaten) ScriptLoad(context.Context, string) *redis.StringCmd            { panic("not called") }

// sent returns the beats so far, and forgets them.
func (b *beaten) sent() []sentBeat {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := b.beats
	b.beats = nil
	return sent
}

// served is the time of the server, which began with the bubble.
func served() int64 { return time.Now().UnixMicro() }

// well returns a reply to a beat that reports nothing.
func well() []any { return []any{served(), int64(1), int64(-1), []any{}, []any{}} }

// crew is waiters of one session.
type crew struct {
	redis   *beaten
	lines   *Lines
	waiters []*Waiter
}

// inSession runs a test on fake time with an empty crew.
func inSession(t *testing.T, test func(t *testing.T, c *crew)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		c := &crew{redis: &beaten{}}
		conn, err := goredis.New(c.redis)
		if err != nil {
			t.Fatal(err)
		}
		r := transport.New(conn)
		c.lines = &Lines{Hub: NewHub(r, deaf{}, "us"), Link: r.Link(false)}
		test(t, c)
		for _, w := range c.waiters {
			w.QuitInbox()
		}
		time.Sleep(time.Minute) // the goroutine of the session ends
		c.redis.sent()
	})
}

// join lets one more waiter be refused.
func (c *crew) join(keys ...string) *Waiter {
	w := c.lines.New(nil)
	c.waiters = append(c.waiters, w)
	c.try(w, keys...)
	return w
}

// try lets a waiter be refused, as if the server had answered at once.
func (c *crew) try(w *Waiter, keys ...string) {
	if keys == nil {
		keys = w.keys
	}
	w.Begin(context.Background(), &script.Obtain{Keys: script.Box(keys), TTL: time.Second}, new(transport.Call))
	w.Refuse(time.Now(), &script.Grant{Ticket: int64(slices.Index(c.waiters, w) + 1), Served: served()})
}

// session returns the session of all waiters.
func (c *crew) session() *session { return c.lines.Hub.sessions[""] }

// called returns the indices of those who were asked to try.
func (c *crew) called() (indices []int) {
	synctest.Wait()
	for i, w := range c.waiters {
		if is, _ := w.WasWoken(); is {
			indices = append(indices, i)
		}
	}
	return indices
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if a, b := fmt.Sprint(got), fmt.Sprint(want); a != b {
		t.Errorf("%s: %s, want %s", what, a, b)
	}
}

// A session beats once an interval, for all lines at once, and tells how long its waiters are live.
func TestBeats(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		c.join("a", "b")
		time.Sleep(10 * time.Second)
		sent := c.redis.sent()
		if n := len(sent); n < 10 || n > 12 {
			t.Errorf("%d beats in 10 s", n)
		}
		prolonged := 0
		for i, b := range sent {
			slices.Sort(b.keys)
			want(t, "lines", b.keys, []string{"a", "b"})
			want(t, "beat", b.args[:3], []string{"us", "3", "0"})
			if b.args[3] == "1" {
				prolonged++
				want(t, "the beat that prolongs, modulo 3", i%3, 0)
			}
		}
		if want := (len(sent) + 2) / 3; prolonged != want {
			t.Errorf("%d of %d beats make the lines last", prolonged, len(sent))
		}
		c.waiters[1].QuitInbox()
		time.Sleep(time.Second)
		want(t, "lines when the second has left", c.redis.sent()[0].keys, []string{"a"})
		c.waiters[0].QuitInbox()
		time.Sleep(time.Minute)
		want(t, "beats for nobody", len(c.redis.sent()), 0)
		c.try(c.waiters[0])
		time.Sleep(1100 * time.Millisecond)
		want(t, "beats for one that comes back", len(c.redis.sent()), 1)
	})
}

// Many lines make the interval longer. Each script has only some of them.
func TestManyLines(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		keys := numbered(20_000)
		w := c.join(keys...)
		time.Sleep(4 * time.Second)
		sent := c.redis.sent()
		want(t, "scripts", len(sent), len(keys)/chunk)
		want(t, "life", sent[0].args[1], "12")
		c.redis.answer(func(of []string) (any, error) { // all keys are free, the last one a bit later
			after := int64(0)
			if slices.Contains(of, "7") {
				after = 300
			}
			return []any{served(), int64(1), int64(-1), []any{}, []any{"1", int64(len(of)), after}}, nil
		})
		time.Sleep(4 * time.Second)
		_, due := w.WasWoken()
		if until := time.Until(due); due.IsZero() || until > 301*time.Millisecond {
			t.Errorf("the first in all lines tries in %v", until)
		}
		c.redis.sent()
	})
}

// Whoever is first in all lines tries when all keys are free, and nobody else.
func TestFirsts(t *testing.T) {
	for name, test := range map[string]struct {
		firsts []any
		called []int
	}{
		"first in both, and free":      {[]any{"2", int64(2), int64(0)}, []int{1}},
		"first in one":                 {[]any{"2", int64(1), int64(0)}, nil},
		"first, and not free":          {[]any{"2", int64(0), int64(0)}, nil},
		"of one line":                  {[]any{"1", int64(1), int64(0)}, []int{0}},
		"one that nobody knows":        {[]any{"9", int64(1), int64(0)}, nil},
		"two of them":                  {[]any{"1", int64(1), int64(0), "2", int64(2), int64(0)}, []int{0, 1}},
		"free in a moment, not by now": {[]any{"1", int64(1), int64(500)}, nil},
	} {
		inSession(t, func(t *testing.T, c *crew) {
			c.join("a")
			c.join("a", "b")
			c.redis.answer(func([]string) (any, error) {
				return []any{served(), int64(1), int64(-1), []any{}, test.firsts}, nil
			})
			time.Sleep(1100 * time.Millisecond)
			want(t, name, c.called(), test.called)
		})
	}
}

// Those whose entries may be missing come back, and no others.
func TestComesBack(t *testing.T) {
	missing := func(c *crew, key string) {
		c.redis.answer(func(keys []string) (any, error) {
			reply := well()
			if i := slices.Index(keys, key); i >= 0 {
				reply[3] = []any{int64(i + 1)}
			}
			return reply, nil
		})
	}
	for name, test := range map[string]struct {
		happens func(c *crew)
		called  []int
	}{
		"a beat finds no mark": {func(c *crew) { missing(c, "b"); time.Sleep(time.Second) }, []int{1, 2}},
		"in a line of one":     {func(c *crew) { missing(c, "a"); time.Sleep(time.Second) }, []int{0, 1}},
		"a try has made a mark": {func(c *crew) {
			c.waiters[2].Refuse(time.Now(), &script.Grant{Ticket: 3, Served: served(), Made: []string{"b"}})
		}, []int{1}},
		"a message says so": {func(c *crew) { c.waiters[2].notify(fmt.Sprint("marked ", served(), " 1")) }, []int{1}},
		"of one that has left": {func(c *crew) {
			c.waiters[2].QuitInbox()
			c.session().Stray("us/3", fmt.Sprint("marked ", served(), " 1"))
		}, []int{1}},
		"of one that nobody remembers": {func(c *crew) { c.session().Stray("us/9", fmt.Sprint("marked ", served(), " 1")) }, nil},
		"the server's clock was set back": {func(c *crew) {
			c.waiters[2].Refuse(time.Now(), &script.Grant{Ticket: 3, Served: served() - 3_600_000_000, Made: []string{"b"}})
		}, []int{1}},
		"the subscription has opened again": {func(c *crew) { c.session().Opened(true) }, []int{0, 1, 2}},
		"for the first time":                {func(c *crew) { c.session().Opened(false) }, nil},
		"Redis refuses beats for good": {func(c *crew) {
			c.redis.answer(func([]string) (any, error) { return nil, answered("NOPERM no") })
			time.Sleep(time.Second)
		}, []int{0, 1, 2}},
		"for now": {func(c *crew) {
			c.redis.answer(func([]string) (any, error) { return nil, answered("LOADING later") })
			time.Sleep(time.Second)
		}, nil},
	} {
		inSession(t, func(t *testing.T, c *crew) {
			c.join("a")
			c.join("a", "b")
			c.join("b")
			time.Sleep(10 * time.Millisecond)
			test.happens(c)
			want(t, name, c.called(), test.called)
			c.redis.answer(nil)
			for _, w := range c.waiters {
				c.try(w)
			}
			time.Sleep(5 * time.Second)
			want(t, name+", and they have come back", c.called(), []int(nil))
		})
	}
}

// A refusal from before the loss of a mark can arrive after the news of that.
func TestRefusalFromBefore(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		late := c.join("a")
		sent, before := time.Now(), served()
		late.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"})}, new(transport.Call))
		time.Sleep(time.Millisecond)
		c.waiters[0].Refuse(time.Now(), &script.Grant{Ticket: 1, Served: served(), Made: []string{"a"}})
		late.heed()
		late.Refuse(sent, &script.Grant{Ticket: 2, Served: before})
		want(t, "called", c.called(), []int{1})
	})
}

// Not all come back at a time, and those with the lowest tickets come first.
func TestComesBackInOrder(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		const n = 3*atOnce + 7
		for range n {
			c.join("a")
		}
		c.session().Opened(true)
		back := 0
		for round := 0; back < n; round++ {
			called := c.called()
			if len(called) == 0 || len(called) > atOnce || called[0] != back {
				t.Fatalf("round %d: %d called, from %v on", round, len(called), called)
			}
			for _, i := range called[:(len(called)+1)/2] { // the others take longer
				c.try(c.waiters[i])
				back++
			}
		}
	})
}

// A waiter that leaves gives its place to the next. So does one whose try fails, when a beat is answered.
func TestComesBackAfterOthersFail(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		for range 2*atOnce + 2 {
			c.join("a")
		}
		c.session().Opened(true)
		c.waiters[atOnce+1].QuitInbox() // before it was told
		c.waiters[0].heed()
		c.waiters[0].Rest(time.Now())
		c.waiters[1].heed()
		c.waiters[1].QuitInbox()
		time.Sleep(1100 * time.Millisecond)
		called := c.called()
		want(t, "called after a beat", len(called), atOnce)
		want(t, "the last two", called[atOnce-2:], []int{atOnce, atOnce + 2})
	})
}

// A waiter that has left, and is named by a message or a beat, is taken out of the line by the next beats until one is answered.
func TestLeft(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		time.Sleep(1500 * time.Millisecond)
		c.redis.sent()
		c.redis.answer(func([]string) (any, error) { return nil, errors.New("no connection") })
		c.session().Stray("us/7", "")
		time.Sleep(2 * time.Second)
		for _, b := range c.redis.sent() {
			want(t, "left", b.args[4:], []string{"us/7"})
		}
		c.redis.answer(func([]string) (any, error) {
			return []any{served(), int64(1), int64(-1), []any{}, []any{"8", int64(0), int64(0)}}, nil
		})
		time.Sleep(500 * time.Millisecond)
		c.redis.answer(nil)
		sent := c.redis.sent()
		want(t, "left, until it is answered", sent[len(sent)-1].args[4:], []string{"us/7"})
		time.Sleep(time.Second)
		want(t, "left, as the answer says", c.redis.sent()[0].args[4:], []string{"us/8"})
		time.Sleep(time.Second)
		want(t, "left, once that is answered", len(c.redis.sent()[0].args), 4)
	})
}

// When the first waiter of another inbox falls silent, the next beat comes when its mark ends.
func TestSilent(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.redis.answer(func([]string) (any, error) {
			reply := well()
			reply[2] = int64(300)
			return reply, nil
		})
		c.join("a")
		time.Sleep(1100 * time.Millisecond)
		sent := c.redis.sent()
		time.Sleep(1100 * time.Millisecond)
		for last, b := sent[len(sent)-1].at, c.redis.sent(); len(b) > 0; last, b = b[0].at, b[1:] {
			want(t, "the time between two beats", b[0].at.Sub(last), 301*time.Millisecond)
		}
		c.redis.answer(nil)
	})
}

// However often a beat is wanted, there is a pause between two.
func TestBeatsSoon(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		c.session().beatSoon()
		want(t, "beats at once", len(c.redis.sent()), 1)
		began := time.Now()
		for time.Since(began) < time.Second {
			c.session().beatSoon()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(c.redis.sent()); n < 8 || n > 10 {
			t.Errorf("%d beats in a second", n)
		}
	})
}

// Waiters whose Client's calls share no round trip have beats of their own, with the values of their ctx.
func TestApart(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		type tenant struct{}
		c.lines.Link = c.lines.Link.Redis.Link(true)
		w := c.lines.New(nil)
		c.waiters = append(c.waiters, w)
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), tenant{}, "seven"))
		w.Begin(ctx, &script.Obtain{Keys: script.Box([]string{"a"})}, new(transport.Call))
		w.Refuse(time.Now(), &script.Grant{Ticket: 1, Served: served()})
		cancel()
		time.Sleep(1100 * time.Millisecond)
		sent := c.redis.sent()
		if len(sent) != 1 || sent[0].ctx.Value(tenant{}) != "seven" || sent[0].over != nil {
			t.Errorf("%d beats, the first with %v", len(sent), sent[0].ctx.Value(tenant{}))
		}
	})
}

// While nobody answers, the session says so.
func TestFailure(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		w := c.join("a")
		down := errors.New("no connection")
		want(t, "at first", w.Failure(), nil)
		c.redis.answer(func([]string) (any, error) { return nil, down })
		time.Sleep(1100 * time.Millisecond)
		want(t, "while it is down", errors.Is(w.Failure(), down), true)
		c.redis.answer(nil)
		time.Sleep(time.Second)
		want(t, "when it is back", w.Failure(), nil)
		hang := make(chan struct{})
		c.redis.answer(func([]string) (any, error) { <-hang; return well(), nil })
		time.Sleep(5 * time.Second)
		want(t, "while it hangs", w.Failure(), fault.ErrUnanswered)
		close(hang)
		synctest.Wait()
		want(t, "when it is back", w.Failure(), nil)
	})
}

// The connection of a beat may be dead, without a sign or with an error. Another beat follows soon, unless answers usually
// take that long. While all fail, beats come four times as often as otherwise.
func TestBeatsOnDeadConnections(t *testing.T) {
	const hangs, usual = time.Hour, Interval
	for _, c := range []struct {
		what        string
		takes       time.Duration // an answer, before
		fails       time.Duration // the next one, or it hangs
		once        bool
		first, then time.Duration // from that beat to the next one, and from there on
	}{
		{"one hangs", 0, hangs, true, Interval / 4, usual},
		{"one fails at once", 0, 0, true, leastGap, usual},
		{"all hang", 0, hangs, false, Interval / 4, Interval / 4},
		{"all fail at once", 0, 0, false, leastGap, Interval / 4},
		{"one hangs where answers take 400 ms", 400 * time.Millisecond, hangs, true, usual, usual},
	} {
		inSession(t, func(t *testing.T, crew *crew) {
			well := func([]string) (any, error) {
				time.Sleep(c.takes)
				return well(), nil
			}
			crew.redis.answer(well)
			crew.join("a")
			time.Sleep(10 * time.Second)
			for len(crew.redis.sent()) == 0 { // until a beat has just been sent
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(c.takes)
			var after atomic.Int32
			crew.redis.answer(func(keys []string) (any, error) {
				if after.Add(1) > 1 && c.once {
					return well(keys)
				}
				time.Sleep(min(c.fails, 20*time.Second))
				return nil, errors.New("dead")
			})
			time.Sleep(4 * Interval)
			sent := crew.redis.sent()
			for i, want := range []time.Duration{c.first, c.then} {
				gap, least := sent[i+1].at.Sub(sent[i].at), want
				if want == usual {
					least = want * 7 / 8
				}
				if gap < least || gap > want+time.Millisecond {
					t.Errorf("%s: %v between beats, want %v", c.what, gap, want)
				}
			}
			crew.redis.answer(nil)
			time.Sleep(20 * time.Second)
		})
	}
}

// The validity of a hand-off counts from the last beat before it, or from the last try if that is later.
func TestSinceTheLastBeat(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		w := c.join("a")
		began := time.Now()
		time.Sleep(3500 * time.Millisecond)
		sent := c.redis.sent()
		last, before := sent[len(sent)-1].at, sent[len(sent)-2].at
		for name, test := range map[string]struct {
			at   time.Time
			want time.Time
		}{
			"after the last beat":     {last.Add(time.Second / 10), last.Add(99 * time.Millisecond)},
			"between the last two":    {before.Add(time.Second / 10), before.Add(99 * time.Millisecond)},
			"before that":             {began.Add(time.Second / 10), began.Add(99 * time.Millisecond)},
			"at the time of the last": {last, last},
		} {
			got := w.Since(&HandOff{at: test.at.UnixMicro(), arrived: time.Now()})
			want(t, name, got.Sub(began), test.want.Sub(began))
		}
	})
}

// Several waiters of a Client whose calls share no round trip stand in one line, and each has a beat of its own.
func TestApartInOneLine(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.lines.Link = c.lines.Link.Redis.Link(true)
		c.join("a")
		c.join("a")
		c.redis.answer(func([]string) (any, error) {
			return []any{served(), int64(1), int64(-1), []any{}, []any{"1", int64(1), int64(0)}}, nil
		})
		time.Sleep(1100 * time.Millisecond)
		want(t, "called", c.called(), []int{0})
	})
}

// Many beats of one waiter each cost the server more than one for all.
func TestManyApart(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.lines.Link = c.lines.Link.Redis.Link(true)
		for range 5000 {
			c.join("a")
		}
		want(t, "interval", c.session().interval().Round(10*time.Millisecond), 4*time.Second)
		for _, w := range c.waiters[1:] {
			w.QuitInbox()
		}
		want(t, "interval of one", c.session().interval(), Interval)
		c.redis.sent()
		time.Sleep(2 * Interval)
		if n := len(c.redis.sent()); n < 2 {
			t.Errorf("%d beats in two intervals", n)
		}
	})
}

// When a waiter with many lines leaves, the beats come as often as the life of the others wants.
func TestFewerLines(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		keys := numbered(50_000)
		w := c.join(keys...)
		time.Sleep(10 * time.Second)
		for len(c.redis.sent()) == 0 { // until a beat has just been sent
			time.Sleep(100 * time.Millisecond)
		}
		w.QuitInbox()
		c.join("a")
		m, _ := c.session().markOf(c.waiters[len(c.waiters)-1])
		time.Sleep(m.Life)
		if n := len(c.redis.sent()); n < 2 {
			t.Errorf("%d beats in a life of %v", n, m.Life)
		}
	})
}

// The first try of a waiter makes the mark anew, and its reply is lost. The message comes.
func TestMarkedBeforeARefusal(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		time.Sleep(10 * time.Millisecond)
		w := c.lines.New(nil)
		c.waiters = append(c.waiters, w)
		w.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"})}, new(transport.Call))
		w.notify(fmt.Sprint("marked ", served(), " 1"))
		want(t, "called", c.called(), []int{0})
	})
}

// Where many wait for many keys, tries that nothing has asked for come less often.
func TestNet(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		keys := numbered(10_000)
		w := c.join("a")
		want(t, "one waiter", c.session().net(), leastNet)
		c.join(keys...)
		c.join(keys...)
		want(t, "with two of 10,000 keys", c.session().net().Round(time.Second), 40*time.Second)
		w.QuitInbox()
		c.waiters[1].QuitInbox()
		want(t, "with one of them", c.session().net(), leastNet)
	})
}

// The beats of some waiters hang, or fail. Others hear all the same that it is their turn, and have no failure.
func TestOneServerFails(t *testing.T) {
	for name, fails := range map[string]func() (any, error){
		"hangs": func() (any, error) { time.Sleep(20 * time.Second); return well(), nil },
		"fails": func() (any, error) { return nil, errors.New("no connection") },
	} {
		inSession(t, func(t *testing.T, c *crew) {
			c.lines.Link = c.lines.Link.Redis.Link(true) // as at several servers, each has calls of its own
			c.join("a")
			c.join("b")
			c.redis.answer(func(keys []string) (any, error) {
				if keys[0] == "a" {
					return fails()
				}
				return []any{served(), int64(1), int64(-1), []any{}, []any{"2", int64(1), int64(0)}}, nil
			})
			time.Sleep(1100 * time.Millisecond)
			want(t, "called while the other "+name, c.called(), []int{1})
			time.Sleep(5 * time.Second)
			want(t, "failure while the other "+name, c.waiters[1].Failure(), nil)
			c.redis.answer(nil)
			time.Sleep(time.Minute)
		})
	}
}

// How beats have failed, and how long they took, is forgotten when nobody waits any more.
func TestFailuresOfAnEarlierWait(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		c.redis.answer(func([]string) (any, error) { time.Sleep(9 * time.Second); return well(), nil })
		time.Sleep(20 * time.Second)
		c.redis.answer(func([]string) (any, error) { return nil, answered("LOADING later") })
		time.Sleep(20 * time.Second)
		if c.waiters[0].Failure() == nil {
			t.Error("no failure while Redis loads")
		}
		c.waiters[0].QuitInbox()
		c.redis.answer(nil)
		time.Sleep(time.Hour)
		w := c.join("a")
		want(t, "failure", w.Failure(), nil)
		want(t, "life", c.session().longest(w), 3*time.Second)
	})
}

// A refusal without a position says nothing about beats.
func TestNoFailureWithoutAPosition(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		w := c.lines.New(nil)
		w.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"}), TTL: time.Second}, new(transport.Call))
		w.Refuse(time.Now(), &script.Grant{})
		want(t, "failure", w.Failure(), nil)
		w.QuitInbox()
	})
}

// A try makes its waiter live until after the first beat, also if its own lines make the interval long.
func TestLifeOfAFirstTry(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		keys := numbered(40_000)
		w := c.lines.New(nil)
		c.waiters = append(c.waiters, w)
		w.Begin(context.Background(), &script.Obtain{Keys: script.Box(keys), TTL: time.Second}, new(transport.Call))
		life := c.session().longest(w)
		began := time.Now()
		w.Refuse(began, &script.Grant{Ticket: 1, Served: served()})
		want(t, "life once it stands in line", c.session().longest(w), life)
		time.Sleep(life)
		if n := len(c.redis.sent()); n < 2*len(keys)/chunk {
			t.Errorf("%d calls in a life of %v", n, life)
		}
	})
}

// When the life becomes longer, the next beat makes the lines last as long.
func TestLinesLastForALongerLife(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		time.Sleep(1100 * time.Millisecond)
		keys := numbered(20_000)
		c.redis.sent()
		c.join(keys...)
		time.Sleep(time.Second)
		want(t, "prolongs", c.redis.sent()[0].args[3], "1")
	})
}

// Those who have left are remembered for some seconds. A message about one that is forgotten calls nobody back.
func TestDeparted(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		var last *Waiter
		for range 2 * maxDeparted {
			w := c.lines.New(nil)
			w.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"}), TTL: time.Second}, new(transport.Call))
			w.QuitInbox()
			last = w
		}
		want(t, "remembered, by number and in order", c.remembered(), 2*maxDeparted)
		c.session().Stray("us/2", fmt.Sprint("marked ", served(), " 1"))
		want(t, "called by one that is forgotten", c.called(), []int(nil))
		want(t, "left", c.left(), 0)
		time.Sleep(departedFor - time.Millisecond)
		c.session().Stray(last.member.ID(), fmt.Sprint("marked ", served(), " 1"))
		want(t, "called", c.called(), []int{0})
		for n := range 5000 {
			c.session().Stray(fmt.Sprint("us/", n+9), "")
		}
		want(t, "left at most", c.left(), 10*maxLeft)
		time.Sleep(time.Second)
		last.member = last.lines.shareOf(last.session.inbox).Enter(last.notify)
		last.QuitInbox()
		want(t, "remembered after ten seconds", c.remembered(), 2)
	})
}

// One call of a beat fails all the time. That makes no more beats than the first time another one.
func TestOneCallFails(t *testing.T) {
	for what, most := range map[string]int{"one": 12, "all": 45} {
		inSession(t, func(t *testing.T, c *crew) {
			keys := numbered(2 * chunk)
			c.join(keys...)
			time.Sleep(10 * time.Second)
			c.redis.sent()
			c.redis.answer(func(of []string) (any, error) {
				if what == "all" || slices.Contains(of, "7") {
					return nil, errors.New("no connection")
				}
				return well(), nil
			})
			time.Sleep(10 * Interval)
			if n := len(c.redis.sent()) / 2; n > most {
				t.Errorf("%s fails: %d beats in ten intervals", what, n)
			}
			c.redis.answer(nil)
		})
	}
}

// Many first tries are sent while few stand in line, and joined when the interval has become long.
func TestBurst(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		var burst []*Waiter
		for i := range 100 {
			w := c.lines.New(nil)
			c.waiters = append(c.waiters, w)
			burst = append(burst, w)
			keys := make([]string, 500)
			for j := range keys {
				keys[j] = fmt.Sprint(i, "-", j)
			}
			w.Begin(context.Background(), &script.Obtain{Keys: script.Box(keys), TTL: time.Second}, new(transport.Call))
		}
		sent := time.Now()
		for _, w := range burst[:50] {
			w.Refuse(sent, &script.Grant{Ticket: 1, Served: served()})
		}
		time.Sleep(1100 * time.Millisecond) // a beat
		c.redis.sent()
		for _, w := range burst[50:] {
			w.Refuse(sent, &script.Grant{Ticket: 1, Served: served()})
		}
		time.Sleep(1500 * time.Millisecond)
		if n := len(c.redis.sent()); n < 100 {
			t.Errorf("%d calls before the marks of the last ones end", n)
		}
	})
}

// Older news of a mark does not hide newer news.
func TestOlderNewsOfAMark(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		late := c.join("a")
		early, first := time.Now(), served()
		time.Sleep(time.Millisecond)
		w := c.lines.New(nil)
		c.waiters = append(c.waiters, w)
		sent, at := time.Now(), served()
		w.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"}), TTL: time.Second}, new(transport.Call))
		time.Sleep(time.Millisecond)
		c.waiters[0].Refuse(time.Now(), &script.Grant{Ticket: 1, Served: served(), Made: []string{"a"}})
		late.Refuse(early, &script.Grant{Ticket: 2, Served: first, Made: []string{"a"}})
		w.Refuse(sent, &script.Grant{Ticket: 3, Served: at})
		want(t, "called", c.called(), []int{1, 2})
	})
}

// A waiter whose first try has made the mark leaves before the reply. Its message comes, and says what else may be missing.
func TestMarkedByOneThatNeverStood(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join("a")
		c.join("b")
		w := c.lines.New(nil)
		w.Begin(context.Background(), &script.Obtain{Keys: script.Box([]string{"a"}), TTL: time.Second}, new(transport.Call))
		w.QuitInbox()
		time.Sleep(time.Millisecond)
		c.session().Stray("us/3", fmt.Sprint("marked ", served(), " 1"))
		want(t, "called", c.called(), []int{0})
	})
}

// Those who were called back, and are passed over because their server hangs, do not keep others from coming back.
func TestPassedOverWhileCalledBack(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		for range atOnce + 1 {
			c.join("a")
		}
		c.session().Opened(true)
		want(t, "called", len(c.called()), atOnce)
		c.waiters[0].PassOver(time.Now())
		time.Sleep(1100 * time.Millisecond)
		want(t, "called", c.called()[atOnce-1], atOnce)
	})
}

// While a hand-off waits to be taken, the server's clock is set back, and beats go on.
func TestSinceBeforeTheArrival(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		w := c.join("a")
		time.Sleep(10 * time.Millisecond)
		w.notify(fmt.Sprintf("granted %d 0", served()))
		arrived := time.Now()
		c.redis.answer(func([]string) (any, error) {
			r := well()
			r[0] = served() - 3_000_000
			return r, nil
		})
		time.Sleep(2500 * time.Millisecond)
		_, h := w.Admit(context.Background(), nil, 1)
		if since := w.Since(h); since.After(arrived) {
			t.Errorf("the validity begins %v after the arrival of the message", since.Sub(arrived))
		}
	})
}

// Each inbox counts its waiters from 1, so no two may have the same name, wherever their channels are.
func TestNoTwoInboxesHaveOneName(t *testing.T) {
	c := &crew{redis: &beaten{}}
	conn, err := goredis.New(c.redis)
	if err != nil {
		t.Fatal(err)
	}
	r := transport.New(conn)
	h, seen := NewHub(r, deaf{}, "us"), map[string]bool{}
	for _, server := range []string{"", "one", "two", "one", ""} {
		name, home := h.newName(server)
		if seen[name] || home != "" {
			t.Errorf("%q: name %q, at %q", server, name, home)
		}
		seen[name] = true
	}
}
