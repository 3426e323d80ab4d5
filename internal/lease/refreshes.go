package lease

import (
	"math"
	"slices"
	"time"
)

// Refreshes are the refreshes of one hold that may still be executed. They limit for how long a request that is executed
// beside them is certain to hold.
type Refreshes struct {
	underWay   []*Pending
	unanswered time.Duration // the least that those cut which ended without an answer and may still be executed; 0 for none
	longest    time.Duration // the largest ttl of all of these
}

// Pending is one refresh that is under way.
type Pending struct {
	ttl       time.Duration
	cuts      time.Duration // the ttl that it leaves to keys which last longer; forever if it only prolongs
	abandoned bool          // nobody waits for it any more
	writes    bool          // it writes more than the ttl, and has not failed: the next such refresh waits for it
	ended     chan struct{} // closed when none of its requests is under way any more
	least     time.Duration // the least of its own ttl and what the refreshes cut that were under way beside it
}

const forever time.Duration = math.MaxInt64

// Ended returns a channel that is closed when no request of the refresh is under way any more.
func (r *Pending) Ended() <-chan struct{} { return r.ended }

// Abandon says that nobody waits for the refresh any more, although it goes on.
func (r *Pending) Abandon() { r.abandoned, r.writes = true, false }

// Leave is Abandon for a refresh that has succeeded by the answers of other places. What it writes must not replace what a
// later refresh has written.
func (r *Pending) Leave() { r.abandoned = true }

// Add begins a refresh. prolongs says that it leaves keys alone which last longer, and writes that it writes more than the
// ttl.
func (f *Refreshes) Add(ttl time.Duration, prolongs, writes bool) *Pending {
	r := &Pending{writes: writes}
	f.add(r, ttl, prolongs)
	return r
}

func (f *Refreshes) add(r *Pending, ttl time.Duration, prolongs bool) {
	r.ttl, r.cuts, r.least, r.ended = ttl, ttl, ttl, make(chan struct{})
	if prolongs {
		r.cuts = forever
	}
	for _, other := range f.underWay { // nobody knows which is executed first
		r.least, other.least = min(r.least, other.cuts), min(other.least, r.cuts)
	}
	f.underWay = append(f.underWay, r)
}

// Finish ends a refresh.
func (f *Refreshes) Finish(r *Pending) {
	f.underWay = slices.DeleteFunc(f.underWay, func(other *Pending) bool { return other == r })
	close(r.ended)
}

// AreUnderWay reports whether any refresh is under way.
func (f *Refreshes) AreUnderWay() bool { return len(f.underWay) > 0 }

// Doubt notes that a refresh has ended without an answer and may still be executed.
func (f *Refreshes) Doubt(r *Pending) {
	f.longest = max(f.longest, r.ttl)
	if r.cuts != forever && (f.unanswered == 0 || r.cuts < f.unanswered) {
		f.unanswered = r.cuts
	}
}

// Ahead returns a refresh for which a new one for ttl has to wait, or nil if there is none: a refresh that a caller waits
// for, or an abandoned one that would shorten the ttl if it arrived later. Any other abandoned refresh does no harm. If a
// new refresh waited for it, a single lost reply would block all refreshes of a lock for as long as the Redis client waits
// for that reply.
func (f *Refreshes) Ahead(ttl time.Duration) *Pending { return ahead(f.underWay, ttl, false) }

// AheadOf is Ahead for a refresh that has begun. It looks only at refreshes that began before. A refresh that writes more
// than the ttl also waits for one that was left and writes more.
func (f *Refreshes) AheadOf(r *Pending) *Pending {
	return ahead(f.underWay[:slices.Index(f.underWay, r)], r.ttl, r.writes)
}

func ahead(refreshes []*Pending, ttl time.Duration, writes bool) *Pending {
	for _, other := range refreshes {
		if !other.abandoned || other.cuts < ttl || writes && other.writes {
			return other
		}
	}
	return nil
}

// Certain returns for how long a success for ttl is certain to hold: other refreshes may be executed after it.
func (f *Refreshes) Certain(ttl time.Duration) time.Duration {
	if f.unanswered > 0 {
		ttl = min(ttl, f.unanswered)
	}
	for _, other := range f.underWay {
		ttl = min(ttl, other.cuts)
	}
	return ttl
}

// Longest returns the largest ttl of all that may still be executed; 0 if there are none.
func (f *Refreshes) Longest() time.Duration {
	longest := f.longest
	for _, r := range f.underWay {
		longest = max(longest, r.ttl)
	}
	return longest
}
