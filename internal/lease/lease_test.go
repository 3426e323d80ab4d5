package lease_test

import (
	"testing"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

const ms, sec = time.Millisecond, time.Second

// start is when the locks of these tests are granted.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at returns the moment d after start.
func at(d time.Duration) time.Time { return start.Add(d) }

func wantTime(t *testing.T, what string, got time.Time, want time.Duration) {
	t.Helper()
	if !got.Equal(at(want)) {
		t.Errorf("%s is %v after the start, want %v", what, got.Sub(start), want)
	}
}

func TestValidUntil(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * sec:                   9899 * ms,
		2 * ms:                     980 * time.Microsecond,
		ms:                         -10 * time.Microsecond,
		2*ms - time.Nanosecond:     -10 * time.Microsecond, // Redis keeps whole milliseconds
		200 * 365 * 24 * time.Hour: 198*365*24*time.Hour - ms,
	} {
		wantTime(t, "the validity of "+ttl.String(), lease.ValidUntil(start, ttl), want)
	}
}

func TestPassed(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		t    time.Time
		want bool
	}{
		{"an hour ago", now.Add(-time.Hour), true},
		{"in an hour", now.Add(time.Hour), false},
		{"now", now, true},
		{"an hour ago by the wall clock alone", now.Add(-time.Hour).Round(0), true},
		{"in an hour by the wall clock alone", now.Add(time.Hour).Round(0), false},
		{"the zero time", time.Time{}, true},
	} {
		if got := lease.Passed(c.t); got != c.want {
			t.Errorf("Passed for %s is %v", c.name, got)
		}
	}
}

func TestGrantedAndFound(t *testing.T) {
	granted := lease.Granted(start, 10*sec)
	wantTime(t, "the end of the granted", granted.Until(), 9899*ms)
	if granted.TTL() != 10*sec {
		t.Errorf("TTL is %v", granted.TTL())
	}
	found := lease.Found(start, 10*sec)
	wantTime(t, "the end of the found", found.Until(), 9899*ms)
	if found.TTL() != 0 {
		t.Errorf("TTL is %v, want 0, for nobody knows it", found.TTL())
	}
}

func TestEnd(t *testing.T) {
	l := lease.Granted(start, 10*sec)
	l.End(at(sec))
	wantTime(t, "the end", l.Until(), sec)
	l.End(at(2 * sec))
	wantTime(t, "the end, ended once more", l.Until(), sec)
}

// What becomes of the validity of a lock of 10 s that is refreshed a second later.
func TestRefresh(t *testing.T) {
	for _, c := range []struct {
		name        string
		ttl         time.Duration
		sent        bool
		answered    time.Duration // when the request of the answer was sent; 0: there was none
		during, end time.Duration
	}{
		{"longer, answered", 60 * sec, true, 1100 * ms, 9899 * ms, 1100*ms + 59399*ms},
		{"longer, unanswered", 60 * sec, true, 0, 9899 * ms, 9899 * ms},
		{"longer, never sent", 60 * sec, false, 0, 9899 * ms, 9899 * ms},
		{"shorter, answered", 2 * sec, true, 1100 * ms, sec + 1979*ms, 1100*ms + 1979*ms},
		{"shorter, unanswered", 2 * sec, true, 0, sec + 1979*ms, sec + 1979*ms},
		{"shorter, never sent", 2 * sec, false, 0, sec + 1979*ms, 9899 * ms},
		{"as long, answered", 10 * sec, true, 1100 * ms, 9899 * ms, 1100*ms + 9899*ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lease.Granted(start, 10*sec)
			r := l.Begin(at(sec), c.ttl, false)
			wantTime(t, "the end, while it is under way,", l.Until(), c.during)
			switch {
			case c.answered > 0:
				l.Confirm(r, at(c.answered))
			case c.sent:
				l.Doubt(r)
			}
			select {
			case <-r.Ended():
				t.Error("ended before Finish")
			default:
			}
			l.Finish(r, c.sent)
			<-r.Ended()
			wantTime(t, "the end", l.Until(), c.end)
		})
	}
}

