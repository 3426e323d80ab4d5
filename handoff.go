package redislock

import (
	"strconv"
	"strings"
	"time"
)

// handOff is a grant that a release made to the first waiter in line, as its message reports it.
type handOff struct {
	at      int64 // by the server's clock, in µs
	fence   int64 // the fencing token; 0 for none
	arrived time.Time
}

// The words in the messages of the scripts, as in line.lua, release.lua and obtain.lua. The waiter's number comes first.
const (
	wordAfter   = "after"   // with a ttl in ms: somebody has taken the keys for that long
	wordGranted = "granted" // with the time and the fencing token: the waiter holds the keys
)

// notify acts on the words of a message after the waiter's number. Unknown words make the waiter try, which is never
// wrong.
func (w *waiter) notify(words string) {
	arrived := time.Now()
	word, rest, _ := strings.Cut(words, " ")
	switch first, second, _ := strings.Cut(rest, " "); word {
	case wordAfter:
		if ms, err := strconv.ParseInt(first, 10, 64); err == nil {
			w.mu.Lock()
			if due := arrived.Add(time.Duration(ms+1) * time.Millisecond); w.sooner.IsZero() || due.Before(w.sooner) {
				w.sooner = due
			}
			w.mu.Unlock()
			w.signal()
			return
		}
	case wordGranted:
		at, err := strconv.ParseInt(first, 10, 64)
		fence, bad := strconv.ParseInt(second, 10, 64)
		if err == nil && bad == nil {
			w.mu.Lock()
			w.handed = &handOff{at: at, fence: fence, arrived: arrived}
			w.mu.Unlock()
			w.signal()
			return
		}
	}
	w.wake()
}

// handedOver returns the last hand-off that a message reported, once. A hand-off from before the server's last answer
// is stale, because that answer shows what has become of the keys.
func (w *waiter) handedOver() *handOff {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.handed
	w.handed = nil
	if h == nil || w.sent.IsZero() || h.at < w.served {
		return nil
	}
	return h
}

// since returns a time at which the keys had certainly not been handed over yet. They last for the ttl from then on.
// The server handed them over some time after it ran the last answered try, which it did after that try was sent. The
// server's clock may run 1 % faster than ours, or jump, so no more time counts than has passed by our own clocks. The
// monotonic clock stands still while this machine is suspended, so the wall clock counts as well. If that was set back,
// only the time of the try counts.
func (w *waiter) since(h *handOff) time.Time {
	passed := time.Duration(h.at-w.served) * time.Microsecond
	passed -= passed / 100
	passed = min(passed, h.arrived.Sub(w.sent), h.arrived.Round(0).Sub(w.sent.Round(0)))
	return w.sent.Add(max(passed, 0))
}
