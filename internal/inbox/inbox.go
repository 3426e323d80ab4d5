// Package inbox delivers messages to many members through one subscription. It knows channels and members. It knows
// nothing about keys, scripts or Redis.
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
	name   string // the end of the channel's name

	mu      sync.Mutex    // protects the fields below
	linger  time.Duration // how long the subscription stays open after the last member
	count   int           // number of members so far
	members map[string]*Member
	stop    context.CancelFunc // ends the subscription; nil without one
	open    bool               // messages arrive
	opened  int                // how often they have begun to arrive
	last    *time.Timer        // ends the subscription when it fires; nil while there are members
	closed  bool
}

// Member gets the words of the messages that name it.
type Member struct {
	id, number string
	notify     func(words string)
}

// ID returns the name by which a script can reach the member: the inbox's name, a slash and a number.
func (m *Member) ID() string { return m.id }

// New returns an Inbox without members. Its name must be unique. It stays subscribed for linger after its last member
// has left, because the next one may come soon.
func New(source Source, name string, linger time.Duration) *Inbox {
	return &Inbox{source: source, name: name, linger: linger, members: map[string]*Member{}}
}

// Hears reports whether messages arrive, as far as is known.
func (b *Inbox) Hears() bool { return b.Subscription() != 0 }

// Subscription returns the number of the present subscription, or 0 if there is none.
func (b *Inbox) Subscription() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return 0
	}
	return b.opened
}

// Members returns the number of members.
func (b *Inbox) Members() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.members)
}

// Enter returns a new member. From now on, each message for the member calls notify with the words after its number.
// After a time when messages may have been lost, notify is called with "". It is called from another goroutine; it must
// not block and must not call the inbox.
func (b *Inbox) Enter(notify func(words string)) *Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	return b.enter(strconv.Itoa(b.count), notify)
}

// EnterAs is Enter with a number that the caller chooses: 16 digits, which no other member has.
func (b *Inbox) EnterAs(number string, notify func(words string)) *Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enter(number, notify)
}

// enter adds a member. The caller holds b.mu.
func (b *Inbox) enter(number string, notify func(words string)) *Member {
	m := &Member{id: b.name + "/" + number, number: number, notify: notify}
	b.members[number] = m
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
	return m
}

// Leave removes the member.
func (b *Inbox) Leave(m *Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members, m.number)
	if len(b.members) == 0 && b.stop != nil {
		b.last = time.AfterFunc(b.linger, b.stopIfEmpty)
	}
}

// Listen starts the subscription, unless it was started before. It does not block.
func (b *Inbox) Listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil || b.closed || !b.source.CanListen() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	state := func(open bool) { b.setOpen(ctx, open) }
	go b.source.Listen(ctx, keyname.InboxPrefix+b.name, state, b.deliver) // ends with ctx
}

// stopIfEmpty ends the subscription if there are no members.
func (b *Inbox) stopIfEmpty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.members) == 0 {
		b.halt()
	}
}

// Close ends the subscription for good.
func (b *Inbox) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.halt()
}

// halt ends the subscription. The caller holds b.mu.
func (b *Inbox) halt() {
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
	if b.stop != nil {
		b.stop()
		b.stop, b.open = nil, false
	}
}

// setOpen notes whether messages arrive, unless the subscription of ctx has ended. Messages published before they began
// to arrive are lost, so it notifies every member.
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
	for _, m := range b.members {
		m.notify("")
	}
}

// deliver passes a message to the member whose number it begins with. It drops messages for members that have left.
func (b *Inbox) deliver(message string) {
	number, words, _ := strings.Cut(message, " ")
	b.mu.Lock()
	m := b.members[number]
	b.mu.Unlock()
	if m != nil {
		m.notify(words)
	}
}
