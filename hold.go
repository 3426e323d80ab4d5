package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// hold is the lock of a caller at one place.
type hold struct {
	claim
	life.Life

	entry schedule.Entry // its place among the renewals
	lease lease.Lease    // Life.Mu protects it
}

func (h *hold) Handle() *life.Life { return &h.Life }

func (h *hold) Names() (keys []string, token string) { return h.keys.Names, h.token }

func (h *hold) Events() *life.Events { return h.place.events }

func (h *hold) ValidUntil() time.Time { return h.lease.Until() }

func (h *hold) KnowsTTL() bool { return h.lease.TTL() > 0 }

func (h *hold) FoundLost() *life.Lost { return nil }

func (h *hold) StartRenewing() bool { return h.place.renewals.add((*holdUpkeep)(h)) }

func (h *hold) StopRenewing() { h.place.renewals.schedule.Remove((*holdUpkeep)(h)) }

func (h *hold) free(ctx context.Context, now, until time.Time) (life.Loss, error) {
	h.Life.Mu.Lock()
	longest := h.lease.Longest() // no refresh begins any more
	h.Life.Mu.Unlock()
	return h.claim.free(ctx, now, until, longest)
}

// lose notes a loss that a reply has reported, and returns what to tell after Life.Mu is unlocked, or nil for nothing. The
// caller holds Life.Mu.
func (h *hold) lose(l *script.Loss) *life.Lost {
	h.lease.End(time.Now())
	return life.Lose(h, lossOf(l), contextCause(l))
}
