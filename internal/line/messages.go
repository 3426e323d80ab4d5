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
	w.mu.Lock()
	switch m := script.ReadMessage(words); m.Kind {
	case script.Taken:
		if due := arrived.Add(m.After); w.sooner.IsZero() || due.Before(w.sooner) {
			w.sooner = due
		}
	case script.HandedOver:
		w.handed = &HandOff{at: m.At, Fence: m.Fence, arrived: arrived}
	case script.Turn:
		w.called = true
	}
	w.mu.Unlock()
	select { // Await looks at what has changed
	case w.woken <- struct{}{}:
	default:
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
	if w.called || !w.sooner.IsZero() || w.handed != nil {
		w.waiting = false
	}
	w.called, w.sooner = false, time.Time{}
}

// handedOver returns the last hand-off that a message has reported, once; nil for none. A hand-off from before the server's
// last answer is out of date, because that answer shows what has become of the keys.
func (w *Waiter) handedOver() *HandOff {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.handed
	w.handed = nil
	if h == nil || w.sent.IsZero() || h.at < w.served {
		return nil
	}
	return h
}

// Since returns a time before the server handed the keys over, from which their validity counts. The server did so some time
// after it ran the last answered try, and it ran that try after the try was sent. The time between the two comes from the
// server's clock, which may run 1 % faster than ours, or jump. So no more of it counts than has passed by our own clocks.
// The monotonic clock stands still while this machine is suspended, so the wall clock counts as well. If the wall clock was
// set back, the validity counts from the sending of the try.
func (w *Waiter) Since(h *HandOff) time.Time {
	passed := time.Duration(h.at-w.served) * time.Microsecond
	passed -= passed / 100
	passed = min(passed, h.arrived.Sub(w.sent), h.arrived.Round(0).Sub(w.sent.Round(0)))
	return w.sent.Add(max(passed, 0))
}
