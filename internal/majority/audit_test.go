package majority

import (
	"fmt"
	"slices"
	"time"
)

// A promise is what a schedule may break.
type promise string

const (
	exclusion promise = "no two callers have the lock"
	truth     promise = "a majority of the servers has what a lock relies on"
	finality  promise = "a lock that an operator has deleted is not valid again"
	turns     promise = "a lock that has lapsed is not valid again after another one was"
	tidiness  promise = "a lock that has ended leaves no key"
	keeping   promise = "a lock that is kept does not lapse while a majority answers"

	confirmation promise = "a call that is confirmed makes the lock valid until its end"
)

// An auditor holds a world to its promises. It knows everything.
type auditor struct {
	promise promise // that was broken first
	problem string  // how; empty if none was
	seen    [counts]int

	truthful bool          // truth is checked
	tidy     bool          // no request is lost or late, so a lock that is released leaves nothing at all
	calm     bool          // keeping is checked
	most     time.Duration // when all keys of a lock that has ended are gone; 0 for never

	turns []turn
	hung  time.Duration // when a server has begun to hang last
}

// What a schedule has seen, to tell that it has tested something.
const (
	grants = iota
	mends
	revivals
	attached
	forgets
	deletions
	overtakings
	undos
	counts
)

// A turn is when a lock became valid.
type turn struct {
	token *token
	at    time.Duration
}

// An audit is what the auditor knows of a lock.
type audit struct {
	granted   bool          // it was valid once
	end       time.Duration // the end of its validity, when it was last valid
	left      bool          // nobody uses the lock any more
	calm      bool          // it must not lapse while it is kept
	forgotten int           // servers that have forgotten it, a bit each, and have not said so
	excused   bool          // too many servers have forgotten it
}

func (a *auditor) broken(now time.Duration, p promise, format string, args ...any) {
	if a.problem == "" {
		a.promise, a.problem = p, fmt.Sprintf("after %v: ", now)+fmt.Sprintf(format, args...)
	}
}

// counts reports whether a lock must exclude all others now.
func (l *lock) counts() bool {
	return l.isValid() && !l.audit.excused && l.token.deleted == 0 && !l.token.released
}

// check looks whether two callers have the lock, and whether what a lock relies on is true.
func (w *world) check() {
	var holder *lock
	for _, l := range w.locks {
		w.follow(l)
		if !l.counts() {
			continue
		}
		if holder != nil && holder.token != l.token {
			w.broken(w.now, exclusion, "locks %d and %d are both valid, until %v and %v",
				holder.token.number, l.token.number, holder.lasts(), l.lasts())
		}
		holder = l
		if w.truthful && w.holding(l) < w.need {
			w.broken(w.now, truth, "lock %d is valid until %v, and %d servers have it until then",
				l.token.number, l.lasts(), w.holding(l))
		}
	}
}

// holding returns how many servers have a lock for as long as it is valid.
func (w *world) holding(l *lock) int {
	n, until := 0, l.lasts()
	for _, s := range w.servers {
		if s.holds(l.token) && s.expires >= until {
			n++
		}
	}
	return n
}

// unsent returns the Lock as it is if the Refresh that began last turns out to be sent to no server (5b).
func (l *lock) unsent() *Lock {
	if l.newest == nil || l.sent[l.newest] == nil || l.sent[l.newest].sent {
		return l.Lock
	}
	undone, c := *l.Lock, *l.newest
	undone.holds = slices.Clone(l.holds)
	undone.undo(&c)
	return &undone
}

// mayLast is lasts, or until when the lock will have been valid if it is as unsent says.
func (l *lock) mayLast() time.Duration {
	if l.lasts() == 0 {
		return 0
	}
	return max(l.lasts(), l.unsent().until().Sub(epoch))
}

// spares reports whether a lock has a majority without that server, for as long as it is valid, and as it may be by 5b.
func (w *world) spares(l *lock, without int) bool {
	return w.relies(l.Lock, l.token, without) && w.relies(l.unsent(), l.token, without)
}

// relies reports whether a majority without that server has a lock for as long as it is valid.
func (w *world) relies(l *Lock, t *token, without int) bool {
	n, until := 0, l.until()
	for i, s := range w.servers {
		h := &l.holds[i]
		if i != without && h.state == held && !h.until.Before(until) && s.holds(t) && !at(s.expires).Before(until) {
			n++
		}
	}
	return n >= w.need
}

// allSpare reports whether all locks have a majority without that server.
func (w *world) allSpare(i int) bool {
	for _, l := range w.locks {
		if l.counts() && !w.spares(l, i) {
			return false
		}
	}
	return true
}

