package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// hold is the lock of a caller at one place.
type hold struct {
	claim
	life

	entry schedule.Entry // its place among the renewals
	lease lease.Lease    // life.mu protects it
}

func (h *hold) handle() *life { return &h.life }

func (h *hold) names() (keys []string, token string) { return h.keys.Names, h.token }

func (h *hold) tells() *Tracer { return h.place.tracer }

func (h *hold) validUntil() time.Time { return h.lease.Until() }

func (h *hold) knowsTTL() bool { return h.lease.TTL() > 0 }

func (h *hold) foundLost() *Lost { return nil }

func (h *hold) startRenewing() bool { return h.place.renewals.add((*holdUpkeep)(h)) }

func (h *hold) stopRenewing() { h.place.renewals.schedule.Remove((*holdUpkeep)(h)) }

func (h *hold) free(ctx context.Context, now, until time.Time) (LossCause, error) {
	h.life.mu.Lock()
	longest := h.lease.Longest() // no refresh begins any more
	h.life.mu.Unlock()
	return h.claim.free(ctx, now, until, longest)
}

// lose notes a loss that a reply has reported, and returns what to tell a Tracer after life.mu is unlocked, or nil for
// nothing. The caller holds life.mu.
func (h *hold) lose(l *script.Loss) *Lost {
	h.lease.End(time.Now())
	h.losses++
	h.ended = contextCause(l)
	if !h.released.IsZero() { // the Release may have freed the keys; if not, it reports the loss
		return nil
	}
	return endLost(h, lossCause(l), l.Keys, h.ended)
}
