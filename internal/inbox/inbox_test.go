package inbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/testing/bubble"
)

const linger = 10 * time.Second

// source is a Source whose messages and states the test makes.
type source struct {
	deaf bool

	mu      sync.Mutex // protects what follows
	begun   int        // listenings so far
	at      time.Time  // of the last one
	channel string     // of the last one
	ctx     context.Context
	state   func(open bool)
	message func(payload string)
}

func (s *source) CanListen() bool { return !s.deaf }

func (s *source) Listen(ctx context.Context, channel string, state func(open bool), message func(payload string)) {
	s.mu.Lock()
	s.begun++
	s.at = time.Now()
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

// owner is an Owner that notes what it is told.
type owner struct {
	opened []bool   // again
	strays []string // id, a space and the words
}

func (o *owner) Opened(again bool)      { o.opened = append(o.opened, again) }
func (o *owner) Stray(id, words string) { o.strays = append(o.strays, id+" "+words) }

// tested is a Share with its Inbox.
type tested struct {
	*inbox.Share

	inbox *inbox.Inbox
	owner *owner
}

// hears reports whether messages arrive.
func (b *tested) hears() bool { return b.inbox.Subscription() != 0 }

// inBubble runs test on fake time, with a Share of an Inbox. The bubble fails if a goroutine outlives the Share and its
// members.
func inBubble(t *testing.T, test func(t *testing.T, s *source, b *tested)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s, b := &source{}, &tested{owner: &owner{}}
		b.inbox = inbox.New(s, "name", linger, b.owner)
		b.Share = b.inbox.Join(true)
		defer b.Close()
		test(t, s, b)
	})
}

// member is a Member with what it was told.
type member struct {
	*inbox.Member

	told chan string
}

func enter(b *inbox.Share) *member {
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
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		first, second := enter(b.Share), enter(b.Share)
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
		s.message("1000 granted 17 0")
		want := []string{"name/3 ", "name/name/1 ", "name/ ", "name/2 ", "name/1000 granted 17 0"}
		if woken(second) || !slices.Equal(b.owner.strays, want) {
			t.Errorf("messages for those who have left went to them, or not to the owner, who has %q", b.owner.strays)
		}
		if b.inbox.Has("2") || !b.inbox.Has("1") {
			t.Error("it does not know who its members are")
		}
		third := enter(b.Share)
		if third.ID() != "name/3" {
			t.Errorf("the number of one that has left was given to another: %q", third.ID())
		}
		if n := b.Members(); n != 2 {
			t.Errorf("%d members", n)
		}
		b.Leave(first.Member)
		b.Leave(third.Member)
	})
}

// What was published while nobody listened is lost, so the owner is told. At the first opening, there was nothing before.
func TestOpeningTellsTheOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		m := enter(b.Share)
		b.Listen()
		s.listening()
		for i := range 3 {
			if b.hears() {
				t.Error("hears before the source says so")
			}
			s.state(true)
			if n := b.inbox.Subscription(); n != i+1 {
				t.Errorf("subscription %d is number %d", i+1, n)
			}
			s.state(false)
		}
		if b.hears() || woken(m) || !slices.Equal(b.owner.opened, []bool{false, true, true}) {
			t.Errorf("the owner was told %v", b.owner.opened)
		}
		b.Leave(m.Member)
		time.Sleep(linger + time.Millisecond)
		m = enter(b.Share)
		b.Listen()
		s.listening()
		if s.state(true); !slices.Equal(b.owner.opened[3:], []bool{false}) {
			t.Errorf("of the next listening, the owner was told %v", b.owner.opened[3:])
		}
		b.Leave(m.Member)
	})
}

func TestListensOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		if _, begun := s.listening(); begun != 0 {
			t.Error("listens before it is asked to")
		}
		m := enter(b.Share)
		for range 3 {
			b.Listen()
		}
		if _, begun := s.listening(); begun != 1 {
			t.Errorf("%d listenings", begun)
		}
		b.Leave(m.Member)
	})
}

