package inbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock/internal/inbox"
)

// doubted is a member of an inbox that listens.
func doubted(t *testing.T, s *source, b *inbox.Share) *member {
	t.Helper()
	m := enter(b)
	b.Listen()
	s.listening()
	if s.state(true); !woken(m) || b.Subscription() != 1 {
		t.Fatal("does not hear")
	}
	return m
}

// The first doubt makes the inbox listen anew at once, without an end of what its members are told.
func TestDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Share) {
		m := doubted(t, s, b)
		old, _ := s.listening()
		b.Doubt(1)
		if b.Subscription() != 0 || b.Hears() {
			t.Error("a doubted subscription counts")
		}
		b.Doubt(1) // which several may notice
		again, begun := s.listening()
		if begun != 2 || old.Err() == nil || again.Err() != nil {
			t.Fatalf("%d listenings", begun)
		}
		if s.state(true); !woken(m) || b.Subscription() != 2 {
			t.Error("the new subscription does not count")
		}
		b.Doubt(1)
		if synctest.Wait(); b.Subscription() != 2 {
			t.Error("a doubt about an earlier subscription counts")
		}
		b.Leave(m.Member)
	})
}

// A doubt that does not help costs less and less.
func TestPausesGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Share) {
		m := doubted(t, s, b)
		// pause doubts the present subscription, and returns how long it stays.
		pause := func() time.Duration {
			doubt := time.Now()
			b.Doubt(b.Subscription())
			time.Sleep(6 * time.Minute)
			s.listening()
			at := s.at
			s.state(true)
			m.heard()
			return at.Sub(doubt)
		}
		want := []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
		for i, want := range want {
			if got := pause(); got.Seconds() != want {
				t.Errorf("pause %d is %v, not %v s", i, got, want)
			}
		}
		time.Sleep(10 * time.Minute)
		if got := pause(); got != 0 {
			t.Errorf("after a time of calm, the pause is %v", got)
		}
		if _, begun := s.listening(); begun != len(want)+2 {
			t.Errorf("%d listenings", begun)
		}
		b.Leave(m.Member)
	})
}

// What breaks by itself during a pause needs no replacement, and what ends gets none.
func TestReplacesOnlyWhatIsDoubted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Share) {
		m := doubted(t, s, b)
		b.Doubt(1)
		s.listening()
		s.state(true)
		b.Doubt(2)
		s.state(false)
		s.state(true)
		time.Sleep(time.Hour)
		if _, begun := s.listening(); begun != 2 || b.Subscription() != 3 {
			t.Errorf("%d listenings, subscription %d", begun, b.Subscription())
		}
		b.Doubt(3)
		s.listening()
		s.state(true)
		b.Doubt(4)
		b.Close()
		b.Leave(m.Member)
		time.Sleep(time.Hour)
		if ctx, begun := s.listening(); begun != 3 || ctx.Err() == nil {
			t.Errorf("%d listenings, or the last one goes on", begun)
		}
	})
}

// A message that was missed may be late. Only several in a row count, without one that arrives in between.
func TestMissedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Share) {
		m := doubted(t, s, b)
		for range 5 {
			b.Miss(1)
			b.Miss(1)
			s.message("9 of a member that has left")
			b.Miss(0)
		}
		if _, begun := s.listening(); begun != 1 || b.Subscription() != 1 {
			t.Error("doubted although messages arrive")
		}
		s.state(true) // one that was missed before this counts no more
		b.Miss(2)
		b.Miss(2)
		b.Miss(1)
		if synctest.Wait(); b.Subscription() != 2 {
			t.Error("doubted because of an earlier subscription")
		}
		b.Miss(2)
		if _, begun := s.listening(); begun != 2 || b.Subscription() != 0 {
			t.Error("not doubted")
		}
		b.Leave(m.Member)
	})
}
