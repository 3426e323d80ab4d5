package several

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/place"
)

// standing is how a lock stands at one of its places, apart from what its majority.Lock knows.
type standing struct {
	place.Claim

	// Lock.mu protects the fields below.

	lost      []string        // the keys that another has there, or that are gone; nil for none
	taken     bool            // another has some of them
	partly    bool            // some of them may still be ours: a refusal does not say which are another's
	refreshes lease.Refreshes // that may still be executed there
	lasts     time.Duration   // the ttl that the keys have been given there; 0 if that is not known
	refused   int             // how often the place has refused a mend since it had the keys last
	coming    chan struct{}   // closed when the place has answered the obtain; nil if it has, or is not asked
	releases  bool            // a Release frees the claim, and not only a cleanup
	freed     bool            // a Release has freed it
}

// hasSome reports whether the place may have some of the keys, as far as its last answers say.
func (at *standing) hasSome() bool { return at.partly || len(at.lost) < len(at.Keys.Names) }

// arrived ends the waiting for a place.
func (at *standing) arrived() {
	if at.coming != nil {
		close(at.coming)
		at.coming = nil
	}
}

// await waits for the answer of a place to the obtain, which had enough answers without it, as long as for an answer of a
// server that nobody knows yet. If it did not wait, one more server that hangs would hold up a call which a majority
// answers.
func (h *Lock) await(ctx context.Context, i int) {
	h.mu.Lock()
	coming := h.at[i].coming
	h.mu.Unlock()
	if coming == nil {
		return
	}
	timer := time.NewTimer(health.FirstPatience)
	defer timer.Stop()
	select {
	case <-coming:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// isHeld reports whether a place has the keys, as far as is known.
func (h *Lock) isHeld(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock.IsHeld(i)
}

// CertainAt returns for how long a key at a place certainly lasts, if it lasts for left now: refreshes that were not
// answered there may still be executed.
func (h *Lock) CertainAt(i int, left time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].refreshes.Certain(left)
}
