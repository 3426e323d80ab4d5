package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// handOff is a grant that a release has made to the first in line, as its message tells.
type handOff struct {
	at      int64 // by the clock of the server, in µs
	fence   int64 // the fencing token; 0 for none
	arrived time.Time
}

// The messages of the scripts; line.lua and its users have the words too. The number of the waiter comes first.
const (
	wordAfter   = "after"   // and ms: the keys are taken for so long
	wordGranted = "granted" // and the time and the fencing token: the keys are the waiter's
)

// notify takes over what a message says after the number of the waiter. What it does not know is a call to try: that is
// never wrong.
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

// handedOver returns the last hand-off there was a message about, once. One from before the last answer of the server is
// stale: what has become of those keys, the answer says.
func (w *waiter) handedOver() *handOff {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.handed
	w.handed = nil
	if h == nil || w.sent.IsZero() || h.at < w.served {
		return nil
	}
	return h
}

// since returns a time by which the keys had certainly not been handed over yet, from which on they last for the ttl. The
// server did that some time after it served the last answered try, which it did after that was sent. Its clock may run
// 1 % faster than ours, or jump: no more time has passed than ours say. The monotonic one stands still while this
// machine is suspended, so the wall clock is asked too; if that was set back, the try is what counts.
func (w *waiter) since(h *handOff) time.Time {
	passed := time.Duration(h.at-w.served) * time.Microsecond
	passed -= passed / 100
	passed = min(passed, h.arrived.Sub(w.sent), h.arrived.Round(0).Sub(w.sent.Round(0)))
	return w.sent.Add(max(passed, 0))
}

// inLine obtains by waiting in line: it tries, and waits for its turn, until the lock is granted by a try or handed over
// by a release, until an error ends the waiting, or until ctx ends or the Client is closed. It returns the error of the
// last try, and whether it was ctx that ended the waiting.
func (o *obtaining) inLine(ctx context.Context) (cut bool, err error) {
	for {
		again, err := o.attempt(ctx)
		if !again {
			return false, err
		}
		if !o.waiter.await(ctx, o.client.closed) {
			if ctx.Err() != nil {
				return true, err
			}
			return false, ErrClosed
		}
	}
}

// accept makes the lock of a hand-off. Like try, it reports whether another try makes sense.
func (o *obtaining) accept(ctx context.Context, h *handOff) (again bool, err error) {
	return o.grant(ctx, o.waiter.since(h), h.fence, o.keys)
}
