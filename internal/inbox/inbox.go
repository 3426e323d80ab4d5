// Package inbox wakes all waiters of a process through one subscription. It knows channels and members, and nothing of
// keys, scripts or Redis.
package inbox

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/keyname"
)

// Source is where messages come from.
type Source interface {
	// CanListen reports whether Listen hears anything at all.
	CanListen() bool

	// Listen calls message for each message of the channel until ctx ends, and state when it begins and ceases to hear
	// them. It blocks until ctx ends.
	Listen(ctx context.Context, channel string, state func(open bool), message func(payload string))
}

// Inbox is one channel, with one subscription, for all members. Its goroutine starts with the first Listen and ends
// some time after the last member has left. It is safe for concurrent use.
type Inbox struct {
	source Source
	name   string // ends the channel's

	mu      sync.Mutex    // protects what follows
	linger  time.Duration // how long the subscription outlives the last member
	count   int           // members so far
	members map[string]*Member
	stop    context.CancelFunc // ends the listening; nil while nobody listens
	open    bool               // messages arrive
	last    *time.Timer        // ends the listening when it fires; nil while there are members
	closed  bool
}

// Member is woken by messages that name it.
type Member struct {
	id, number string
	woken      chan struct{} // has room for one
}

// ID returns the name by which a script can wake the member: that of the inbox, a slash and a number.
func (m *Member) ID() string { return m.id }

// Woken returns a channel that has something to receive when a message has come since that was last received.
func (m *Member) Woken() <-chan struct{} { return m.woken }

func (m *Member) wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// New returns an Inbox without members, whose name nobody else has, and which goes on listening for linger after its
// last member has left: the next one may come soon.
func New(source Source, name string, linger time.Duration) *Inbox {
	return &Inbox{source: source, name: name, linger: linger, members: map[string]*Member{}}
}

// Hears reports whether messages arrive, as far as is known.
func (b *Inbox) Hears() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// Members returns how many members there are.
func (b *Inbox) Members() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.members)
}

// Enter returns a new member, which is woken from now on, as far as somebody listens.
func (b *Inbox) Enter() *Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	number := strconv.Itoa(b.count)
	m := &Member{id: b.name + "/" + number, number: number, woken: make(chan struct{}, 1)}
	b.members[number] = m
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
	return m
}

// Leave makes the inbox forget the member.
func (b *Inbox) Leave(m *Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members, m.number)
	if len(b.members) == 0 && b.stop != nil {
		b.last = time.AfterFunc(b.linger, b.rest)
	}
}

// Listen begins to listen, unless that was begun before. It does not block.
func (b *Inbox) Listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil || b.closed || !b.source.CanListen() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	state := func(open bool) { b.setOpen(ctx, open) }
	go b.source.Listen(ctx, keyname.InboxPrefix+b.name, state, b.wake) // ends with ctx
}

// rest ends the listening if there are no members.
func (b *Inbox) rest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.members) == 0 {
		b.halt()
	}
}

// Close ends the listening for good.
func (b *Inbox) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.halt()
}

// halt ends the listening. b.mu is held.
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

// setOpen notes whether messages arrive, unless the listening of ctx is over. What was published before is lost, so all
// members are woken when they begin to.
func (b *Inbox) setOpen(ctx context.Context, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	b.open = open
	for _, m := range b.members {
		if open {
			m.wake()
		}
	}
}

// wake wakes the member of that number.
func (b *Inbox) wake(number string) {
	b.mu.Lock()
	m := b.members[number]
	b.mu.Unlock()
	if m != nil {
		m.wake()
	}
}
