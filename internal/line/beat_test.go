package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// numbered returns the names of n keys.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	return keys
}

// begin lets one more waiter send its first try.
func (c *crew) begin(keys ...string) *Waiter {
	w := c.lines.New(nil)
	c.waiters = append(c.waiters, w)
	w.Begin(context.Background(), &script.Obtain{Keys: script.Box(keys), TTL: time.Second}, new(transport.Call))
	return w
}

// Tries whose replies come late make no more beats if the session has not grown since.
func TestLateReplies(t *testing.T) {
	for _, late := range []time.Duration{0, 500 * time.Millisecond, 1200 * time.Millisecond} {
		inSession(t, func(t *testing.T, c *crew) {
			c.join(numbered(4500)...)
			time.Sleep(5 * time.Second)
			c.redis.sent()
			for range 500 {
				w := c.begin("7")
				w.Refuse(time.Now().Add(-late), &script.Grant{Ticket: 5, Served: served()})
				time.Sleep(20 * time.Millisecond)
				w.QuitInbox()
			}
			if n := len(c.redis.sent()) / 9; n > 12 {
				t.Errorf("%d beats in 10 s while replies come %v late", n, late)
			}
			c.waiters = c.waiters[:1]
		})
	}
}

// A try was sent while the session stood in few lines, and its reply comes when it stands in many. Its lines last only until
// shortly after its mark, so the next beat comes before that, and makes them last longer.
func TestLateReplyInAGrownSession(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		straggler, others := c.begin("late"), c.begin(numbered(50_000)...)
		sent := time.Now()
		others.Refuse(sent, &script.Grant{Ticket: 1, Served: served()})
		time.Sleep(1300 * time.Millisecond)
		c.redis.sent()
		straggler.Refuse(sent, &script.Grant{Ticket: 2, Served: served()})
		time.Sleep(time.Second)
		prolonged := false
		for _, b := range c.redis.sent() {
			prolonged = prolonged || slices.Contains(b.keys, "late") && b.args[3] == "1"
		}
		want(t, "its line was prolonged", prolonged, true)
	})
}

// One of many calls has no answer for long. The others say that the server lives, so no more beats follow.
func TestOneCallHangs(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join(numbered(2 * chunk)...)
		time.Sleep(time.Minute)
		c.redis.sent()
		c.redis.answer(func(of []string) (any, error) {
			if slices.Contains(of, "7") {
				time.Sleep(3 * time.Second)
				return nil, errors.New("i/o timeout")
			}
			return well(), nil
		})
		time.Sleep(time.Minute)
		if n := len(c.redis.sent()) / 2; n > 80 {
			t.Errorf("%d beats in a minute", n)
		}
		c.redis.answer(nil)
	})
}

// One call of each beat fails, and many have left. Beats name only those that an answer or a message has named since the
// beat before, so there is room for one that is first in a line.
func TestLeftWhileACallFails(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		c.join(numbered(2 * chunk)...)
		time.Sleep(5 * time.Second)
		for n := range 10 * maxLeft {
			c.session().Stray(fmt.Sprint("us/", n+10), "")
		}
		c.redis.sent()
		c.redis.answer(func(of []string) (any, error) {
			if slices.Contains(of, "7") {
				return nil, errors.New("no connection")
			}
			return []any{served(), int64(1), int64(-1), []any{}, []any{"88888", int64(1), int64(0)}}, nil
		})
		time.Sleep(time.Minute)
		sent := c.redis.sent()
		last := sent[len(sent)-1]
		want(t, "the last beat names it", slices.Contains(last.args, "us/88888"), true)
		c.redis.answer(nil)
	})
}

// A waiter goes on leaving for as long as its marks may last, also after those have left who had made its life long.
func TestLeavesAsLongAsItsMark(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		others, w := c.join(numbered(50_000)...), c.join("a")
		time.Sleep(21 * time.Second)
		others.QuitInbox()
		want(t, "leaves for", w.LeaveLasts(), 30*time.Second+leaveLasts)
		time.Sleep(10 * time.Second)
		want(t, "leaves for, after some beats", w.LeaveLasts(), 3*time.Second+leaveLasts)
	})
}

// After a leave was given up, the marks say so.
func TestMarksAfterALeaveThatWasGivenUp(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		w, other := c.join("a"), c.join("b")
		left := func() bool {
			m, _ := c.session().markOf(w)
			return m.Left
		}
		want(t, "some may have left", left(), false)
		other.QuitInbox()
		other.Stays().Store(true)
		want(t, "some may have left after that", left(), true)
	})
}

// remembered returns how many who have left the session knows of.
func (c *crew) remembered() int {
	s := c.session()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.departed) + len(s.gone)
}

// left returns how many the next beats take out of the lines.
func (c *crew) left() int {
	s := c.session()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.beats.left)
}

// Those who have left are forgotten after a while, also if nobody waits any more.
func TestForgets(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		for range 100 {
			c.begin("b").QuitInbox()
			time.Sleep(50 * time.Millisecond)
		}
		want(t, "remembered, by number and in order", c.remembered(), 2*100)
		time.Sleep(2 * departedFor)
		want(t, "remembered later", c.remembered(), 0)
		c.begin("b").QuitInbox()
		want(t, "remembered again", c.remembered(), 2)
	})
}

// While the tries fail of those who were called back, only some of them try at a time, and nobody before the next answer to a
// beat. When a try succeeds, all come.
func TestComesBackWhileTriesFail(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		for range 5 * atOnce {
			c.join("a")
		}
		c.session().Opened(true)
		tried := map[*Waiter]int{}
		fails := func() (n int) {
			for _, i := range c.called() {
				w := c.waiters[i]
				w.heed()
				w.Rest(time.Now())
				tried[w]++
				n++
			}
			return n
		}
		want(t, "the first", fails(), atOnce)
		want(t, "before a beat", fails(), 0)
		for range 4 {
			time.Sleep(1100 * time.Millisecond)
			want(t, "after a beat", fails(), atOnce)
		}
		want(t, "all have tried", len(tried), 5*atOnce)
		c.redis.answer(func([]string) (any, error) { return nil, errors.New("no connection") })
		time.Sleep(1100 * time.Millisecond)
		want(t, "while beats fail", fails(), 0)
		c.redis.answer(func([]string) (any, error) { return nil, answered("NOPERM no") })
		time.Sleep(1100 * time.Millisecond)
		want(t, "while beats fail for good", fails() >= atOnce, true)
		c.redis.answer(nil)
		time.Sleep(1100 * time.Millisecond)
		came := 0
		for called := c.called(); len(called) > 0; called = c.called() {
			for _, i := range called {
				c.try(c.waiters[i])
				came++
			}
		}
		want(t, "have come", came, 5*atOnce)
	})
}

// Of many waiters whose tries fail, only some try at a time, also after the first round.
func TestManyFail(t *testing.T) {
	inSession(t, func(t *testing.T, c *crew) {
		for range 10 * atOnce {
			c.join("a")
		}
		late := 0
		for _, w := range c.waiters {
			w.Rest(time.Now())
			if time.Until(w.next) > 7*Interval {
				late++
			}
		}
		want(t, "how many rest for long", late, len(c.waiters))
	})
	inSession(t, func(t *testing.T, c *crew) {
		w := c.join("a")
		w.Rest(time.Now())
		want(t, "one alone tries soon", time.Until(w.next) <= Interval, true)
	})
}
