package redislock

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// standing is what a lock has at one place.
//
// A request may be executed late, or after its caller has given up, and a server may forget. Three rules keep a lock from
// being valid on the strength of keys that somebody else may have held in between:
//
//   - A grant joins the lock only if it is newer than the hold that is there, and newer than all news that the place was
//     without the keys.
//   - Keys count for nothing while they may come from a call that has not made the hold.
//   - A place that does not count wants a repair. The calls that may still acquire or free the keys there are noted, so
//     that a Release gives back what they leave.
type standing struct {
	lock  *hold     // nil for none
	heard time.Time // when the last request was sent that confirmed it
	lost  []string  // the keys that another has there, or that are gone; nil for none

	missing  time.Time // since when a repair is wanted; zero if none is
	without  time.Time // when it became known last that the place was without the keys; zero if it never was
	unproven bool      // the keys may come from a call that has not made this hold; then missing is not zero
	refused  int       // how often the place has refused a repair at once

	mending bool // it is being repaired
	asking  bool // the obtain asks once more, since the lock was made
	stray   bool // a call that has ended may have acquired keys unnoticed, or may still do so
	giving  int  // how often the keys are being given back

	// The place had not answered when the lock was made. This is closed when its grant joins the lock, or comes too late
	// for that; nil if the place is not waited for.
	coming chan struct{}

	freed bool // a Release has freed it

	stop    context.CancelFunc // stops its renewals; nil if it is not kept
	renewed context.Context    // of these renewals, or of earlier ones
	failing bool               // a renewal has failed; see renewalFailed
}

// distrust makes a place count for nothing until it is repaired.
func (at *standing) distrust() { at.missing, at.unproven = time.Now(), true }

// isStuck reports whether a call that acquires the keys may be stuck, and arrive after another holder.
func (at *standing) isStuck() bool {
	return at.stray || at.mending || at.asking || at.lock != nil && at.lock.isDoubtful()
}

// counts reports whether the lock of a place counts for the validity: not if the fence counter there could not be raised.
func (h *several) counts(lock *hold) bool { return lock.fence > 0 || !h.isFenced() }

// isFenced reports whether the counter at the place of a new hold must be as high as the fencing token of the lock.
func (h *several) isFenced() bool { return h.fenceKey != "" && h.places.quorum }

// proves reports whether the hold at a place counts for the validity. The caller holds h.mu.
func (h *several) proves(i int) bool {
	at := &h.at[i]
	return at.lock != nil && h.counts(at.lock) && !at.unproven
}

// arrived ends the waiting for a place.
func (at *standing) arrived() {
	if at.coming != nil {
		close(at.coming)
		at.coming = nil
	}
}

// put adds a hold. The caller holds h.mu, or is alone.
func (h *several) put(i int, lock *hold) {
	lock.of = &member{h, i}
	at := &h.at[i]
	defer at.arrived()
	if at.stop != nil { // the place was obtained twice, and nothing else would stop the renewals of the first hold
		go at.stop()
	}
	if old := at.lock; old != nil {
		old.mu.Lock()
		lock.mu.Lock()
		lock.lease.Follow(&old.lease, lock.since)
		lock.mu.Unlock()
		old.released = time.Now() // the refreshes that still wait for their turn are for the new hold
		at.stray = at.stray || old.unanswered != nil
		old.mu.Unlock()
	}
	*at = standing{
		lock: lock, heard: lock.since, without: at.without, mending: at.mending, asking: at.asking, stray: at.stray,
		giving: at.giving, coming: at.coming,
	}
	switch {
	case !h.counts(lock): // the next repair may raise it
		at.missing = time.Now()
	case lock.fence < h.fence && h.isFenced(): // a majority with this place must mint a larger token next
		transport.Go(func() { // ends with the call
			defer func() { _ = recover() }() // a hook has panicked, and the lock is held without this
			h.raise(h.ctx, lock)
		})
	}
	if h.keeping != nil {
		h.keepAt(i)
	}
}