// A success makes no more certain than what the others leave that may be executed after it.
func TestRefreshBesideOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		other time.Duration
		after func(l *lease.Lease, other *lease.Refresh)
		want  time.Duration // the validity that a refresh for a minute gains
	}{
		{"one under way, shorter", 2 * sec, func(*lease.Lease, *lease.Refresh) {}, 1979 * ms},
		{"one under way, longer", 120 * sec, func(*lease.Lease, *lease.Refresh) {}, 59399 * ms},
		{"one unanswered, shorter", 2 * sec, func(l *lease.Lease, r *lease.Refresh) { l.Doubt(r); l.Finish(r, true) }, 1979 * ms},
		{"one unanswered, longer", 120 * sec, func(l *lease.Lease, r *lease.Refresh) { l.Doubt(r); l.Finish(r, true) }, 59399 * ms},
		{"one answered, shorter", 2 * sec, func(l *lease.Lease, r *lease.Refresh) { l.Confirm(r, at(sec)); l.Finish(r, true) }, 59399 * ms},
		{"one that was never sent, shorter", 2 * sec, func(l *lease.Lease, r *lease.Refresh) { l.Finish(r, false) }, 59399 * ms},
		{"two unanswered, the least counts", 2 * sec, func(l *lease.Lease, r *lease.Refresh) {
			more := l.Begin(at(sec), 30*sec, false)
			l.Doubt(r)
			l.Doubt(more)
			l.Finish(r, true)
			l.Finish(more, true)
		}, 1979 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lease.Granted(start, 10*sec)
			c.after(&l, l.Begin(at(sec), c.other, false))
			r := l.Begin(at(sec), 60*sec, false)
			l.Confirm(r, at(sec))
			l.Finish(r, true)
			wantTime(t, "the end", l.Until(), sec+c.want)
			renewal, _ := l.Renew(l.Until())
			l.Renewed(renewal, at(100*sec))
			if renewal.TTL != 60*sec {
				t.Errorf("renewed for %v", renewal.TTL)
			}
			wantTime(t, "the end after a renewal", l.Until(), 100*sec+c.want)
		})
	}
}

func TestAhead(t *testing.T) {
	for _, c := range []struct {
		name       string
		first, ttl time.Duration
		abandoned  bool
		waits      bool
	}{
		{"an awaited one", 10 * sec, 10 * sec, false, true},
		{"an awaited one that is longer", 20 * sec, 10 * sec, false, true},
		{"an abandoned one that is longer", 20 * sec, 10 * sec, true, false},
		{"an abandoned one that is as long", 10 * sec, 10 * sec, true, false},
		{"an abandoned one that is shorter", 5 * sec, 10 * sec, true, true},
	} {
		l := lease.Granted(start, 10*sec)
		if l.Ahead(c.ttl) != nil {
			t.Fatal("waits for nobody")
		}
		first := l.Begin(start, c.first, false)
		if c.abandoned {
			first.Abandon()
		}
		if waits := l.Ahead(c.ttl) == &first.Pending; waits != c.waits {
			t.Errorf("waits for %s: %v", c.name, waits)
		}
		l.Finish(first, true)
		if l.Ahead(c.ttl) != nil {
			t.Errorf("still waits for %s, which has ended", c.name)
		}
	}
}

func TestAnUnsentRefreshRestoresNothingThatIsNotCertain(t *testing.T) {
	another := lease.Granted(start, 30*sec)
	unsent := another.Begin(at(0), 10*sec, false)
	unsent.Abandon()
	shortened := another.Until()
	sent := another.Begin(at(100*ms), 10*sec, false)
	another.Finish(unsent, false)
	another.Doubt(sent)
	another.Finish(sent, true)
	if got := another.Until(); !got.Equal(shortened) {
		t.Errorf("after another refresh, the end is %v after the start, want %v", got.Sub(start), shortened.Sub(start))
	}

	lost := lease.Granted(start, 30*sec)
	unsent = lost.Begin(at(0), 50*ms, false)
	lost.End(at(100 * ms))
	lost.Finish(unsent, false)
	if lost.Until().After(at(100 * ms)) {
		t.Errorf("after a loss, the end is %v after the start, want at most 100 ms", lost.Until().Sub(start))
	}
}

func TestARefreshPromisesNoMoreThanThoseBesideIt(t *testing.T) {
	l := lease.Granted(start, 30*sec)
	short := l.Begin(at(0), sec, false)
	short.Abandon()
	long := l.Begin(at(1200*ms), 30*sec, false) // its turn did not come
	l.Confirm(short, at(0))                     // executed after the long one, and answered before it
	l.Finish(short, true)
	l.Confirm(long, at(1200*ms))
	l.Finish(long, true)
	wantTime(t, "the end", l.Until(), 1200*ms+989*ms)
}
