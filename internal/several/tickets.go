package several

import "sync"

// If two waiters have the same ticket, their names decide who is first. All places must decide alike. Otherwise each of the
// two waiters is refused at some place, for ever. The names of all waiters of a process begin with the same random text, so
// all places agree about waiters of two processes. But two waiters of one process may have names in another order at each
// place, if they use different Redis clients there. So in one process, no two waiters at several places have the same
// ticket.

// tickets are the common tickets of the waiters at several places in this process.
var tickets = ticketSet{taken: map[int64]struct{}{}}

type ticketSet struct {
	mu    sync.Mutex // protects taken
	taken map[int64]struct{}
}

// take returns the first ticket from this one on that no other waiter of the process has. The waiter drops it in the end.
func (s *ticketSet) take(ticket int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if _, taken := s.taken[ticket]; !taken {
			s.taken[ticket] = struct{}{}
			return ticket
		}
		ticket++
	}
}

// drop gives up a ticket.
func (s *ticketSet) drop(ticket int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, ticket)
}

// agree sets the common ticket as soon as a place has put the waiter into its line, at the end of a round or when an answer
// comes after that. The caller holds t.mu.
func (t *Tries) agree() {
	if t.ticket > 0 || !t.queue {
		return
	}
	for _, a := range t.attempts {
		if !a.busy && a.Waiter.HasPosition() {
			t.ticket = max(t.ticket, a.Waiter.LastTicket())
		}
	}
	if t.ticket > 0 {
		t.ticket = tickets.take(t.ticket)
	}
}

// Ticket returns the common ticket; 0 before a place has put the waiter into its line.
func (t *Tries) Ticket() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ticket
}
