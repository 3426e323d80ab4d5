package schedule_test

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/testing/bubble"
)

const ms, sec = time.Millisecond, time.Second

// item is looked at every so often.
type item struct {
	name  string
	entry schedule.Entry
	log   *log

	mu       sync.Mutex    // protects what follows
	every    time.Duration // 0: look no more
	early    time.Duration
	unwanted bool
}

func (i *item) Look(now time.Time) (time.Time, time.Duration) {
	i.log.add(i.name)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.every == 0 {
		return time.Time{}, 0
	}
	return now.Add(i.every), i.early
}

func (i *item) Wanted() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.unwanted
}

func (i *item) Entry() *schedule.Entry { return &i.entry }

// change sets how often the item is to be looked at from its next look on, and how early.
func (i *item) change(every, early time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.every, i.early = every, early
}

// leave removes the item, which nobody wants any more.
func (i *item) leave(s *schedule.Schedule) {
	i.mu.Lock()
	i.unwanted = true
	i.mu.Unlock()
	s.Remove(i)
}

// log is what has happened in a schedule, and when.
type log struct {
	mu    sync.Mutex // protects what follows
	start time.Time
	lines []line
}

type line struct {
	at   time.Duration
	what string
}

func (l *log) add(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{time.Since(l.start), what})
}

// take returns what was logged since it was last called.
func (l *log) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.lines, func(a, b line) int { // what happens at one moment has no order
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what))
	})
	var taken []string
	for _, line := range l.lines {
		taken = append(taken, fmt.Sprint(line.at, " ", line.what))
	}
	l.lines = nil
	return strings.Join(taken, ", ")
}

// inBubble runs test on fake time. Its schedule logs the items of which it says that they are over.
func inBubble(t *testing.T, test func(t *testing.T, s *schedule.Schedule, l *log)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		l := &log{start: time.Now()}
		s := schedule.New(func(over []schedule.Item) {
			for _, i := range over {
				l.add(i.(*item).name + " is over")
			}
		})
		test(t, s, l) // the bubble fails if the schedule's goroutine does not end
	})
}

// want compares what was logged until now with what should have been.
func (l *log) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := l.take(); got != want {
		t.Errorf("at %v: got %q, want %q", time.Since(l.start), got, want)
	}
}

// goroutines returns how many goroutines run a schedule.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "created by github.com/redislock/redislock/internal/schedule.")
}

func TestLooksAtOnceAndWhenDue(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		a := &item{name: "a", log: l, every: 3 * sec}
		for range 2 { // the second changes nothing
			s.Add(a)
		}
		time.Sleep(7 * sec)
		l.want(t, "0s a, 3s a, 6s a")
		b := &item{name: "b", log: l, every: 10 * sec}
		s.Add(b)
		time.Sleep(11 * sec)
		l.want(t, "7s b, 9s a, 12s a, 15s a, 17s b, 18s a")
		a.leave(s)
		b.leave(s)
		time.Sleep(time.Hour)
		l.want(t, "")
	})
}

// The goroutine starts with the first item, ends after the last, and starts again.
func TestGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		for range 3 {
			if n := goroutines(); n != 0 {
				t.Errorf("%d goroutines without an item", n)
			}
			began := time.Since(l.start)
			removed, over := &item{name: "removed", log: l, every: sec}, &item{name: "over", log: l, every: sec}
			s.Add(removed)
			s.Add(over)
			synctest.Wait()
			if n := goroutines(); n != 1 {
				t.Errorf("%d goroutines with two items", n)
			}
			removed.leave(s)
			over.change(0, 0)
			l.take()
			time.Sleep(sec)
			l.want(t, fmt.Sprintf("%v over, %v over is over", began+sec, began+sec))
		}
		if n := goroutines(); n != 0 {
			t.Errorf("%d goroutines after the last item", n)
		}
	})
}

// An item that is over may be added again at once, by the one who is told.
func TestAddedAgainWhenOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &log{start: time.Now()}
		again := 3
		var s *schedule.Schedule
		s = schedule.New(func(over []schedule.Item) {
			for _, i := range over {
				if again--; again > 0 {
					s.Add(i)
				}
			}
		})
		s.Add(&item{name: "a", log: l})
		time.Sleep(time.Hour)
		l.want(t, "0s a, 0s a, 0s a")
	})
}

