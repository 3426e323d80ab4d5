package place

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// Hold is the lock of a caller at one place. It is a life.Bearer and an Upkeep.
type Hold struct {
	Claim
	life.Life

	Lease  lease.Lease    // Life.Mu protects it
	entry  schedule.Entry // in the schedule of renewals
	random bool           // the library chose the token, so no other lock has it; set before others know the lock
}

// Exists reports whether h is the hold of a lock that was obtained or attached to. The zero Hold is not.
func (h *Hold) Exists() bool { return h.Place != nil }

// Handle returns what the handle knows of the lock.
func (h *Hold) Handle() *life.Life { return &h.Life }

// Names returns the keys and the token.
func (h *Hold) Names() (keys []string, token string) { return h.Keys.Names, h.Token }

// Events returns the events that the owner of the Client wants.
func (h *Hold) Events() *life.Events { return h.Place.set.Events }

// ValidUntil returns the end of the validity. The caller holds Life.Mu.
func (h *Hold) ValidUntil() time.Time { return h.Lease.Until() }

// KnowsTTL reports whether the lock has a ttl for renewals. The caller holds Life.Mu.
func (h *Hold) KnowsTTL() bool { return h.Lease.TTL() > 0 }

// FoundLost returns nil, because Lose is called as soon as a reply reports a loss.
func (h *Hold) FoundLost() *life.Lost { return nil }

// StartRenewing starts the renewals. It returns false after Close.
func (h *Hold) StartRenewing() bool { return h.Place.Renewals.Add(h) }

// StopRenewing stops the renewals, unless the lock is kept again.
func (h *Hold) StopRenewing() { h.Place.Renewals.Remove(h) }

// Free does the work of a Release that began now; see Claim.Free. until is the end of the validity before the Release.
func (h *Hold) Free(ctx context.Context, now, until time.Time) (life.Loss, error) {
	h.Life.Mu.Lock()
	longest := h.Lease.Longest() // no refresh begins any more
	h.Life.Mu.Unlock()
	return h.Claim.Free(ctx, now, until, longest)
}

// lose notes a loss that a reply has reported. why is the reason for kept contexts. lose returns the event to send after
// Life.Mu is unlocked, or nil for none. The caller holds Life.Mu.
func (h *Hold) lose(l script.Loss, why error) *life.Lost {
	h.Lease.End(time.Now())
	return life.Lose(h, lossOf(l), why)
}
