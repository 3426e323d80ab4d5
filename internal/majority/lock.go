package majority

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// Lock is one handle of a lock at several places. Its methods take the time and the answers of the places, and return
// what to ask. A Lock waits for nothing, and has no mutex: its owner must protect it. The package documentation lists
// the other duties of the owner. Numbers in comments are those of its rules.
type Lock struct {
	need  int
	holds []hold  // by place
	calls []*Call // those that may still gain something
	begun int     // how many calls have begun

	last   *Call         // the last call that a majority has confirmed; nil before the first
	ttl    time.Duration // of the last confirmed call that was no renewal; 0 if it is not known
	newest *Call         // the Refresh that began last; nil for none

	end    time.Time // the last end of the validity that was in the future when a method was called
	lapsed bool      // end has passed
}

// Acquiring returns a lock that is being acquired for that ttl, and the requests to all places. need places are a majority.
func Acquiring(places, need int, now time.Time, ttl time.Duration) (*Lock, []Request) {
	l := &Lock{need: need, holds: make([]hold, places)}
	requests := l.requests(l.begin(Obtain, now, ttl), acquiring, true)
	return l, requests
}

// Attaching returns a lock that another handle has acquired, and the requests to all places.
func Attaching(places, need int, now time.Time) (*Lock, []Request) {
	l := &Lock{need: need, holds: make([]hold, places)}
	requests := l.requests(l.begin(Attach, now, 0), acquiring, false)
	return l, requests
}

// Refresh begins a Refresh. It returns the requests to the places that are held. Places that are still being acquired
// are asked when they are held.
func (l *Lock) Refresh(now time.Time, ttl time.Duration, metadata string) (*Call, []Request) {
	l.look(now)
	l.endCalls() // 6b
	c := l.begin(Refresh, now, ttl)
	c.Metadata = metadata
	for i := range l.holds {
		l.limit(c, i, now) // 5
	}
	l.end = earlier(l.end, lease.ValidUntil(now, ttl))
	l.newest = c
	return c, l.requests(c, held, false)
}

// Renew begins a round of renewals. It returns the call, and the requests to the places that are held. The call is nil
// if the lock has ended, has lapsed, or has an unknown ttl.
func (l *Lock) Renew(now time.Time) (*Call, []Request) {
	l.look(now)
	if l.ttl == 0 || l.lapsed || l.holds[0].state == freed {
		return nil, nil
	}
	c := l.begin(Renewal, now, l.ttl)
	return c, l.requests(c, held, false)
}

func (l *Lock) begin(kind Kind, now time.Time, ttl time.Duration) *Call {
	l.begun++
	c := &Call{Kind: kind, Began: now, TTL: ttl, number: l.begun, parts: make([]part, len(l.holds))}
	l.calls = slices.DeleteFunc(l.calls, func(c *Call) bool {
		return c.over || c.IsConfirmed() && c != l.last && !c.isAsked()
	})
	l.calls = append(l.calls, c)
	return c
}

// requests returns requests to the places in that state.
func (l *Lock) requests(c *Call, in state, acquires bool) []Request {
	requests := make([]Request, 0, len(l.holds))
	for i := range l.holds {
		if l.holds[i].state == in {
			requests = append(requests, l.request(c, i, acquires))
		}
	}
	return requests
}

func (l *Lock) request(c *Call, i int, acquires bool) Request {
	h := &l.holds[i]
	if acquires {
		h.takes++
		h.asked = l.begun
	}
	c.parts[i].asked++
	return Request{Call: c, Place: i, Acquires: acquires, change: h.change}
}

// Abandon says that nobody waits for a call any longer. Unless a majority has confirmed the call, it gains nothing any
// more (6a).
func (l *Lock) Abandon(c *Call) { c.over = c.over || !c.IsConfirmed() }

// End ends the lock. From now on, the owner must release all keys, also those that are granted later (10).
func (l *Lock) End() {
	l.endCalls()
	for i := range l.holds {
		l.holds[i].become(freed)
	}
}

// Answer takes the answer to a request. Each request has exactly one.
func (l *Lock) Answer(r Request, now time.Time, a Answer) (out Outcome) {
	l.look(now)
	c, h := r.Call, &l.holds[r.Place]
	c.parts[r.Place].asked--
	c.sent = c.sent || a.Result != Unsent || a.Doubtful
	if r.Acquires && !a.Doubtful {
		h.takes--
	}
	if c == l.newest && !c.sent && !c.isAsked() {
		l.undo(c) // 5b, 5c
	}
	if h.change == r.change { // 8b
		out = l.heard(r, now, a)
	}
	l.look(now) // the lock may last until another time now
	if !c.over && !c.failed && l.fails(c, false) {
		c.failed, out.Failed = true, true
	}
	l.endFailed()
	return out
}

