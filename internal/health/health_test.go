package health_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/testing/bubble"
)

const ms = time.Millisecond

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// answers makes the server answer one call after the other, each of which takes so long. It returns the time of the
// last answer.
func answers(s *health.Server, took ...time.Duration) (last time.Time) {
	now := start
	for _, took := range took {
		s.Admit(now, 1, 0)
		now = now.Add(took)
		s.Ended(now, took, true)
	}
	return now
}

func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		took           []time.Duration // of the answers before
		ago            time.Duration   // how long before the last answer the call began
		keys           int
		fastest, limit time.Duration
		want           time.Duration
	}{
		"no server has answered: all may be far away":   {limit: health.NoLimit, want: health.LongPatience},
		"another one has answered fast":                 {fastest: 10 * ms, limit: health.NoLimit, want: health.FirstPatience},
		"another one has answered slowly":               {fastest: 200 * ms, limit: health.NoLimit, want: 400 * ms},
		"a fast server":                                 {took: []time.Duration{ms}, limit: health.NoLimit, want: health.LeastPatience},
		"a slow server":                                 {took: repeat(80*ms, 99), limit: health.NoLimit, want: 320 * ms},
		"the others do not matter once it has answered": {took: []time.Duration{ms}, fastest: time.Second, limit: health.NoLimit, want: health.LeastPatience},
		"the call began before the first answer":        {took: []time.Duration{ms}, ago: ms, limit: health.NoLimit, want: health.LongPatience},
		"and another one has answered":                  {took: []time.Duration{ms}, ago: ms, fastest: ms, limit: health.NoLimit, want: health.FirstPatience},
		"the call began before the second answer":       {took: []time.Duration{ms, ms}, ago: ms, limit: health.NoLimit, want: health.LeastPatience},
		"no longer than the limit":                      {took: []time.Duration{ms}, limit: 30 * ms, want: 30 * ms},
		"not at all if it usually takes longer":         {took: repeat(80*ms, 99), limit: 30 * ms, want: 0},
		"each key adds 20 µs":                           {keys: 1000, took: []time.Duration{ms}, limit: health.NoLimit, want: health.LeastPatience + 20*ms},
	} {
		s := &health.Server{}
		got := s.Patience(answers(s, c.took...).Add(-c.ago), c.keys, c.fastest, c.limit)
		if diff := (got - c.want).Abs(); diff > c.want/100 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func repeat(d time.Duration, n int) (all []time.Duration) {
	for range n {
		all = append(all, d)
	}
	return all
}

// One answer says little, because the server may have hung until then.
func TestOneAnswerDoublesTheUsualTimeAtMost(t *testing.T) {
	s := &health.Server{}
	for i, c := range []struct{ took, want time.Duration }{
		{time.Minute, 10 * ms}, // the first one is not believed either
		{time.Minute, 20 * ms},
		{time.Minute, 40 * ms},
		{8 * ms, 36 * ms},
	} {
		now := start.Add(time.Duration(i) * time.Hour)
		s.Admit(now, 1, 0)
		s.Ended(now.Add(c.took), c.took, true)
		if got := s.Usually(); got != c.want {
			t.Errorf("after answer %d: %v, want %v", i+1, got, c.want)
		}
	}
}

// Calls that were under way together may have waited for the same thing.
func TestOfCallsTogetherTheFirstAnswerCounts(t *testing.T) {
	s := &health.Server{}
	answers(s, 10*ms)
	now := start.Add(time.Hour)
	for range 5 {
		s.Admit(now, 1, 0)
	}
	for range 5 {
		s.Ended(now.Add(time.Second), time.Second, true)
	}
	if got := s.Usually(); got != 20*ms {
		t.Errorf("after five answers together: %v, want 20ms", got)
	}
}

// The steps run one after the other, on one server that usually answers within a few milliseconds.
func TestAdmit(t *testing.T) {
	s := &health.Server{}
	answers(s, ms)
	began := start.Add(time.Hour)
	admit := func(now time.Time) bool { return s.Admit(now, 0, 0) }
	ends := func(answered bool) func(time.Time) bool {
		return func(now time.Time) bool { s.Ended(now, ms, answered); return answered }
	}
	for _, step := range []struct {
		at   time.Duration
		what string
		do   func(now time.Time) bool
		want bool
	}{
		{0, "a first call goes out", admit, true},
		{100 * ms, "so does another within the patience", admit, true},
		{101 * ms, "after the patience, one goes out to see whether the server answers", admit, true},
		{102 * ms, "but no other", admit, false},
		{1100 * ms, "none within a second", admit, false},
		{1101 * ms, "one after a second", admit, true},
		{1102 * ms, "one of the calls fails", ends(false), false},
		{1103 * ms, "that changes nothing", admit, false},
		{1104 * ms, "the server answers", ends(true), true},
		{1105 * ms, "now calls go out at once", admit, true},
		{1106 * ms, "all of them", admit, true},
		{1107 * ms, "a call fails at once", ends(false), false},
		{1108 * ms, "no other goes out, because one went out a moment ago", admit, false},
		{2101 * ms, "one goes out a second later", admit, true},
	} {
		if got := step.do(began.Add(step.at)); got != step.want {
			t.Errorf("%v: %s: got %v", step.at, step.what, got)
		}
	}
}

// A server that is needed may be silent for longer.
func TestAdmitForLonger(t *testing.T) {
	s := &health.Server{}
	answers(s, ms)
	began := start.Add(time.Hour)
	s.Admit(began, 0, 0)
	s.Admit(began.Add(101*ms), 0, 0) // to see whether the server answers
	for _, c := range []struct {
		at, least time.Duration
		want      bool
	}{{150 * ms, 0, false}, {150 * ms, 149 * ms, false}, {150 * ms, 150 * ms, true}, {251 * ms, 250 * ms, false}} {
		if s.IsUp(began.Add(c.at), 0) {
			t.Errorf("after %v, the server seems to answer", c.at)
		}
		if got := s.Admit(began.Add(c.at), 0, c.least); got != c.want {
			t.Errorf("after %v, with %v at least: %v", c.at, c.least, got)
		}
	}
}

// With no call under way, nothing shows that a server is still down. So the next call goes out.
func TestAdmitAfterAllHaveFailed(t *testing.T) {
	s := &health.Server{}
	for i := range 3 {
		if !s.Admit(start, 1, 0) {
			t.Errorf("call %d was not admitted", i+1)
		}
		s.Ended(start, 0, false)
	}
}

// A call that is still resent says how it was sent in vain, and its successor does not hide that.
func TestFailure(t *testing.T) {
	s, earlier, later := &health.Server{}, &call{}, &call{}
	want := func(when string, want error) {
		t.Helper()
		if got := s.Failure(); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	want("before the first call", nil)
	s.Admit(start, 1, 0)
	s.Sent(earlier)
	want("when nothing has failed", nil)
	earlier.err = errors.New("refused")
	want("when a sending has failed", earlier.err)
	s.Admit(start, 1, 0)
	s.Sent(later)
	want("when another call is under way", earlier.err)
	later.err = errors.New("refused again")
	want("when that one has failed", later.err)
	s.Answered(start)
	want("when the server has answered", nil)
}

// call is a call on its way, or one that has failed.
type call struct{ err error }

func (c *call) Failure() error { return c.err }

// lock counts its mends.
type lock struct {
	mu    sync.Mutex
	mends []time.Time
}

func (l *lock) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mends = append(l.mends, time.Now())
}

func (l *lock) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mends)
}