// What is due soon is looked at in the same round, if another item of the round says so.
func TestEarly(t *testing.T) {
	for early, want := range map[time.Duration]string{
		0:          "1s a, 1.05s b, 1.1s c",
		60 * ms:    "1s a, 1s b, 1.1s c",
		2 * sec:    "1s a, 1s b, 1s c", // and a once, although it is due again within this time
		-time.Hour: "1s a, 1.05s b, 1.1s c",
	} {
		inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
			items := []*item{{name: "a"}, {name: "b"}, {name: "c"}}
			for i, item := range items {
				item.log, item.every = l, sec+time.Duration(i)*50*ms
				s.Add(item)
			}
			synctest.Wait()
			l.take()
			items[0].change(sec, early) // from its second look on
			time.Sleep(sec + 500*ms)
			l.want(t, want)
			for _, item := range items {
				item.leave(s)
			}
		})
	}
}

func TestLookBy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		a, never := &item{name: "a", log: l, every: 10 * sec}, &item{name: "never added", log: l}
		s.Add(a)
		l.want(t, "0s a")
		s.LookBy(a, l.start.Add(20*sec)) // changes nothing
		s.LookBy(a, l.start.Add(4*sec))
		s.LookBy(a, l.start.Add(5*sec)) // nor does this
		s.LookBy(never, l.start)
		time.Sleep(15 * sec)
		l.want(t, "4s a, 14s a")
		s.LookBy(a, l.start) // in the past
		l.want(t, "15s a")
		a.leave(s)
	})
}

func TestLookAt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		a, b := &item{name: "a", log: l, every: 10 * sec}, &item{name: "b", log: l, every: 7 * sec}
		s.Add(a)
		s.Add(b)
		l.want(t, "0s a, 0s b")
		s.LookAt(a, l.start.Add(12*sec))
		s.LookAt(&item{name: "never added", log: l}, l.start)
		time.Sleep(12 * sec)
		l.want(t, "7s b, 12s a")
		s.LookAt(a, l.start.Add(13*sec))
		time.Sleep(sec)
		l.want(t, "13s a")
		a.leave(s)
		b.leave(s)
	})
}

// Removing an item must not take it from others who want it again.
func TestRemoveOfAWantedItem(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		a := &item{name: "a", log: l, every: sec}
		s.Add(a)
		s.Remove(a)
		time.Sleep(1500 * ms)
		l.want(t, "0s a, 1s a")
		a.leave(s)
		s.Remove(a)
		time.Sleep(time.Hour)
		l.want(t, "")
	})
}

// Items come and go while others are due at every moment.
func TestRemoveWhileDue(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		var items []*item
		for i := range 50 {
			items = append(items, &item{name: fmt.Sprint(i), log: l, every: ms, early: time.Duration(i%3) * ms})
			s.Add(items[i])
		}
		for len(items) > 0 {
			time.Sleep(ms) // the goroutine wakes at this moment as well
			i := len(items) * 7 / 11
			items[i].leave(s)
			synctest.Wait()
			l.take()
			removed := items[i].name
			items = slices.Delete(items, i, i+1)
			time.Sleep(3 * ms)
			synctest.Wait()
			looked := " " + l.take() + ","
			if strings.Contains(looked, " "+removed+",") {
				t.Fatalf("%s was looked at after it was removed: %s", removed, looked)
			}
			for _, item := range items {
				if !strings.Contains(looked, " "+item.name+",") {
					t.Fatalf("%s was forgotten: %s", item.name, looked)
				}
			}
		}
	})
}

func TestItems(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		a, b := &item{name: "a", log: l, every: sec}, &item{name: "b", log: l, every: sec}
		s.Add(a)
		s.Add(b)
		l.want(t, "0s a, 0s b")
		items := s.Items()
		if len(items) != 2 || !slices.Contains(items, schedule.Item(a)) || !slices.Contains(items, schedule.Item(b)) {
			t.Errorf("the items are %v", items)
		}
		time.Sleep(sec)
		l.want(t, "1s a, 1s b") // until they are removed
		for _, i := range items {
			i.(*item).leave(s)
		}
		if n := len(s.Items()); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
}

// All methods may be called at once. The race detector looks on.
func TestConcurrently(t *testing.T) {
	inBubble(t, func(t *testing.T, s *schedule.Schedule, l *log) {
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				for n := range 50 {
					a := &item{name: "x", log: l, every: ms, early: ms, unwanted: true}
					s.Add(a)
					time.Sleep(time.Duration(i*n%7) * ms)
					s.LookBy(a, time.Now())
					s.LookAt(a, time.Now().Add(ms))
					s.Remove(a)
				}
			})
		}
		wait.Wait()
		l.take()
		time.Sleep(time.Hour)
		l.want(t, "")
	})
}
