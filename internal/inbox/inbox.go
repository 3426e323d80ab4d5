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

// Owner is told what no member is told. It must not block, and must not call the inbox.
type Owner interface {
	// Opened says that messages begin to arrive. again says that some may have been lost before that.
	Opened(again bool)

	// Stray takes the words of a message for a member that has left. id is as Member.ID.
	Stray(id, words string)
}

// Inbox is one channel with one subscription for all of its members. Its goroutine starts with the first Listen and
// ends some time after the last member has left. It is safe for concurrent use.
type Inbox struct {
	source Source
	name   string        // the end of the channel's name
	linger time.Duration // how long the subscription stays open after the last member
	owner  Owner

	mu      sync.Mutex // protects the fields below, and those of all Shares
	count   int        // number of members so far, without those of EnterAs
	members map[string]*Member
	stop    context.CancelFunc // ends the subscription; nil without one
	session int                // number of times that the subscription was started
	keepers int                // open Shares that make the present session linger
	open    bool               // messages arrive
	opened  int                // how often they have begun to arrive
	fresh   bool               // they have not begun to arrive in this session
	last    *time.Timer        // ends the subscription when it fires; nil while there are members
	doubts  doubts
}

// New returns an Inbox without members. Its name must be unique. It stays subscribed for linger after its last member
// has left, because the next one may come soon.
func New(source Source, name string, linger time.Duration, owner Owner) *Inbox {
	return &Inbox{source: source, name: name, linger: linger, owner: owner, members: map[string]*Member{}}
}

// Name returns the end of the channel's name, with which the ids of all members begin.
func (b *Inbox) Name() string { return b.name }

// Has reports whether there is a member with that number.
func (b *Inbox) Has(number string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.members[number] != nil
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
// are lost.
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
	b.owner.Opened(!b.fresh)
	b.fresh = false
}

// deliver passes a message to the member whose number it begins with.
func (b *Inbox) deliver(message string) {
	number, words, _ := strings.Cut(message, " ")
	b.mu.Lock()
	m := b.members[number]
	b.mu.Unlock()
	if m == nil {
		b.owner.Stray(b.name+"/"+number, words)
		return
	}
	m.notify(words)
}

// Subscription returns the number of the present subscription, or 0 if there is none whose messages arrive.
func (b *Inbox) Subscription() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open || b.doubts.subscription == b.opened {
		return 0
	}
	return b.opened
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

// Number returns the end of its ID.
func (m *Member) Number() string { return m.number }

// ID returns the name by which a script can reach the member: the inbox's name, a slash and a number.
func (m *Member) ID() string { return m.id }

// Members returns the number of the Share's members.
func (s *Share) Members() int {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	return s.members
}

// Enter returns a new member. From now on, the inbox calls notify for each message for the member, with the words after its
// number. It does so in another goroutine. notify must not block and must not call the inbox.
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
		b.keepers, b.fresh = 0, true
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
