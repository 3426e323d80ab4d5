package several_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// trouble is what happens to the messages between one client and one server; nothing for the zero value.
type trouble struct {
	requests, replies bool
	script            string        // only to requests that run it; "" for all
	often             int           // to one in so many
	late              time.Duration // they are late by up to so much; 0: they are lost
}

var troubles = []trouble{
	{requests: true, often: 1}, // the client is cut off
	{replies: true, often: 1},  // it hears nothing
	{requests: true, replies: true, often: 2, late: 750 * time.Millisecond},
	{requests: true, often: 2, late: 1500 * time.Millisecond},
	{replies: true, often: 2, late: 1500 * time.Millisecond},
	{requests: true, often: 1, late: 3 * time.Second, script: "obtain"},
	{requests: true, often: 1, late: 750 * time.Millisecond, script: "release"},
	{requests: true, often: 1, script: "refresh"},
}

// bother is the fate of a message between a client and a server that have a trouble.
func (h *placesHistory) bother(delay *time.Duration, f *faultproxy.Action, t trouble, m faultproxy.Message) {
	happens := t.requests && !m.Reply && (t.script == "" || spec.Running(t.script)(m.Args)) || t.replies && m.Reply
	switch {
	case !happens || h.random.IntN(t.often) > 0:
	case t.late == 0:
		*f = spec.Lost(m)
	default:
		*delay = h.anyOf(t.late)
	}
}

// trouble sets what happens between the first client and a server from now on.
func (h *placesHistory) trouble(server *spec.MemoryServer, t trouble) {
	h.fates.Lock()
	defer h.fates.Unlock()
	h.troubles[server] = t
}

// settle ends all troubles.
func (h *placesHistory) settle() {
	h.fates.Lock()
	defer h.fates.Unlock()
	clear(h.troubles)
}

// fidget obtains a lock. It refreshes it to random ttls, keeps it for a while, lets it lapse and refreshes it again, while
// troubles come and go.
func (h *placesHistory) fidget() {
	opt := &redislock.Options{Queue: h.intN(2) == 0, RetryStrategy: redislock.LinearBackoff(3 * time.Millisecond)}
	if h.intN(2) == 0 {
		h.settle()
	}
	c := h.claim(h.clients[0], opt)
	if c == nil {
		return
	}
	lock, background := c.lock, context.Background()
	stop := context.CancelFunc(func() {})
	defer func() { stop() }()
	for steps, lost := 3+h.intN(15), false; steps > 0 && !lost; steps-- {
		switch h.intN(8) {
		case 0, 1:
			lost = h.refresh(lock)
		case 2, 3:
			h.trouble(h.fromAny()[0], troubles[h.intN(len(troubles))])
		case 4:
			h.settle()
		case 5:
			stop()
			if h.intN(2) == 0 {
				_, stop = lock.KeepAlive(background)
			}
		case 6:
			if h.intN(2) == 0 {
				time.Sleep(time.Until(lock.Until()))
			}
			time.Sleep(h.upTo(h.ttl / 5))
		case 7:
			lost = h.strand(lock)
		}
		time.Sleep(h.upTo(20 * time.Millisecond))
	}
	stop()
	limited, cancel := context.WithTimeout(background, 10*time.Millisecond+h.upTo(300*time.Millisecond))
	defer cancel()
	h.release(limited, lock)
}

// refresh refreshes a lock to a random ttl. It reports whether the lock is lost.
func (h *placesHistory) refresh(lock *redislock.Lock) (lost bool) {
	ttl := h.ttl / 8 << h.intN(5)
	limited, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond+h.upTo(300*time.Millisecond))
	defer cancel()
	return errors.Is(lock.Refresh(limited, ttl, h.metadata()), redislock.ErrNotObtained)
}

// strand makes one server miss a lock, so that it is to be obtained there again. Meanwhile the client hears nothing of
// others, and the lock lapses. Then it may come back. It reports whether the lock is lost.
func (h *placesHistory) strand(lock *redislock.Lock) (lost bool) {
	servers := h.fromAny()
	h.settle()
	if at := slices.IndexFunc(servers, func(s *spec.MemoryServer) bool { return h.isSpare(lock, s) }); h.kind.forgets && at >= 0 {
		servers = slices.Concat(servers[at:], servers[:at])
		servers[0].Memory.Del("a")
	}
	first := servers[0]
	h.trouble(first, troubles[2+h.intN(5)])
	h.refresh(lock)
	if h.intN(2) == 0 {
		h.refresh(lock)
	}
	time.Sleep(h.upTo(100 * time.Millisecond))
	for _, server := range servers[1:h.need] {
		h.trouble(server, troubles[h.intN(2)])
	}
	if h.intN(2) == 0 {
		h.refresh(lock)
	}
	if h.intN(3) == 0 {
		h.trouble(first, troubles[h.intN(len(troubles))])
	}
	time.Sleep(time.Until(lock.Until()) + h.upTo(h.ttl/4))
	if h.intN(2) == 0 {
		h.settle()
	}
	for tries := h.intN(6); tries > 0 && !lost; tries-- {
		lost = h.refresh(lock)
		time.Sleep(h.upTo(h.ttl / 8))
	}
	return lost
}

// isSpare reports whether a server may forget a lock that it holds: a majority of the others holds it for as long, even if
// all refreshes are executed that may still be on their way to them. TTLs alone do not say so. With three servers:
//
//  1. A Refresh to 200 ms is stuck on its way to 3. It is sent again, and all servers execute that.
//  2. A Refresh to 1.5 s follows, and all servers execute that. 1 and 2 make the lock valid for 1.5 s. What 3 says is
//     trusted for 200 ms only, because the first request may still arrive there.
//  3. 1 forgets. 2 and 3 hold the lock for 1.5 s.
//  4. The first request arrives at 3, which drops the key after 200 ms. Another caller acquires the keys at 1 and 3.
//
// The guarantees except that: of the others, only 2 has confirmed the lock for as long as it is valid.
func (h *placesHistory) isSpare(lock *redislock.Lock, server *spec.MemoryServer) bool {
	if !server.Has(lock, 0) {
		return false
	}
	left, others := server.Holders("a")[lock.Token()], 0
	for i, other := range h.servers {
		if other != server && other.Has(lock, left) && spec.Several(lock).CertainAt(i, left) == left {
			others++
		}
	}
	return others >= h.need
}