// The listening outlives the last member by linger, counted anew from each last one.
func TestLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		first := enter(b.Share)
		b.Listen()
		b.Leave(first.Member)
		time.Sleep(linger - time.Second)
		second := enter(b.Share)
		time.Sleep(time.Hour)
		ctx, _ := s.listening()
		s.state(true)
		if ctx.Err() != nil {
			t.Error("ended while there was a member")
		}
		b.Leave(second.Member)
		b.Leave(second.Member)
		time.Sleep(linger - time.Nanosecond)
		if ctx.Err() != nil || !b.hears() {
			t.Error("ended before its time")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); ctx.Err() == nil || b.hears() {
			t.Error("did not end")
		}
		third := enter(b.Share)
		s.state(true) // a late word of the listening that is over
		if b.hears() {
			t.Error("the old listening was believed")
		}
		b.Listen()
		if again, begun := s.listening(); begun != 2 || again.Err() != nil {
			t.Errorf("%d listenings", begun)
		}
		if s.state(true); !b.hears() {
			t.Error("the new listening was not believed")
		}
		b.Leave(third.Member)
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		first := enter(b.Share)
		b.Listen()
		ctx, _ := s.listening()
		s.state(true)
		b.Close()
		b.Close()
		if ctx.Err() != nil || !b.hears() {
			t.Error("ended although a member is left, which is about to leave")
		}
		b.Leave(first.Member)
		if ctx.Err() == nil || b.hears() {
			t.Error("still listens")
		}
		second := enter(b.Share)
		b.Listen()
		if _, begun := s.listening(); begun != 1 {
			t.Error("listens again after Close")
		}
		b.Leave(second.Member)
	})
}

// A listening that is closed while it lingers leaves no timer behind that could end another.
func TestCloseWhileLingering(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		member := enter(b.Share)
		b.Listen()
		b.Leave(member.Member)
		b.Close()
		if ctx, _ := s.listening(); ctx.Err() == nil {
			t.Error("still listens")
		}
	})
}

// Those who share an inbox share its listening. It lingers until the last one that lingers is closed.
func TestShares(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &source{}
		b := inbox.New(s, "name", linger, &owner{})
		first, second, short := b.Join(true), b.Join(true), b.Join(false)
		one, two, three := enter(first), enter(second), enter(short)
		if one.ID() != "name/1" || two.ID() != "name/2" || three.ID() != "name/3" {
			t.Errorf("members are %q, %q and %q", one.ID(), two.ID(), three.ID())
		}
		for _, share := range []*inbox.Share{first, second, short} {
			share.Listen()
		}
		ctx, begun := s.listening()
		if s.state(true); begun != 1 {
			t.Errorf("%d listenings", begun)
		}
		first.Leave(one.Member)
		first.Close()
		s.message("2")
		s.message("3")
		if !woken(two) || !woken(three) || second.Members() != 1 || first.Members() != 0 {
			t.Error("the end of one is the end of another")
		}
		second.Leave(two.Member)
		short.Leave(three.Member)
		if ctx.Err() != nil {
			t.Error("did not linger for the second")
		}
		time.Sleep(linger / 2)
		four := enter(short)
		short.Leave(four.Member)
		time.Sleep(linger - time.Nanosecond)
		if ctx.Err() != nil {
			t.Error("ended before its time")
		}
		second.Close()
		if ctx.Err() == nil {
			t.Error("lingers for nobody")
		}

		five := enter(short) // the second listening is for the short one alone
		short.Listen()
		ctx, begun = s.listening()
		if short.Leave(five.Member); begun != 2 || ctx.Err() == nil {
			t.Errorf("%d listenings, and the last one lingers for one that does not", begun)
		}
		short.Close()
	})
}

// A share that was not closed counts for the listening in which it listened, and for no other.
func TestForgottenShare(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &source{}
		b := inbox.New(s, "name", linger, &owner{})
		forgotten, short := b.Join(true), b.Join(false)
		for _, share := range []*inbox.Share{forgotten, short} {
			m := enter(share)
			share.Listen()
			share.Leave(m.Member)
			time.Sleep(2 * linger)
		}
		if ctx, begun := s.listening(); begun != 2 || ctx.Err() == nil {
			t.Errorf("%d listenings, or the last one goes on", begun)
		}
		m := enter(short)
		short.Listen()
		ctx, _ := s.listening()
		if short.Leave(m.Member); ctx.Err() == nil {
			t.Error("lingers for a share of an earlier listening")
		}
		m = enter(short)
		short.Listen()
		other := b.Join(true)
		kept := enter(other)
		other.Listen()
		forgotten.Close()
		short.Leave(m.Member)
		other.Leave(kept.Member)
		if ctx, _ := s.listening(); ctx.Err() != nil {
			t.Error("the end of a share of an earlier listening counts for this one")
		}
		other.Close()
	})
}

// A source that cannot hear is not asked to.
func TestDeafSource(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		s.deaf = true
		member := enter(b.Share)
		b.Listen()
		if _, begun := s.listening(); begun != 0 || b.hears() {
			t.Error("listens")
		}
		b.Leave(member.Member)
	})
}

// All methods may be called at once. The race detector looks on.
func TestConcurrently(t *testing.T) {
	inBubble(t, func(t *testing.T, s *source, b *tested) {
		var wait sync.WaitGroup
		ids := sync.Map{}
		for i := range 20 {
			wait.Go(func() {
				for range 50 {
					m := enter(b.Share)
					if _, twice := ids.LoadOrStore(m.ID(), true); twice {
						t.Errorf("%s was given twice", m.ID())
					}
					b.Listen()
					b.hears()
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