func TestMends(t *testing.T) {
	const room = 16
	for name, c := range map[string]struct {
		kept, forgotten, answered bool
		after                     time.Duration // from the end of one mend on
		want                      int
	}{
		"when the server answers and has room": {kept: true, answered: true, want: 1},
		"not before the probe if it does not":  {kept: true, after: 900 * ms, want: 0},
		"at the probe if it does not":          {kept: true, after: 1100 * ms, want: 1},
		"once only":                            {kept: true, answered: true, after: time.Minute, want: 1},
		"never if it is not kept":              {answered: true, after: time.Minute, want: 0},
		"never if it was forgotten":            {kept: true, forgotten: true, answered: true, after: time.Minute, want: 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			s, waiting := &health.Server{}, &lock{}
			for i := range room {
				if !s.AdmitMend(time.Now(), 1, &lock{}, true) {
					t.Fatalf("%s: mend %d was not admitted", name, i)
				}
			}
			if s.AdmitMend(time.Now(), 1, waiting, c.kept) {
				t.Errorf("%s: a mend too many was admitted", name)
			}
			if c.forgotten {
				s.Forget(waiting)
			}
			s.MendEnded(time.Now(), ms, c.answered)
			time.Sleep(c.after)
			if got := waiting.count(); got != c.want {
				t.Errorf("%s: %d mends, want %d", name, got, c.want)
			}
		})
	}
}

// A call that Admit does not know of shows that the server answers again: a lock that waits need not wait for the probe.
func TestAnswersStartsMends(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, waiting := &health.Server{}, &lock{}
		s.Admit(time.Now(), 1, 0)
		s.Ended(time.Now(), ms, false)
		s.Await(waiting)
		time.Sleep(ms)
		if waiting.count() != 0 {
			t.Error("mended while the server is down")
		}
		s.Answered(time.Now())
		time.Sleep(ms)
		if waiting.count() != 1 {
			t.Errorf("%d mends, want 1", waiting.count())
		}
	})
}
