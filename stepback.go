package redislock

import (
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// What a waiter offers to an obtain that stands in the lines of several places at once, with one ticket for all of them.

// newWaiterWith returns a waiter that signals woken when a message comes, and has that number in its inbox: across slots,
// the waiters of one obtain may share an inbox.
func newWaiterWith(l *lines, woken chan struct{}, number int64) *waiter {
	w := newWaiter(l)
	w.woken, w.number = woken, number
	return w
}

// takeTicket gives the waiter another ticket. It reports whether it had a different one.
func (w *waiter) takeTicket(ticket int64) (moved bool) {
	moved = w.ticket != 0 && w.ticket != ticket
	w.ticket = ticket
	return moved
}

// stepBack makes a release put the waiter back into its lines, with its ticket.
func (w *waiter) stepBack(c *transport.Call) {
	w.sent = time.Now() // it is a sign of life; without this, the place would be asked again at once
	script.AndStepBack(c, w.entry, w.ticket, w.life, w.isOpen())
	w.marked, w.waiting = w.opened, false
}

// passOver is for a waiter whose place is not asked, because it does not answer. Otherwise a message would make the other
// places be asked at once, again and again.
func (w *waiter) passOver(now time.Time) {
	if w != nil {
		w.heed()
		w.next = now.Add(waiterInterval)
	}
}

// tooLate is for a waiter whose grant came too late: it tries again at once.
func (w *waiter) tooLate() {
	if w != nil {
		w.next = time.Now().Add(time.Millisecond)
	}
}

// due returns when the next try is due, and whether a message has asked for it now.
func (w *waiter) due() (next time.Time, called bool) {
	called, next = w.wasWoken()
	if next.IsZero() || w.next.Before(next) {
		next = w.next
	}
	return next, called
}

// signDue returns by when the waiter must give a sign of life; the zero time if it has no place. failed says that its place
// hangs or has failed: then it tries no sooner than it would anyway, or all places would be asked at once.
func (w *waiter) signDue(failed bool) time.Time {
	if w.ticket == 0 || w.sent.IsZero() {
		return time.Time{}
	}
	sign := w.sent.Add(w.interval)
	if failed && sign.Before(w.next) {
		return w.next
	}
	return sign
}

// isDeaf reports whether the waiter has a place, and no message can reach it.
func (w *waiter) isDeaf() bool { return w.hasPlace() && !w.inbox.Hears() }
