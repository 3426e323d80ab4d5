package rules

import (
	"slices"
	"time"
)

type kind int

const (
	obtain kind = iota // one round
	attach
	refresh
	renewal // one round
)

// A call is one question to all places.
type call struct {
	kind
	lock  *lock
	ttl   time.Duration
	began time.Duration
	ends  []time.Duration      // by place: until when it has confirmed the call; 0 if it has not
	until time.Duration        // the need-th largest of these when a majority had confirmed the call; 0 before
	asked int                  // requests under way
	over  bool                 // it gains nothing any more
	done  func(confirmed bool) // nil if nobody waits

	executed int // by which servers, a bit each, whether they have said so or not; for the conditions
}

func (l *lock) begin(k kind, ttl time.Duration) *call {
	c := &call{kind: k, lock: l, ttl: ttl, began: l.w.now, ends: make([]time.Duration, len(l.holds))}
	l.calls = slices.DeleteFunc(l.calls, func(c *call) bool { return c.over || c.until > 0 && c.asked == 0 && c != l.last })
	l.calls = append(l.calls, c)
	l.w.open = append(l.w.open, c)
	return c
}

// endCalls ends all calls that are under way (6).
func (l *lock) endCalls() {
	for _, c := range l.calls {
		c.end()
	}
	l.calls = nil
}

func (c *call) end() {
	c.over = true
	c.lock.w.settled(c)
}

// fail ends a call, unless a majority has confirmed it.
func (c *call) fail() {
	if c.over || c.until > 0 {
		return
	}
	c.end()
	if c.kind == obtain {
		c.lock.release()
	}
	if c.done != nil {
		c.done(false)
	}
}

// failCalls ends the calls that no majority can confirm any more.
func (l *lock) failCalls() {
	for i := range l.holds {
		if l.holds[i].state == acquiring { // it will be asked when it is held
			return
		}
	}
	for _, c := range slices.Clone(l.calls) {
		if c.asked == 0 {
			c.fail()
		}
	}
}

// send sends a request for the call. heard is told the answer, if the lock has not changed its mind about the place (8b).
func (c *call) send(r *request, heard func(a answer)) {
	l := c.lock
	h := &l.holds[r.place]
	change, script, ended := h.change, r.script, r.ended
	r.w = l.w
	r.script = func(s *server) bool {
		executed := script(s)
		if executed {
			l.w.executed(c, s, r.place)
		}
		return executed
	}
	r.ended = func(a answer) {
		l.look()
		if ended != nil {
			ended(a)
		}
		if !l.ended && (h.change == change || !l.w.on(ofThisHold)) {
			heard(a)
		}
		c.asked--
		l.failCalls()
	}
	c.asked++
	r.begin()
}

// askAll asks the places that are held to confirm a Refresh or a renewal.
func (c *call) askAll() {
	for i := range c.ends {
		if c.lock.holds[i].state == held {
			c.ask(i)
		}
	}
}

func (c *call) ask(i int) {
	l := c.lock
	h, certain := &l.holds[i], c.ttl
	r := &request{place: i}
	r.script = func(s *server) bool { return s.refresh(l.token, c.ttl, c.kind == renewal) }
	r.sending = func() { certain = l.certain(i, c.ttl) }
	if c.kind == refresh {
		h.refreshes = append(h.refreshes, c.ttl)
		r.ended = func(answer) {
			if !r.unanswered {
				h.answered(c.ttl)
			}
		}
	}
	c.send(r, func(a answer) {
		switch {
		case a == yes:
			c.confirm(i, valid(l.w.counted(r), certain))
		case a == no && h.state == held:
			l.lose(i)
		}
	})
}

// acquire acquires the key at a place, for an Obtain, or where it is missing.
func (c *call) acquire(i int) {
	l := c.lock
	h, certain := &l.holds[i], c.ttl
	h.become(acquiring)
	h.takes++
	r := &request{place: i, takes: l.token}
	r.script = func(s *server) bool { return s.acquire(l.token, c.ttl) }
	r.sending = func() { certain = l.certain(i, c.ttl) }
	r.ended = func(a answer) {
		if !r.unanswered {
			h.takes--
		}
		late := l.ended && (a == yes || r.unanswered)
		if late && l.w.on(freesLate) || a == silence && !l.w.on(keepsWhileHeld) {
			l.w.giveBack(l.token, i)
		}
	}
	c.send(r, func(a answer) {
		if a != yes {
			c.refused(i)
			return
		}
		c.found(i, valid(l.w.counted(r), certain))
	})
}

// found notes that a place has the key, until that time. The calls that it has missed ask it now.
func (c *call) found(i int, until time.Duration) {
	l := c.lock
	l.holds[i].become(held)
	c.confirm(i, until)
	for _, other := range slices.Clone(l.calls) {
		if other != c && !other.over && (other.until == 0 || other == l.last) {
			other.ask(i)
		}
	}
}

// refused notes that a place has not granted the key. An Obtain ends when it can get no majority any more.
func (c *call) refused(i int) {
	l := c.lock
	l.miss(i)
	if l.last != nil {
		return
	}
	l.holds[i].since = -1
	refusals := 0
	for i := range l.holds {
		if l.holds[i].state == missing {
			refusals++
		}
	}
	if refusals > len(l.holds)-l.w.need {
		c.fail()
	}
}

// confirm notes that a place has confirmed the call until that time.
func (c *call) confirm(i int, until time.Duration) {
	l, w := c.lock, c.lock.w
	if c.over {
		return
	}
	c.ends[i] = until
	if c.until > 0 {
		c.count(i)
		return
	}
	if !w.on(sameCall) && l.last != nil || !w.on(commonRounds) && c.kind == renewal {
		l.holds[i].until = max(l.holds[i].until, until) // each place for itself
	}
	ends := slices.DeleteFunc(slices.Clone(c.ends), func(end time.Duration) bool { return end == 0 })
	if until := w.nth(ends); until > w.now {
		c.until = until
		c.confirmed()
	}
}

// count makes a place that has confirmed the call count with the end of the call (3c).
func (c *call) count(i int) {
	h, end := &c.lock.holds[i], c.ends[i]
	if c.lock.w.on(oneEnd) {
		end = min(end, c.until)
	}
	h.until = max(h.until, end)
}

// confirmed moves the end of the validity, because a majority has confirmed the call, and mends what was missing (9).
func (c *call) confirmed() {
	l := c.lock
	for i := range c.ends {
		if c.ends[i] > 0 {
			c.count(i)
		}
	}
	l.w.confirmed(c)
	l.last, l.ttl, l.lapsed = c, c.ttl, 0
	if c.done != nil {
		c.done(true)
	}
	for i := range l.holds {
		if h := &l.holds[i]; h.state == missing && (h.since <= c.began || !l.w.on(mendSince)) {
			l.w.seen[mends]++
			c.acquire(i)
		}
	}
}

// certain returns for how long a request for ttl that is sent to a place now is certain to hold.
func (l *lock) certain(i int, ttl time.Duration) time.Duration {
	if l.w.on(limits) {
		return l.holds[i].certain(ttl)
	}
	return ttl
}

// counted returns the time from which a confirmation counts (2).
func (w *world) counted(r *request) time.Duration {
	if w.on(fromSending) {
		return r.sent
	}
	return w.now
}