// raise raises the counter at the place of a new hold, and returns what it is then; 0 if that failed.
func (h *several) raise(ctx context.Context, hold *hold) int64 {
	n := len(hold.keys)
	counter, err := hold.place.fenceTo(ctx, hold.keys, hold.token, hold.boxed[:n:n], h.fenceKey, h.fence)
	if err != nil {
		return 0
	}
	return counter
}

// join adds a hold that was granted after the lock was made, or gives it back if the lock has ended. unsure says that the
// grant answers a resend, and an earlier request may still be stuck. repair says that a repair was granted, and has ended.
func (h *several) join(ctx context.Context, i int, lock *hold, unsure, repair bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := &h.at[i]
	at.mending = at.mending && !repair
	// Somebody else may have held the keys since the lock has lapsed, and one more hold must not make it valid again. Nor
	// does it last while the keys are being given back.
	if h.over || lease.Passed(h.untilLocked()) || at.giving > 0 {
		h.giveBack(ctx, i, lock.obtained, unsure)
		at.distrust()
		at.stray = true
		at.arrived()
		return
	}
	switch old := at.lock; {
	case old != nil && lock.since.Before(old.since): // the hold that is there knows more
		at.stray = at.stray || unsure
		return
	case lock.since.Before(at.without): // nobody knows which came first, the grant or the loss
		at.distrust()
		at.stray = true
		go h.mend()
		return
	}
	h.put(i, lock)
	h.untilLocked()
	if last := h.last; last.ttl > 0 && (last.ttl != lock.obtained || last.metadata != "" && last.metadata != lock.metadata) {
		lock.limit(last.ttl)                        // before anybody can read Until, which must not fall when the refresh begins
		transport.Go(func() { h.catchUp(i, last) }) // ends with the call
	}
}

// catchUp refreshes a hold that has joined the lock too late for the last Refresh. Otherwise the place would drop the lock
// when the ttl of the Obtain is over, and no renewal would bring it back.
func (h *several) catchUp(i int, last lastRefresh) {
	defer func() { _ = recover() }() // a hook has panicked, and the lock is held without this place
	_ = h.refreshAt(h.ctx, i, last)
}

// attachedTTL is for how long a release of an attached lock, whose ttl is not known, is resent.
const attachedTTL = time.Minute

// giveBack releases, in the background, what the token may have at a place. Until that has ended, the place is not obtained
// again. unsure says that a request which acquires may still be stuck. The caller holds h.mu.
func (h *several) giveBack(ctx context.Context, i int, ttl time.Duration, unsure bool) {
	p := h.places.all[i]
	n := len(p.keys)
	ttl = max(ttl, h.last.ttl, h.ttlLocked())
	if ttl == 0 { // of an attached lock
		ttl = attachedTTL
	}
	x := newCleanup(newRelease(ctx, h.token, p.boxed[:n:n], p.boxed[n:]), WhyLate, p.keys, ttl)
	x.again = unsure
	if p.inBackground(x, func() error { defer h.givenBack(i); return p.sweepNow(x) }) {
		h.at[i].giving++
	}
}

// givenBack notes that what giveBack began at a place has ended.
func (h *several) givenBack(i int) {
	h.mu.Lock()
	h.at[i].giving--
	h.at[i].without = time.Now()
	h.mu.Unlock()
	h.mend()
}

// miss notes that a place has no hold, because it has refused it, or otherwise. unsure says that it may have acquired
// keys unnoticed.
func (h *several) miss(i int, refused, unsure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := &h.at[i]
	if refused {
		at.without = time.Now()
	}
	at.stray = at.stray || unsure
	if h.over && unsure {
		h.giveBack(h.ctx, i, h.obtained, true)
	}
	if at.lock != nil { // it was obtained again meanwhile
		return
	}
	at.missing = time.Now()
	if at.lost == nil {
		at.lost = h.places.all[i].keys
	}
}

// ask notes that the obtain asks a place once more, or that this has ended.
func (h *several) ask(i int, asks bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[i].asking = asks
}