// heard takes an answer to a request that was made for the present state of its place.
func (l *Lock) heard(r Request, now time.Time, a Answer) (out Outcome) {
	c, h := r.Call, &l.holds[r.Place]
	switch finds := r.Acquires || c.Kind == Attach; {
	case a.Result == Confirmed:
		if finds {
			h.become(held)
		}
		out.Confirmed = l.confirm(c, r.Place, now, a.Until)
		if finds {
			out.Asks = l.missed(c, r.Place, now)
		}
	case r.Acquires:
		h.become(missing) // h.since stays
	case a.Result == Denied:
		out.Lost = c.Kind != Attach
		l.lose(r.Place)
	case c.Kind == Attach: // the next call asks whether the place has the key
		h.become(held)
	}
	return out
}

// limit makes a place last no longer than it will when it executes a Refresh that is sent from now on.
func (l *Lock) limit(c *Call, i int, now time.Time) {
	p, h := &c.parts[i], &l.holds[i]
	p.was, p.change = h.until, h.change
	h.until = earlier(h.until, lease.ValidUntil(now, c.TTL))
	p.limit = h.until
}

// undo ends a Refresh that was sent to no place. The holds last as long as before, unless something else has changed
// how long they last.
func (l *Lock) undo(c *Call) {
	c.over = true
	for i := range l.holds {
		if p, h := &c.parts[i], &l.holds[i]; h.change == p.change && h.until.Equal(p.limit) {
			h.until = p.was
		}
	}
}

// miss notes that a place does not have the key, or counts as if it did not.
func (l *Lock) miss(i int) {
	h := &l.holds[i]
	h.become(missing)
	h.since, h.until = l.begun, time.Time{}
}

// lose notes that a place has said that it does not have the key. What the place has confirmed before does not count
// any more, also not for calls that a majority has yet to confirm (4b).
func (l *Lock) lose(i int) {
	l.miss(i)
	for _, c := range l.calls {
		c.parts[i].until = time.Time{}
	}
}

// missed returns requests to a place that has just got the key, for the other calls that are under way or confirmed last.
func (l *Lock) missed(c *Call, i int, now time.Time) (asks []Request) {
	for _, other := range l.calls {
		if other != c && !other.over && (!other.IsConfirmed() || other == l.last) {
			if other.Kind == Refresh {
				l.limit(other, i, now) // 5d
			}
			asks = append(asks, l.request(other, i, false))
		}
	}
	return asks
}

// confirm notes until when a place has confirmed a call. It reports whether a majority has now done so.
func (l *Lock) confirm(c *Call, i int, now, until time.Time) bool {
	if c.over {
		return false
	}
	c.parts[i].until = until
	if c.IsConfirmed() {
		l.count(c, i)
		return false
	}
	var space [room]time.Time
	ends := space[:0]
	for i := range c.parts {
		if p := &c.parts[i]; !p.until.IsZero() {
			ends = append(ends, p.until)
		}
	}
	end := nth(ends, l.need) // 2b
	if lease.PassedBy(now, end) {
		return false
	}
	c.until = end // 3
	for i := range c.parts {
		l.count(c, i)
	}
	l.last, l.lapsed = c, false
	if c.Kind != Renewal { // a renewal that began before a Refresh was confirmed has the ttl from before
		l.ttl = c.TTL
	}
	return true
}

// count makes a place that has confirmed a call count with the end of the call (3c).
func (l *Lock) count(c *Call, i int) {
	h, end := &l.holds[i], earlier(c.parts[i].until, c.until)
	if h.state == held && end.After(h.until) { // 4
		h.until = end
	}
}

// Missing returns the places where the owner may acquire the key again, with Mend: those that were known to be missing
// when the last confirmed call began (9). A place that was asked for the key before that call began, and has not
// answered, may be asked once more.
func (l *Lock) Missing(now time.Time) []int {
	if lease.PassedBy(now, l.Until(now)) || l.ttl == 0 { // 9c
		return nil
	}
	var places []int
	for i := range l.holds {
		h, number := &l.holds[i], l.last.number
		if (h.state == missing || h.state == acquiring && number > h.asked) && number > h.since { // 9b
			places = append(places, i)
		}
	}
	return places
}

// NeedsRound reports whether a new call, once it is confirmed, lets the owner acquire the key again at more places (9b).
func (l *Lock) NeedsRound(now time.Time) bool {
	if l.ttl == 0 || lease.PassedBy(now, l.Until(now)) {
		return false
	}
	return slices.ContainsFunc(l.holds, func(h hold) bool { return h.state == missing && l.last.number <= h.since })
}

// Mend begins to acquire the key again at a place that Missing has just returned.
func (l *Lock) Mend(i int) Request {
	l.holds[i].become(acquiring)
	return l.request(l.last, i, true)
}

