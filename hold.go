package redislock

import (
	"context"
	"math"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
)

// hold is a lock at one place: the lock of a caller, or a part of one at several places.
type hold struct {
	life

	place    *place
	boxed    []any          // the keys and their lines; see box
	fenceKey string         // "" for none, or if attached
	of       *member        // what it is a part of; nil for the lock of a caller
	entry    schedule.Entry // its place among the renewals

	// life.mu protects the fields below.

	lease      lease.Lease
	release    *transport.Call // the last release, if it was not answered
	pursuit    *pursuit        // goes on with release; nil if nothing does
	unanswered *unanswered     // nil if each sending of the obtain was answered, and once that no longer matters
}

// member says of which lock a hold is a part, and at which of its places.
type member struct {
	whole *several
	at    int
}

// unanswered is what is known of those sendings of an obtain that were not answered, though a later one was. One that
// arrives after a Release acquires the keys again, or takes a place in line again.
type unanswered struct {
	waiter *waiter           // of the obtain; nil if there was none
	tries  []*transport.Call // that the waiter has abandoned; they may still be under way for long
	custom bool              // a later obtain may have the keys with the same token: only what was newly taken is released
}

func (h *hold) handle() *life { return &h.life }

// tells returns the Tracer of a caller's lock. A part tells what it is a part of.
func (h *hold) tells() *Tracer {
	if h.of != nil {
		return silent
	}
	return h.place.tracer
}

func (h *hold) validUntil() time.Time { return h.lease.Until() }

func (h *hold) knowsTTL() bool { return h.lease.TTL() > 0 }

func (h *hold) foundLost() *Lost { return nil }

func (h *hold) startRenewing(context.Context) bool { return h.place.renewals.add(h) }

func (h *hold) stopRenewing() { h.place.renewals.remove(h) }

func (h *hold) ttl(ctx context.Context) (time.Duration, error) {
	reply, err := h.place.ask("ttl", h.keys, &transport.Call{
		Script: pttlScript, Keys: h.boxed[:len(h.keys)], Token: h.token, Ctx: ctx,
	})
	if err != nil {
		return 0, err
	}
	left, ok := reply.(int64)
	switch {
	case !ok:
		return 0, failed("ttl", h.keys, unexpected(reply))
	case left < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(left) * time.Millisecond, nil
}

// leaseUntil returns the end of the validity.
func (h *hold) leaseUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease.Until()
}

// endLease ends the validity of a hold. Requests that are under way do not bring it back.
func (h *hold) endLease(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease.End(now)
}

// replace says that a hold is about to be obtained again.
func (h *hold) replace() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease.Replace()
}

// limit makes the validity of a hold that is about to be refreshed no longer than that ttl leaves.
func (h *hold) limit(ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease.Limit(time.Now(), ttl)
}

// isDoubtful reports whether a sending of the obtain was not answered, which may acquire the keys again later. It is of no
// use after a release.
func (h *hold) isDoubtful() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unanswered != nil
}

// lose notes that a reply has reported a loss, and returns what to tell a Tracer after h.mu is unlocked, or nil for
// nothing. The caller holds h.mu.
func (h *hold) lose(reply any) *Lost {
	h.lease.End(time.Now())
	h.losses++
	h.ended = readLossCause(h.keys, reply)
	lost, cause := readLostKeys(h.keys, reply)
	h.taken = cause == LossTaken
	if !h.released.IsZero() { // the Release may have freed the keys; if not, it reports the loss
		return nil
	}
	return h.endLost(h.tells(), cause, lost, h.ended)
}
