package inbox_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// doubted is a member of an inbox that listens.
func doubted(t *testing.T, s *source, b *tested) *member {
	t.Helper()
	m := enter(b.Share)
	b.Listen()
	s.listening()
	if s.state(true); !b.hears() {
		t.Fatal("does not hear")
	}
	return m
}

// The first doubt makes the inbox listen anew at once, without an end of what its members are told.
func TestDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		m := doubted(t, s, b)
		old, _ := s.listening()
		b.inbox.Doubt(1)
		if b.hears() {
			t.Error("a doubted subscription counts")
		}
		b.inbox.Doubt(1) // which several may notice
		again, begun := s.listening()
		if begun != 2 || old.Err() == nil || again.Err() != nil {
			t.Fatalf("%d listenings", begun)
		}
		if s.state(true); b.inbox.Subscription() != 2 {
			t.Error("the new subscription does not count")
		}
		b.inbox.Doubt(1)
		if synctest.Wait(); b.inbox.Subscription() != 2 {
			t.Error("a doubt about an earlier subscription counts")
		}
		b.Leave(m.Member)
	})
}

// A doubt that does not help costs less and less.
func TestPausesGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		m := doubted(t, s, b)
		// pause doubts the present subscription, and returns how long it stays.
		pause := func() time.Duration {
			doubt := time.Now()
			b.inbox.Doubt(b.inbox.Subscription())
			time.Sleep(6 * time.Minute)
			s.listening()
			at := s.at
			s.state(true)
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
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		m := doubted(t, s, b)
		b.inbox.Doubt(1)
		s.listening()
		s.state(true)
		b.inbox.Doubt(2)
		s.state(false)
		s.state(true)
		time.Sleep(time.Hour)
		if _, begun := s.listening(); begun != 2 || b.inbox.Subscription() != 3 {
			t.Errorf("%d listenings, subscription %d", begun, b.inbox.Subscription())
		}
		b.inbox.Doubt(3)
		s.listening()
		s.state(true)
		b.inbox.Doubt(4)
		b.Close()
		b.Leave(m.Member)
		time.Sleep(time.Hour)
		if ctx, begun := s.listening(); begun != 3 || ctx.Err() == nil {
			t.Errorf("%d listenings, or the last one goes on", begun)
		}
	})
}
