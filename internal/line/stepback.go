package line

import (
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// The methods in this file are for an obtain that has several waiters at once, all with the same ticket.

// NewWith returns a waiter that sends to woken when a message comes, and has that number in its inbox. The caller chooses
// the number because, across slots, the waiters of one obtain may share an inbox.
func (l *Lines) NewWith(woken chan struct{}, number int64) *Waiter {
	w := l.New(nil)
	w.woken, w.number = woken, number
	return w
}

// TakeTicket gives the waiter a ticket. It reports whether the waiter had a different one.
func (w *Waiter) TakeTicket(ticket int64) (moved bool) {
	moved = w.ticket != 0 && w.ticket != ticket
	w.ticket = ticket
	return moved
}

// StepBack makes a release put the waiter back into its lines, with its ticket.
func (w *Waiter) StepBack(c *transport.Call) {
	w.share.Listen()
	w.session.stepBack(w, w.ticket)
	m, _ := w.session.markOf(w)
	script.AndStepBack(c, w.entry, w.ticket, m)
}

// PassOver puts the next try off, because the Redis of the waiter does not answer and is not asked. Otherwise, after a
// message, the obtain would try with its other waiters at once, again and again.
func (w *Waiter) PassOver(now time.Time) {
	if w != nil {
		w.heed()
		if w.member != nil {
			w.session.failed(w) // it is called back again when its Redis answers
		}
		w.tryAt(now.Add(Interval))
	}
}

// Due returns when the next try is due, and whether a message has asked for it now.
func (w *Waiter) Due() (next time.Time, called bool) {
	if !time.Now().Before(w.next) {
		w.restsOn()
	}
	called, next = w.WasWoken()
	if next.IsZero() || w.next.Before(next) {
		next = w.next
	}
	return next, called
}

// HasLost reports whether the position may be lost. Then the waiter must try even if its other places do not call it.
func (w *Waiter) HasLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// IsDeaf reports whether the waiter has a position, and no message can reach it.
func (w *Waiter) IsDeaf() bool { return w.HasPosition() && w.session.inbox.Subscription() == 0 }
