package line

import (
	"strconv"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// Hub is what the waiters of all Clients of one Redis client share: their inboxes, and the slots for tries with many keys.
// It is safe for concurrent use.
type Hub struct {
	redis  *transport.Redis
	source inbox.Source
	name   string // with which the names of its inboxes begin

	// Slots for tries with many keys; see Waiter.Admit.
	entering, staying chan struct{}

	mu       sync.Mutex // protects the fields below
	sessions map[string]*session
	names    int64 // how many names of inboxes were tried
}

// NewHub returns a hub whose inboxes listen to the source. No other hub, in this process or another one, may have this name.
func NewHub(redis *transport.Redis, source inbox.Source, name string) *Hub {
	return &Hub{
		redis: redis, source: source, name: name,
		entering: make(chan struct{}, maxBulk), staying: make(chan struct{}, maxBulk), sessions: map[string]*session{},
	}
}

const (
	// inboxLinger is how long an inbox stays subscribed after its last waiter, because the next one may come soon.
	inboxLinger = 10 * time.Second

	// maxNames is how many names are tried to find one that belongs to a certain node of a Cluster.
	maxNames = 10_000

	// bulk is the number of keys from which a try takes a while. All Clients of one Redis client together send maxBulk such
	// tries at a time, and maxBulk more of waiters that have a position.
	bulk, maxBulk = 256, 2
)

// sessionFor returns the session of waiters for the key. Each node of a Cluster has an inbox whose channel belongs to that
// node, so that go-redis subscribes there. From another node, messages would take the cluster bus. There, a second message
// within 40 ms waits for the acknowledgement of the first, which TCP delays for so long. If the channel has moved, those who
// come from now on have another session.
func (h *Hub) sessionFor(key string) *session {
	server := h.redis.Server(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[server]
	if s == nil || s.home != "" && h.redis.Server(keyname.InboxPrefix+s.inbox.Name()) != s.home {
		name, home := h.newName(server)
		s = newSession(h.redis, h.source, name, home)
		h.sessions[server] = s
	}
	return s
}

// newName returns the name of another inbox, and the server, if that is known and has the inbox's channel. No two inboxes
// have the same name: each counts its waiters from 1. The caller holds h.mu.
func (h *Hub) newName(server string) (name, home string) {
	for range maxNames {
		if name = h.name; h.names > 0 {
			name += "." + strconv.FormatInt(h.names, 36)
		}
		h.names++
		switch {
		case server == "":
			return name, ""
		case h.redis.Server(keyname.InboxPrefix+name) == server:
			return name, server
		}
	}
	return name, ""
}

// Lines are the lines in which the waiters of one Client stand. Set the exported fields before anything else. Lines are safe
// for concurrent use.
type Lines struct {
	Hub     *Hub
	Link    *transport.Link // of the Client
	Lingers bool            // subscriptions stay open for a while after the Client's last waiter

	mu     sync.Mutex // protects the fields below
	shares map[*inbox.Inbox]*inbox.Share
	closed bool
}

// shareOf returns the Client's share of the session's inbox.
func (l *Lines) shareOf(b *inbox.Inbox) *inbox.Share {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shares[b]
	if s == nil {
		s = b.Join(l.Lingers)
		if l.closed {
			s.Close()
		}
		if l.shares == nil {
			l.shares = map[*inbox.Inbox]*inbox.Share{}
		}
		l.shares[b] = s
	}
	return s
}

// Close ends the subscriptions that linger for the Client.
func (l *Lines) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, s := range l.shares {
		s.Close()
	}
}

// Count returns the number of waiters of the Client.
func (l *Lines) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.shares {
		n += s.Members()
	}
	return n
}
