package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// several is a lock on several places: a hold for each place, which refreshes, renews and releases the
// keys there. The whole is valid as long as enough of them are.
//
// several.mu may be locked while life.mu of the whole is, and life.mu of a hold while several.mu is; never the other way
// round.
type several struct {
	life

	places   *sites
	tracer   *Tracer
	closed   chan struct{} // closed by Close
	fenceKey string
	ctx      context.Context // never ends; has the values of the call that made the lock, for calls without a caller

	mu       sync.Mutex // protects the fields below
	at       []standing // by place
	end      time.Time  // the end of the validity when it was last seen not to have passed
	lapsedAt time.Time  // when that was seen to have passed; zero unless the lock has lapsed

	over    bool            // released or lost: nothing is added
	busy    int             // calls of Refresh under way
	shown   time.Time       // the end of the validity that a Tracer was last told of
	keeping context.Context // the values for renewals; nil unless the lock is kept
	last    lastRefresh
}

func (h *several) handle() *life { return &h.life }

func (h *several) tells() *Tracer { return h.tracer }

func (h *several) validUntil() time.Time { return h.until() }

func (h *several) knowsTTL() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ttlLocked() > 0
}

func (h *several) foundLost() *Lost {
	cause := h.loss()
	if cause == nil {
		return nil
	}
	return h.lose(cause)
}

// lose notes why the lock was lost. It returns what to tell a Tracer after life.mu is unlocked, or nil for nothing. The
// caller holds life.mu.
func (h *several) lose(cause error) *Lost {
	h.ended = cause
	return h.endLost(h.tracer, h.lossCause(), lostKeys(h.keys, cause), cause)
}

// lastRefresh is what the last Refresh has asked for.
type lastRefresh struct {
	ttl      time.Duration // 0 if there was none
	metadata string        // of the last Refresh that had any
}

// until returns the end of the validity.
func (h *several) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.untilLocked()
}

// untilLocked returns the end of the validity. As long as that has not passed, it follows the leases of the holds. Once it
// has passed, the lock has lapsed, and nothing that a hold has gained or gains from an earlier request counts any more:
//
//  1. A Refresh gains 10 s at server 2, and is lost at the others. The lock lapses, because it has no majority.
//  2. Server 2 forgets. Servers 2 and 3 grant the lock to somebody else.
//  3. A Refresh is confirmed by server 1, which has the keys from an earlier request. Server 2 does not answer.
//
// With the lease of step 1, two servers of three would now make the lock valid again. So a lapse ends all leases, and only
// revive makes the lock valid again. Whatever moves a lease must call untilLocked right after that, before the end passes.
//
// A loss is no lapse, although the lock is not valid while too few holds are left: one server may answer a Refresh that it
// has lost the keys before enough others, which are asked at the same time, confirm it. The end stays where it was then.
// The caller holds h.mu.
func (h *several) untilLocked() time.Time {
	if h.lapsedAt.IsZero() && lease.Passed(h.end) {
		h.lapsedAt = time.Now()
		for i := range h.at {
			if lock := h.at[i].lock; lock != nil {
				lock.endLease(h.lapsedAt)
			}
		}
	}
	if !h.lapsedAt.IsZero() {
		return h.end
	}
	end := h.leasesEnd()
	if !lease.Passed(end) {
		h.end = end
	}
	return end
}

// begin makes a new lock valid for as long as its holds are. The caller is alone.
func (h *several) begin() { h.end = h.leasesEnd() }

// revive notes that a majority has just confirmed a Refresh, and reports whether the lock is valid. If it had lapsed at that
// time, which was the last lapse when the Refresh began, it is valid again. A Refresh that began before the last lapse
// revives nothing, even if some of its requests were sent after that: others may have been confirmed before, and places that
// are stuck counted when it began. The caller holds h.mu.
func (h *several) revive(lapsedAt time.Time) bool {
	h.untilLocked() // it may have lapsed since
	if end := h.leasesEnd(); h.lapsedAt.Equal(lapsedAt) && !lease.Passed(end) {
		h.end, h.lapsedAt = end, time.Time{}
	}
	return !lease.Passed(h.untilLocked())
}

// leasesEnd returns the need-th largest end of the leases of the holds. The caller holds h.mu, or is alone.
func (h *several) leasesEnd() time.Time {
	var room [8]time.Time
	all := room[:0]
	for i := range h.at {
		if h.proves(i) {
			all = append(all, h.at[i].lock.leaseUntil())
		}
	}
	if len(all) < h.places.need {
		return time.Time{}
	}
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	return all[h.places.need-1]
}

func (h *several) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// numbers returns the numbers of the places that have a hold, or may get one in a moment: see await.
func (h *several) numbers() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var numbers []int
	for i := range h.at {
		if h.at[i].lock != nil || h.at[i].coming != nil {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// errNoHold is the result of a place that has not answered since the lock was made.
var errNoHold = errors.New("no hold")

// await waits for a place that had not answered when the lock was made, as long as for an answer of a server that nobody
// knows yet. If it did not wait, one more server that hangs would hold up a call which a majority answers. It returns the
// hold of the place; nil if there is none, and then whether its grant came too late and is given back.
func (h *several) await(ctx context.Context, i int) (lock *hold, late bool) {
	h.mu.Lock()
	lock, coming := h.at[i].lock, h.at[i].coming
	h.mu.Unlock()
	if lock != nil || coming == nil {
		return lock, false
	}
	timer := time.NewTimer(firstPatience)
	defer timer.Stop()
	select {
	case <-coming:
		lock = h.lockAt(i)
		return lock, lock == nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}

func (h *several) lockAt(i int) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].lock
}

// replaced returns the lock of a place, and what a hold that has replaced another is to be refreshed to.
func (h *several) replaced(i int) (*hold, lastRefresh) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].lock, h.last
}
