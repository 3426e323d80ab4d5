package inbox

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/keyname"
)

// Source is where messages come from.
type Source interface {
	// CanListen reports whether Listen can receive anything at all.
	CanListen() bool

	// Listen calls message for each message of the channel until ctx ends. It calls state when it begins and when it
	// ceases to receive messages. It blocks until ctx ends.
	Listen(ctx context.Context, channel string, state func(open bool), message func(payload string))
}

// Inbox is one channel with one subscription for all of its members. Its goroutine starts with the first Listen and
// ends some time after the last member has left. It is safe for concurrent use.
type Inbox struct {
	source Source
	name   string        // the end of the channel's name
	linger time.Duration // how long the subscription stays open after the last member

	mu      sync.Mutex // protects the fields below, and those of all Shares
	count   int        // number of members so far, without those of EnterAs
	members map[string]*Member
	stop    context.CancelFunc // ends the subscription; nil without one
	session int                // number of times that the subscription was started
	keepers int                // open Shares that make the present session linger
	open    bool               // messages arrive
	opened  int                // how often they have begun to arrive
	last    *time.Timer        // ends the subscription when it fires; nil while there are members
	doubts  doubts
}

// New returns an Inbox without members. Its name must be unique. It stays subscribed for linger after its last member
// has left, because the next one may come soon.
func New(source Source, name string, linger time.Duration) *Inbox {
	return &Inbox{source: source, name: name, linger: linger, members: map[string]*Member{}}
}

// Join returns a Share without members. If lingers is true, the subscription lingers from the Share's first Listen until
// its Close. Otherwise it may end with the last member.
func (b *Inbox) Join(lingers bool) *Share { return &Share{inbox: b, lingers: lingers} }

// enter adds a member. The caller holds b.mu.
func (b *Inbox) enter(s *Share, number string, notify func(words string)) *Member {
	m := &Member{share: s, id: b.name + "/" + number, number: number, notify: notify}
	b.members[number] = m
	s.members++
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
	return m
}

// begin starts the subscription. The caller holds b.mu.
func (b *Inbox) begin() {
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	state := func(open bool) { b.setOpen(ctx, open) }
	go b.source.Listen(ctx, keyname.InboxPrefix+b.name, state, b.deliver) // ends with ctx
}

// settle ends the subscription, now or later, if no member is left. The caller holds b.mu.
func (b *Inbox) settle() {
	switch {
	case len(b.members) > 0 || b.stop == nil:
	case b.keepers == 0:
		b.halt()
	case b.last == nil:
		b.last = time.AfterFunc(b.linger, b.stopIfEmpty)
	}
}

// stopIfEmpty ends the subscription if there are no members.
func (b *Inbox) stopIfEmpty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.members) == 0 {
		b.halt()
	}
}

// halt ends the subscription. The caller holds b.mu.
func (b *Inbox) halt() {
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
	b.doubts.cancel()
	if b.stop != nil {
		b.stop()
		b.stop, b.open = nil, false
	}
}

// setOpen notes whether messages arrive, unless the subscription of ctx has ended. Messages that were published before that
// are lost, so setOpen notifies every member when messages begin to arrive.
func (b *Inbox) setOpen(ctx context.Context, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	b.open = open
	if !open {
		return
	}
	b.opened++
	b.doubts.cancel() // they were about the subscription before this one
	for _, m := range b.members {
		m.notify("")
	}
}

// deliver passes a message to the member whose number it begins with. It drops messages for members that have left.
func (b *Inbox) deliver(message string) {
	number, words, _ := strings.Cut(message, " ")
	b.mu.Lock()
	b.doubts.missed = 0
	m := b.members[number]
	b.mu.Unlock()
	if m != nil {
		m.notify(words)
	}
}

// Share is the part of an Inbox that belongs to one user: some of its members. The end of one user does not change the
// Shares of others. A Share is safe for concurrent use.
type Share struct {
	inbox   *Inbox
	lingers bool

	// inbox.mu protects the fields below.
	members int
	session int // the last one in which it was among the keepers
	closed  bool
}

// Member gets the words of the messages that name it.
type Member struct {
	share      *Share
	id, number string
	notify     func(words string)
}

// ID returns the name by which a script can reach the member: the inbox's name, a slash and a number.
func (m *Member) ID() string { return m.id }

// Hears reports whether messages arrive, as far as is known.
func (s *Share) Hears() bool { return s.Subscription() != 0 }

// Subscription returns the number of the present subscription, or 0 if there is none whose messages arrive.
func (s *Share) Subscription() int {
	b := s.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open || b.doubts.subscription == b.opened {
		return 0
	}
	return b.opened
}

// Members returns the number of the Share's members.
func (s *Share) Members() int {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	return s.members
}

// Enter returns a new member. From now on, the inbox calls notify for each message for the member, with the words after its
// number. After a time when messages may have been lost, it calls notify with "". It does so in another goroutine. notify
// must not block and must not call the inbox.
func (s *Share) Enter(notify func(words string)) *Member {
	b := s.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	return b.enter(s, strconv.Itoa(b.count), notify)
}

// EnterAs is Enter with a number that the caller chooses: 16 digits, which no other member of the Inbox has.
func (s *Share) EnterAs(number string, notify func(words string)) *Member {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	return s.inbox.enter(s, number, notify)
}

// Leave removes a member of the Share.
func (s *Share) Leave(m *Member) {
	b := s.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.members[m.number] == m {
		delete(b.members, m.number)
		s.members--
		b.settle()
	}
}

// Listen starts the subscription, unless it was started before. It does not block.
func (s *Share) Listen() {
	b := s.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.closed || !b.source.CanListen() {
		return
	}
	if b.stop == nil {
		b.session++
		b.keepers = 0
		b.begin()
	}
	if s.lingers && s.session != b.session {
		s.session = b.session
		b.keepers++
	}
}

// Close makes the subscription linger no longer for this Share. Its members stay until they leave.
func (s *Share) Close() {
	b := s.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.session == b.session && s.session > 0 {
		b.keepers--
	}
	b.settle()
}
