package several

import "sync"

// If two waiters have the same ticket, their names decide who is first. All places must decide alike. Otherwise each of the
// two waiters is refused at some place, for ever. The names of all waiters of a process begin with the same random text, so
// all places agree about waiters of two processes. But two waiters of one process may have names in another order at each
// place, if they use different Redis clients there. So in one process, no two waiters at several places have the same
// ticket.

// tickets are the common tickets of the waiters at several places in this process.
var tickets = claims{taken: map[int64]struct{}{}}

type claims struct {
	mu    sync.Mutex // protects taken
	taken map[int64]struct{}
}

// claim returns the first ticket from this one on that no other waiter of the process has. The waiter drops it in the end.
func (c *claims) claim(ticket int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if _, taken := c.taken[ticket]; !taken {
			c.taken[ticket] = struct{}{}
			return ticket
		}
		ticket++
	}
}

// drop gives up a ticket.
func (c *claims) drop(ticket int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.taken, ticket)
}

// agree sets the common ticket, after the first round with a refusal. The caller holds t.mu.
func (t *Tries) agree() {
	if t.ticket > 0 {
		return
	}
	for _, a := range t.attempts {
		if !a.busy && a.Waiter.HasPlace() {
			t.ticket = max(t.ticket, a.Waiter.LastTicket())
		}
	}
	if t.ticket > 0 {
		t.ticket = tickets.claim(t.ticket)
	}
}
