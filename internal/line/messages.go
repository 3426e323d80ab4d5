package line

import (
	"time"

	"github.com/redislock/redislock/internal/script"
)

// HandOff is a grant that a release made to the first waiter in line, as its message reports it.
type HandOff struct {
	at      int64 // by the server's clock, in µs
	Fence   int64 // the fencing token; 0 for none
	arrived time.Time
}

// notify acts on the words of a message after the waiter's number.
func (w *Waiter) notify(words string) {
	arrived := time.Now()
	switch m := script.ReadMessage(words); m.Kind {
	case script.Taken:
		w.mu.Lock()
		if due := arrived.Add(m.After); w.sooner.IsZero() || due.Before(w.sooner) {
			w.sooner = due
		}
		w.mu.Unlock()
		w.signal()
	case script.HandedOver:
		w.mu.Lock()
		w.handed = &HandOff{at: m.At, Fence: m.Fence, arrived: arrived}
		w.mu.Unlock()
		w.signal()
	case script.Turn:
		w.wake()
	}
}

// handedOver returns the last hand-off that a message reported, once. A hand-off from before the server's last answer
// is stale, because that answer shows what has become of the keys.
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

// Since returns a time at which the keys had certainly not been handed over yet. They last for the ttl from then on.
// The server handed them over some time after it ran the last answered try, which it did after that try was sent. The
// server's clock may run 1 % faster than ours, or jump, so no more time counts than has passed by our own clocks. The
// monotonic clock stands still while this machine is suspended, so the wall clock counts as well. If that was set back,
// only the time of the try counts.
func (w *Waiter) Since(h *HandOff) time.Time {
	passed := time.Duration(h.at-w.served) * time.Microsecond
	passed -= passed / 100
	passed = min(passed, h.arrived.Sub(w.sent), h.arrived.Round(0).Sub(w.sent.Round(0)))
	return w.sent.Add(max(passed, 0))
}
