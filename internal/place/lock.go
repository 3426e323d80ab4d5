package place

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/script"
)

// Lock is the lock of a caller. It is a life.Owner and an Upkeep.
type Lock struct {
	Hold
	life.Life

	Lease lease.Lease    // Life.Mu protects it
	entry schedule.Entry // in the schedule of renewals
}

// Exists reports whether l was obtained or attached to. The zero Lock was not.
func (l *Lock) Exists() bool { return l.Place != nil }

// Handle returns what the handle knows of the lock.
func (l *Lock) Handle() *life.Life { return &l.Life }

// Names returns the keys and the token.
func (l *Lock) Names() (keys []string, token string) { return l.Keys.Names, l.Token }

// Events returns the events that the owner of the Client wants.
func (l *Lock) Events() *life.Events { return l.Place.set.Events }

// ValidUntil returns the end of the validity. The caller holds Life.Mu.
func (l *Lock) ValidUntil() time.Time { return l.Lease.Until() }

// KnowsTTL reports whether the lock has a ttl for renewals. The caller holds Life.Mu.
func (l *Lock) KnowsTTL() bool { return l.Lease.TTL() > 0 }

// FoundLost returns nil, because Lose is called as soon as a reply reports a loss.
func (l *Lock) FoundLost() *life.Lost { return nil }

// StartRenewing starts the renewals. It returns false after Close.
func (l *Lock) StartRenewing() bool { return l.Place.Keeper.Add(l) }

// StopRenewing stops the renewals, unless the lock is kept again.
func (l *Lock) StopRenewing() { l.Place.Keeper.Remove(l) }

// Free does the work of a Release; see Hold.Release. until is the end of the validity before.
func (l *Lock) Free(ctx context.Context, until time.Time) (life.Loss, error) {
	l.Life.Mu.Lock()
	longest := l.Lease.Longest() // no refresh begins any more
	l.Life.Mu.Unlock()
	return l.Release(ctx, until, longest)
}

// lose notes a loss that a reply has reported. why is the reason for kept contexts. lose returns the event to send after
// Life.Mu is unlocked, or nil for none. The caller holds Life.Mu.
func (l *Lock) lose(loss script.Loss, why error) *life.Lost {
	l.Hold.Lose(loss, l.Lease.Until())
	if l.IsReleased() { // the Release may have freed the keys, and what a Refresh confirms counts for it all the same
		return nil
	}
	l.Lease.End(time.Now())
	return life.Lose(l, lossOf(loss), why)
}