// hasLapsed reports whether the validity of a lock has passed, whether the lock has noticed that or not.
func (l *lock) hasLapsed() bool { return l.audit.granted && l.audit.end <= l.w.now }

// follow notes when a lock becomes valid, and when it has lapsed.
func (w *world) follow(l *lock) {
	a := &l.audit
	for i := range l.holds {
		if l.holds[i].state == missing {
			l.remembers(i)
		}
	}
	switch lapsed := l.hasLapsed(); {
	case !l.isValid():
		if lapsed && a.calm && l.kept && l.token.deleted == 0 && !l.token.released {
			w.broken(w.now, keeping, "lock %d has lapsed", l.token.number)
		}
		return
	case !a.granted && l.last.Kind == Attach:
		w.seen[attached]++
	case !a.granted:
		w.seen[grants]++
		a.calm = w.calm && (w.hung == 0 || w.hung < l.call(l.last).began)
	case lapsed:
		w.seen[revivals]++
		for _, other := range w.turns {
			if other.token != l.token && other.at >= a.end && !l.token.shared {
				w.broken(w.now, turns, "lock %d lapsed after %v, and is valid again after lock %d was",
					l.token.number, a.end, other.token.number)
			}
		}
	}
	if !a.granted || l.hasLapsed() {
		w.turns = append(w.turns, turn{l.token, w.now})
	}
	a.granted, a.end = true, l.lasts()
}

// confirmed checks a call that a majority has just confirmed.
func (w *world) confirmed(c *call) {
	if t := c.lock.token; t.deleted > 0 && c.began > t.deleted {
		w.broken(w.now, finality, "lock %d is valid again, after its keys were deleted after %v", t.number, t.deleted)
	}
	if end := c.until.Sub(epoch); c.lock.lasts() < end {
		w.broken(w.now, confirmation, "a call is confirmed until %v, but lock %d is valid until %v",
			end, c.lock.token.number, c.lock.lasts())
	}
}

// released looks later at what a lock has left.
func (w *world) released(l *lock) {
	t := l.token
	t.released = t.released || l.last != nil
	look := func(after time.Duration) {
		w.after(after, func() {
			for i, s := range w.servers {
				if t.handles == 0 && s.holds(t) {
					w.broken(w.now, tidiness, "server %d has the key of lock %d, %v after its end", i+1, t.number, after)
				}
			}
		})
	}
	if w.tidy {
		look(again + 100*time.Millisecond)
	}
	if w.most > 0 {
		look(w.most)
	}
}

// executed notes that a server has confirmed a call, although the reply is yet to come.
func (w *world) executed(c *call, s *server, i int) {
	c.executed |= 1 << i
	if s.expires >= c.lock.mayLast() {
		c.lock.remembers(i)
	}
}

// remembers notes that a server has the key of a lock again, or that the lock knows that it has not.
func (l *lock) remembers(i int) {
	if l.audit.forgotten &^= 1 << i; l.audit.forgotten == 0 {
		l.audit.excused = false
	}
}

// mayForget reports whether a server may forget now: not between its confirmation of a call and that by a majority.
func (w *world) mayForget(i int) bool {
	for _, c := range w.open {
		if c.isOpen() && c.executed&(1<<i) != 0 {
			return false
		}
	}
	return true
}

// forget makes a server lose its data. A lock that too few others have is excused until all servers that have forgotten it
// have said so, because its caller cannot know.
func (w *world) forget(i int) {
	w.seen[forgets]++
	for _, l := range w.locks {
		if !w.servers[i].holds(l.token) {
			continue
		}
		if l.holds[i].state != missing {
			l.audit.forgotten |= 1 << i
		}
		if l.counts() && !w.spares(l, i) {
			l.audit.excused = l.audit.forgotten != 0
		}
	}
	w.servers[i].key = nil
}

// hang makes a server execute nothing for a while.
func (w *world) hang(i int, d time.Duration) {
	w.hung = w.now
	w.servers[i].hangs = w.now + d
}

// remains reports whether so many servers keep a lock, or may get it yet, that deleting it at the others is not final.
func (w *world) remains(t *token, deleted []bool) bool {
	n := 0
	for i, s := range w.servers {
		mended := t.acquiring[i] > 0
		for _, l := range w.locks {
			state := l.holds[i].state
			mended = mended || l.token == t && (state == missing || state == acquiring)
		}
		if mended || s.holds(t) && !deleted[i] {
			n++
		}
	}
	return n >= w.need
}

// remove is an operator who deletes the keys of a lock at some servers, a majority.
func (w *world) remove(t *token, at []bool) {
	w.seen[deletions]++
	t.deleted = w.now
	for i, s := range w.servers {
		if at[i] && s.key == t {
			s.key = nil
		}
	}
}
