package line

import (
	"time"

	"github.com/redislock/redislock/internal/script"
)

// HandOff is a grant that a release has made to the first waiter in line, as its message reports it.
type HandOff struct {
	at      int64 // by the server's clock, in µs
	Fence   int64 // the fencing token; 0 for none
	arrived time.Time
}

// notify acts on the words of a message after the waiter's number.
func (w *Waiter) notify(words string) {
	arrived := time.Now()
	m := script.ReadMessage(words)
	if m.Kind == script.Marked {
		w.session.marked(w, &m)
		return
	}
	w.wake(func() {
		switch m.Kind {
		case script.Taken:
			w.trySooner(arrived.Add(m.After))
		case script.HandedOver:
			w.handed = &HandOff{at: m.At, Fence: m.Fence, arrived: arrived}
		default:
			w.called = true
		}
	})
}

// remind makes the waiter try after that time, when all of its keys are free and nobody is before it.
func (w *Waiter) remind(after time.Duration) {
	w.wake(func() {
		if after > 0 {
			w.trySooner(time.Now().Add(after + time.Millisecond))
		} else {
			w.called = true
		}
	})
}

// comeBack makes the waiter try, because its position may be lost.
func (w *Waiter) comeBack() { w.wake(func() { w.called, w.lost = true, true }) }

// wake makes Await look at what change has changed, which holds w.mu.
func (w *Waiter) wake(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// trySooner makes the next try due by then. The caller holds w.mu.
func (w *Waiter) trySooner(due time.Time) {
	if w.sooner.IsZero() || due.Before(w.sooner) {
		w.sooner = due
	}
}

// WasWoken reports whether a message has asked for a try now. sooner is the time by which a message has asked for a try;
// zero for none.
func (w *Waiter) WasWoken() (called bool, sooner time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.called, w.sooner
}

// heed forgets what messages have asked for, apart from a hand-off.
func (w *Waiter) heed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called, w.sooner = false, time.Time{}
}

// handedOver returns the last hand-off that a message has reported, once; nil for none. A hand-off from before the server's
// last answer is out of date, because that answer shows what has become of the keys.
func (w *Waiter) handedOver() *HandOff {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.handed
	w.handed = nil
	if h == nil || w.last.sent.IsZero() || h.at < w.last.served {
		return nil
	}
	return h
}

// Since returns a time before the server handed the keys over, from which their validity counts. The server did so some time
// after it ran the last answered try or a beat, and it ran these after they were sent. The time between the two comes from
// the server's clock, which may run 1 % faster than ours, or jump. So no more of it counts than has passed by our clocks.
// The monotonic clock stands still while this machine is suspended, so the wall clock counts as well. If the wall clock was
// set back, the validity counts from the sending.
func (w *Waiter) Since(h *HandOff) time.Time {
	from := w.session.lastBefore(h.at, h.arrived, w.last)
	passed := time.Duration(h.at-from.served) * time.Microsecond
	passed -= passed / 100
	passed = min(passed, h.arrived.Sub(from.sent), h.arrived.Round(0).Sub(from.sent.Round(0)))
	return from.sent.Add(max(passed, 0))
}
