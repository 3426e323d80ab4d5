// Package lease computes how long a hold on keys certainly lasts. It knows when requests were sent and for which ttl,
// uses both clocks of the machine, and allows for requests that were never answered. It knows nothing about Redis and
// waits for nothing.
package lease

import (
	"math/rand/v2"
	"slices"
	"time"
)

// ValidUntil returns the end of the validity that a request sent at that time gains: the ttl less 1 %, because clocks
// may run at slightly different speeds, and less 1 ms, because Redis keeps whole milliseconds.
func ValidUntil(sent time.Time, ttl time.Duration) time.Time {
	ttl = ttl.Truncate(time.Millisecond)
	return sent.Add(ttl - ttl/100 - time.Millisecond)
}

// Passed reports whether t has passed by either clock. The monotonic clock stands still while a machine is suspended,
// and the wall clock can be set back.
func Passed(t time.Time) bool {
	now := time.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// Lease is how long one hold lasts, as far as its holder can know. The zero Lease has ended. A Lease does no locking;
// its owner must protect it.
type Lease struct {
	ttl        time.Duration // of the last grant or refresh; 0 if not known
	until      time.Time     // the end of validity
	refreshes  []*Refresh    // those under way
	begun      int           // number of refreshes so far, and of times that End was called
	unanswered time.Duration // the least ttl of refreshes that ended without an answer and may still be executed; 0 for none
	longest    time.Duration // the largest of these
	least      time.Duration // the least ttl of refreshes that were under way since Replace, or at all; 0 for none

	renewAt time.Time     // when it is to be renewed
	early   time.Duration // by how much earlier it may be renewed, to share a round trip
	retryAt time.Time     // no renewal before this time: one is under way, or has just failed
}

// Refresh is one refresh that is under way, or may be.
type Refresh struct {
	ttl       time.Duration
	abandoned bool          // nobody waits for it any more
	ended     chan struct{} // closed when none of its requests is under way any more
	before    time.Time     // the lease's until before Begin
	lowered   time.Time     // the lease's until after Begin
	number    int           // begun, after Begin
	least     time.Duration // the least ttl of those that were under way beside it, and its own
	void      bool          // the lease has ended since: a success gains nothing
}

// Ended returns a channel that is closed when no request of the refresh is under way any more.
func (r *Refresh) Ended() <-chan struct{} { return r.ended }

// Abandon says that nobody waits for the refresh any more, although it goes on.
func (r *Refresh) Abandon() { r.abandoned = true }

// Granted returns the Lease that a request sent at that time gained, for ttl.
func Granted(sent time.Time, ttl time.Duration) Lease {
	l := Lease{ttl: ttl}
	l.extend(sent, ValidUntil(sent, ttl))
	return l
}

// Found returns the Lease of a hold that a request sent at that time found to last for left. Its ttl is not known.
func Found(sent time.Time, left time.Duration) Lease {
	return Lease{until: ValidUntil(sent, left)}
}

// Replace says that the keys are about to be acquired again, and that the Lease of that grant will Follow this one.
func (l *Lease) Replace() {
	l.least = 0
	for _, r := range l.refreshes {
		l.least = lesser(l.least, r.ttl)
	}
}

// Follow makes the Lease of a grant sent at that time allow for the refreshes of the one that it replaces: those since
// Replace may have been executed after the grant, and those without an answer may still be executed.
func (l *Lease) Follow(old *Lease, sent time.Time) {
	l.unanswered, l.longest, l.least = old.unanswered, old.longest, old.least
	for _, r := range old.refreshes {
		l.Doubt(r)
	}
	if certain := lesser(old.least, l.unanswered); certain > 0 && certain < l.ttl {
		l.extend(sent, ValidUntil(sent, certain))
	}
}

// lesser returns the lesser of two ttls, of which 0 is none.
func lesser(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// TTL returns the ttl of the last grant or refresh, or 0 if it is not known.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Longest returns for how long the keys may last from now on, whatever the holder can rely on; 0 if it is not known.
func (l *Lease) Longest() time.Duration {
	longest := max(l.ttl, l.longest)
	for _, r := range l.refreshes {
		longest = max(longest, r.ttl)
	}
	return longest
}

// Until returns the end of validity.
func (l *Lease) Until() time.Time { return l.until }

// End ends the validity now, unless it ended before. A refresh or renewal that is under way does not bring it back.
func (l *Lease) End(now time.Time) {
	if now.Before(l.until) {
		l.until = now
	}
	l.begun++ // so that Renewed and Finish see that what they began with has passed
	for _, r := range l.refreshes {
		r.void = true
	}
}

// Ahead returns a refresh that a new one for ttl has to wait for, or nil if there is none: one that somebody waits for,
// or an abandoned one that would shorten the ttl if it arrived later. Any other abandoned refresh does no harm. Waiting
// for it would let a single lost reply block all refreshes of a lock for as long as the Redis client waits for that
// reply.
func (l *Lease) Ahead(ttl time.Duration) *Refresh {
	for _, other := range l.refreshes {
		if !other.abandoned || other.ttl < ttl {
			return other
		}
	}
	return nil
}

// Begin begins a refresh. If the new ttl is shorter, it brings the validity forward to what the new ttl leaves, because
// that ttl may apply as soon as the request is sent.
func (l *Lease) Begin(now time.Time, ttl time.Duration) *Refresh {
	r := &Refresh{ttl: ttl, ended: make(chan struct{}), before: l.until}
	r.least = ttl
	for _, other := range l.refreshes { // nobody knows which is executed first
		r.least, other.least = min(r.least, other.ttl), min(other.least, ttl)
	}
	l.refreshes = append(l.refreshes, r)
	l.least = lesser(l.least, ttl)
	l.begun++
	r.number = l.begun
	l.Limit(now, ttl)
	r.lowered = l.until
	return r
}

// Limit says that a refresh for ttl begins now or is about to. If that ttl is shorter, it brings the validity forward.
func (l *Lease) Limit(now time.Time, ttl time.Duration) {
	shorter := ValidUntil(now, ttl)
	if !shorter.Before(l.until) {
		return
	}
	validity := shorter.Sub(now)
	l.until, l.renewAt, l.early = shorter, earlier(l.renewAt, now.Add(validity/3)), validity/20
	l.retryAt = time.Time{} // the renewal before this had the patience of a longer validity
}

// Finish ends a refresh. If no request was sent, it restores the validity, unless another refresh has begun since: that may
// leave no more, although it did not have to bring the validity forward.
func (l *Lease) Finish(r *Refresh, sent bool) {
	if !sent && r.number == l.begun && l.until.Equal(r.lowered) {
		l.until = r.before
	}
	l.refreshes = slices.DeleteFunc(l.refreshes, func(other *Refresh) bool { return other == r })
	close(r.ended)
}

// Doubt notes that a refresh has ended without an answer and may still be executed.
func (l *Lease) Doubt(r *Refresh) {
	l.unanswered, l.longest = lesser(l.unanswered, r.ttl), max(l.longest, r.ttl)
}

// Confirm notes that a refresh sent at that time has succeeded.
func (l *Lease) Confirm(r *Refresh, sent time.Time) {
	l.ttl = r.ttl
	if r.void {
		return
	}
	// Renewals and other refreshes may have gained more meanwhile. They allowed for this one.
	if until := ValidUntil(sent, l.certain(r.least)); until.After(l.until) {
		l.extend(sent, until)
	}
}

// certain returns for how long a success for ttl is certain to hold: other refreshes may be executed after it.
func (l *Lease) certain(ttl time.Duration) time.Duration {
	if l.unanswered > 0 {
		ttl = min(ttl, l.unanswered)
	}
	for _, other := range l.refreshes {
		ttl = min(ttl, other.ttl)
	}
	return ttl
}

// extend sets the validity that a request sent at that time has gained.
func (l *Lease) extend(sent, until time.Time) {
	validity := until.Sub(sent)
	l.until, l.renewAt, l.early = until, sent.Add(validity/3), validity/20
	l.retryAt = time.Time{}
}

// Renewal is one renewal, and what was known when it was made.
type Renewal struct {
	TTL      time.Duration
	Until    time.Time     // of the lease
	Early    time.Duration // by how much earlier it may be sent
	Patience time.Duration // how long to wait for the answer before another renewal follows

	certain time.Duration // for how long a success is certain to hold
	begun   int           // of the lease, when the renewal was made
}

// Renew returns the renewal that is due at that time, and when to look at the lease again if the renewal has no result.
// If none is due, it returns nil and the time when one will be.
func (l *Lease) Renew(now time.Time) (*Renewal, time.Time) {
	switch {
	case now.Before(l.retryAt):
		return nil, earlier(l.until, l.retryAt)
	case now.Add(l.early).Before(l.renewAt):
		return nil, earlier(l.until, l.renewAt)
	}
	// Another renewal follows one that is not answered soon. Several fit into what is left, however little that is.
	patience := max(l.until.Sub(now)/4, l.leastPatience())
	l.retryAt = now.Add(patience)
	return &Renewal{
		TTL: l.ttl, Until: l.until, Early: l.early, Patience: patience, certain: l.certain(l.ttl), begun: l.begun,
	}, earlier(l.until, l.retryAt)
}

// leastPatience is the least time to wait for the answer to a renewal before another is sent: 50 ms, or less for a
// lease of under two seconds, so that four renewals fit into a tenth of the validity. It is never under 1 ms, because
// that would only keep the CPU busy.
func (l *Lease) leastPatience() time.Duration {
	const most, least = 50 * time.Millisecond, time.Millisecond
	return min(most, max(least, l.early/2)) // early is a twentieth of the validity
}

// Renewed notes that a renewal sent at that time has succeeded, and returns when to look at the lease next.
func (l *Lease) Renewed(r *Renewal, sent time.Time) time.Time {
	if r.begun == l.begun { // otherwise a refresh began meanwhile, and it is not known which was executed first
		if until := ValidUntil(sent, r.certain); until.After(l.until) {
			l.extend(sent, until)
		}
	}
	return earlier(l.until, l.renewAt)
}

// RenewalFailed notes that a renewal has failed, and returns when to look at the lease next. It reports false if the
// failure makes no difference, because another renewal or a refresh has succeeded since.
func (l *Lease) RenewalFailed(r *Renewal, now time.Time) (time.Time, bool) {
	if !r.Until.Equal(l.until) {
		return time.Time{}, false
	}
	pause := max(l.until.Sub(now)/16, l.leastPatience()/4)
	l.retryAt = now.Add(pause/2 + rand.N(pause)) // at random: renewals that failed together must not retry together
	return earlier(l.until, l.retryAt), true
}

// Due returns when to look at the lease, whatever is under way.
func (l *Lease) Due() time.Time { return earlier(l.until, l.renewAt) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
