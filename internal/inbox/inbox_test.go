package inbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock/internal/bubble"
	"github.com/redislock/redislock/internal/inbox"
)

const linger = 10 * time.Second

// source is a Source whose messages and states the test makes.
type source struct {
	deaf bool

	mu      sync.Mutex // protects what follows
	begun   int        // listenings so far
	channel string     // of the last one
	ctx     context.Context
	state   func(open bool)
	message func(payload string)
}

func (s *source) CanListen() bool { return !s.deaf }

func (s *source) Listen(ctx context.Context, channel string, state func(open bool), message func(payload string)) {
	s.mu.Lock()
	s.begun++
	s.ctx, s.channel, s.state, s.message = ctx, channel, state, message
	s.mu.Unlock()
	<-ctx.Done()
}

// listening returns the last listening there was, and how many there were.
func (s *source) listening() (ctx context.Context, begun int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx, s.begun
}

// inBubble runs test on fake time. The bubble fails if a goroutine outlives the inbox.
func inBubble(t *testing.T, test func(t *testing.T, s *source, b *inbox.Inbox)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s := &source{}
		b := inbox.New(s, "name", linger)
		defer b.Close()
		test(t, s, b)
	})
}

// member is a Member with what it was told.
type member struct {
	*inbox.Member

	told chan string
}

func enter(b *inbox.Inbox) *member {
	m := &member{told: make(chan string, 100)}
	m.Member = b.Enter(func(words string) { m.told <- words })
	return m
}

// heard returns what a member was told, once.
func (m *member) heard() (all []string) {
	for {
		select {
		case words := <-m.told:
			all = append(all, words)
		default:
			return all
		}
	}
}

func woken(m *member) bool { return len(m.heard()) > 0 }

func TestMessagesWakeWhomTheyName(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		first, second := enter(b), enter(b)
		if first.ID() != "name/1" || second.ID() != "name/2" {
			t.Errorf("members are %q and %q", first.ID(), second.ID())
		}
		b.Listen()
		s.listening()
		if s.channel != "redislock:inbox:name" {
			t.Errorf("listens to %q", s.channel)
		}
		s.message("2")
		s.message("2 granted 17 0")
		s.message("3")
		s.message("name/1")
		s.message("")
		if said := second.heard(); woken(first) || !slices.Equal(said, []string{"", "granted 17 0"}) {
			t.Errorf("the second alone should be told, and was told %q", said)
		}
		b.Leave(second.Member)
		s.message("2")
		if woken(second) {
			t.Error("woken after it had left")
		}
		if third := enter(b); third.ID() != "name/3" {
			t.Errorf("the number of one that has left was given to another: %q", third.ID())
		}
		if n := b.Members(); n != 2 {
			t.Errorf("%d members", n)
		}
	})
}

// What was published while nobody listened is lost, so everybody looks for themselves.
func TestOpeningWakesAll(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		first, second := enter(b), enter(b)
		b.Listen()
		s.listening()
		for i := range 2 {
			if b.Hears() || b.Subscription() != 0 {
				t.Error("hears before the source says so")
			}
			s.state(true)
			if n := b.Subscription(); n != i+1 {
				t.Errorf("subscription %d is number %d", i+1, n)
			}
			if !b.Hears() || !woken(first) || !woken(second) {
				t.Error("not everybody was woken")
			}
			s.state(false)
			if b.Hears() || woken(first) || woken(second) {
				t.Error("woken when the source heard nothing any more")
			}
		}
	})
}

func TestListensOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		if _, begun := s.listening(); begun != 0 {
			t.Error("listens before it is asked to")
		}
		enter(b)
		for range 3 {
			b.Listen()
		}
		if _, begun := s.listening(); begun != 1 {
			t.Errorf("%d listenings", begun)
		}
	})
}

// The listening outlives the last member by linger, counted anew from each last one.
func TestLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		first := enter(b)
		b.Listen()
		b.Leave(first.Member)
		time.Sleep(linger - time.Second)
		second := enter(b)
		time.Sleep(time.Hour)
		ctx, _ := s.listening()
		s.state(true)
		if ctx.Err() != nil {
			t.Error("ended while there was a member")
		}
		b.Leave(second.Member)
		b.Leave(second.Member)
		time.Sleep(linger - time.Nanosecond)
		if ctx.Err() != nil || !b.Hears() {
			t.Error("ended before its time")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); ctx.Err() == nil || b.Hears() {
			t.Error("did not end")
		}
		third := enter(b)
		s.state(true) // a late word of the listening that is over
		if b.Hears() || woken(third) {
			t.Error("the old listening was believed")
		}
		b.Listen()
		if again, begun := s.listening(); begun != 2 || again.Err() != nil {
			t.Errorf("%d listenings", begun)
		}
		if s.state(true); !b.Hears() || !woken(third) {
			t.Error("the new listening was not believed")
		}
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		member := enter(b)
		b.Listen()
		ctx, _ := s.listening()
		s.state(true)
		b.Close()
		b.Close()
		if ctx.Err() == nil || b.Hears() {
			t.Error("still listens")
		}
		b.Listen()
		if _, begun := s.listening(); begun != 1 {
			t.Error("listens again after Close")
		}
		b.Leave(member.Member)
		time.Sleep(2 * linger)
	})
}

// A listening that is closed while it lingers leaves no timer behind that could end another.
func TestCloseWhileLingering(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		member := enter(b)
		b.Listen()
		b.Leave(member.Member)
		b.Close()
		if ctx, _ := s.listening(); ctx.Err() == nil {
			t.Error("still listens")
		}
	})
}

// A source that cannot hear is not asked to.
func TestDeafSource(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		s.deaf = true
		member := enter(b)
		b.Listen()
		if _, begun := s.listening(); begun != 0 || b.Hears() {
			t.Error("listens")
		}
		b.Leave(member.Member)
	})
}

// All methods may be called at once. The race detector looks on.
func TestConcurrently(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *inbox.Inbox) {
		var wait sync.WaitGroup
		ids := sync.Map{}
		for i := range 20 {
			wait.Go(func() {
				for range 50 {
					m := enter(b)
					if _, twice := ids.LoadOrStore(m.ID(), true); twice {
						t.Errorf("%s was given twice", m.ID())
					}
					b.Listen()
					b.Hears()
					time.Sleep(time.Duration(i) * time.Second)
					b.Leave(m.Member)
				}
			})
		}
		wait.Wait()
		time.Sleep(linger)
		if ctx, _ := s.listening(); b.Members() != 0 || ctx.Err() == nil {
			t.Errorf("%d members are left, listening: %v", b.Members(), ctx.Err())
		}
	})
}