// Until returns the end of the validity. It has passed if the lock has lapsed, has lost too many keys, or has ended.
func (l *Lock) Until(now time.Time) time.Time { return l.look(now) }

// HasLapsed reports whether the lock has lapsed, and no Refresh has been confirmed since.
func (l *Lock) HasLapsed(now time.Time) bool {
	l.look(now)
	return l.lapsed
}

// TTL returns the ttl of the Obtain, or of the last Refresh that a majority has confirmed; 0 if it is not known.
func (l *Lock) TTL() time.Duration { return l.ttl }

// IsHeld reports whether a place has the key, as far as is known.
func (l *Lock) IsHeld(i int) bool { return l.holds[i].state == held }

// IsAcquiring reports whether a place is being asked for the key.
func (l *Lock) IsAcquiring(i int) bool { return l.holds[i].state == acquiring }

// HeldUntil returns until when a place has the key, as far as is known; the zero time if it is not known to have it.
func (l *Lock) HeldUntil(i int) time.Time { return l.holds[i].heldUntil() }

// Fails reports whether no majority can confirm a call any more.
func (l *Lock) Fails(c *Call) bool { return l.fails(c, true) }

// fails is Fails. Unless it is patient, it does not count on places that are being acquired.
func (l *Lock) fails(c *Call, patient bool) bool {
	if c.IsConfirmed() {
		return false
	}
	can, open := 0, 0
	for i := range c.parts {
		switch p := &c.parts[i]; {
		case p.asked > 0, patient && l.holds[i].state == acquiring: // the place will be asked when it is held
			open++
		case !p.until.IsZero():
			can++
		}
	}
	return c.over || open == 0 || can+open < l.need // if none is open, enough places may have confirmed, but too late
}

// until returns the need-th largest end of the holds; the zero time if there are fewer.
func (l *Lock) until() time.Time {
	var space [room]time.Time
	ends := space[:0]
	for i := range l.holds {
		if h := &l.holds[i]; h.state == held { // 4
			ends = append(ends, h.until)
		}
	}
	return nth(ends, l.need)
}

// look notices a lapse, and returns what Until does. After a lapse, nothing that the lock gained before counts any
// more, and nor does anything that is under way (6c, 8a). A loss is no lapse, although the lock is not valid while too
// few places are held: other answers to the same question, or grants, may be on their way.
//
// look also finds holds whose own end has passed, although the lock goes on. They become missing, because their keys
// have probably expired. But a key has not if its place has confirmed a call that waits for other places.
func (l *Lock) look(now time.Time) (until time.Time) {
	switch {
	case l.lapsed:
		return l.end
	case l.last == nil, l.holds[0].state == freed:
		return time.Time{}
	}
	until = l.until()
	if !lease.PassedBy(now, until) {
		l.end = until
	}
	l.lapsed = lease.PassedBy(now, l.end)
	switch {
	case l.lapsed:
		l.endCalls()
		until = l.end
	case lease.PassedBy(now, until):
		l.forsake() // 4c
	}
	for i := range l.holds {
		h := &l.holds[i]
		switch {
		case !l.lapsed:
			if h.state == held && !h.until.IsZero() && lease.PassedBy(now, h.until) && !l.goesOn(i, now) {
				l.miss(i)
			}
		case h.state == acquiring || h.takes > 0: // 8a
			l.miss(i)
		default:
			h.until = time.Time{}
		}
	}
	return until
}

// forsake is for a lock that has too few places and has not lapsed. A server may forget such a lock, and need not have
// said so. So only a call that a majority has yet to confirm makes the lock valid again.
func (l *Lock) forsake() {
	for i := range l.holds {
		l.holds[i].until = time.Time{}
	}
	for _, c := range l.calls {
		c.over = c.over || c.IsConfirmed()
	}
}

// goesOn reports whether a call is under way that makes a place last longer once a majority confirms it.
func (l *Lock) goesOn(i int, now time.Time) bool {
	return slices.ContainsFunc(l.calls, func(c *Call) bool {
		return !c.over && !c.IsConfirmed() && !lease.PassedBy(now, c.parts[i].until)
	})
}

// endCalls ends all calls that are under way (6).
func (l *Lock) endCalls() {
	for _, c := range l.calls {
		c.over = true
	}
	l.calls = nil
}

// endFailed ends the calls that no majority can confirm any more.
func (l *Lock) endFailed() {
	for _, c := range l.calls {
		if l.Fails(c) {
			l.Abandon(c)
		}
	}
}

// room is the number of places up to which finding the end allocates nothing.
const room = 9

// nth returns the need-th largest of times; the zero time if there are fewer.
func nth(times []time.Time, need int) time.Time {
	if len(times) < need {
		return time.Time{}
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	return times[need-1]
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
