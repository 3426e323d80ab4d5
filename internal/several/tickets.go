package several

import "sync"

// Where two waiters have the same ticket, their names decide who is first. All places must decide alike, or each of the two
// would be refused at some of them for ever. The names of all waiters of a process begin alike, and those of another
// process begin otherwise, so all places agree about waiters of two processes. Waiters of one process may have other names
// at each place, in another order, because they may be there with different Redis clients. So no two of those that wait at
// several places have the same ticket.

// tickets are the common tickets of the waiters at several places in this process.
var tickets = claims{taken: map[int64]struct{}{}}

type claims struct {
	mu    sync.Mutex // protects taken
	taken map[int64]struct{}
}

// claim returns the first ticket, from this one on, that no other waiter of the process has. The waiter drops it in the
// end.
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
