package rules

import (
	"slices"
	"time"
)

// A lock is one handle of a lock.
type lock struct {
	w     *world
	token *token
	ttl   time.Duration // of the last call that a majority has confirmed
	holds []hold        // by place
	calls []*call       // those that may still gain something
	last  *call         // the last one that a majority has confirmed; nil before the grant

	end       time.Duration // until when it was valid when that was last in the future
	lapsed    time.Duration // when the end has passed; 0 for not
	ended     bool          // released, or never granted
	kept      bool
	verifying bool // a round of renewals is about to begin

	audit audit
}

func (w *world) newLock(t *token, ttl time.Duration) *lock {
	l := &lock{w: w, token: t, ttl: ttl, holds: make([]hold, len(w.servers))}
	t.handles++
	w.locks = append(w.locks, l)
	return l
}

// until returns the end of the validity: the need-th largest of the places that are held.
func (l *lock) until() time.Duration {
	var room [8]time.Duration
	ends := room[:0]
	for i := range l.holds {
		if h := &l.holds[i]; h.state == held || !l.w.on(foundLost) {
			ends = append(ends, h.until)
		}
	}
	return l.w.nth(ends)
}

// nth returns the need-th largest; 0 if there are fewer.
func (w *world) nth(ends []time.Duration) time.Duration {
	if len(ends) < w.need {
		return 0
	}
	slices.Sort(ends)
	if !w.on(needth) {
		return ends[len(ends)-1]
	}
	return ends[len(ends)-w.need]
}

func (l *lock) isValid() bool {
	return l.last != nil && !l.ended && l.lapsed == 0 && l.until() > l.w.now
}

// look notices a lapse. Nothing that the lock has gained before counts any more, nor does what is under way (6c, 8a). A loss
// is no lapse, although the lock is not valid while too few places are held: other answers to the same question, or grants,
// may be on their way.
func (l *lock) look() {
	if l.last == nil || l.lapsed > 0 || l.ended {
		return
	}
	if until := l.until(); until > l.w.now {
		l.end = until
	}
	if l.end > l.w.now {
		return
	}
	l.lapsed = l.w.now
	if l.w.on(lapseEnds) {
		l.endCalls()
		for i := range l.holds {
			l.holds[i].until = 0
		}
	}
	for i := range l.holds {
		if h := &l.holds[i]; h.state == acquiring || h.takes > 0 && l.w.on(lapseForgets) {
			l.miss(i)
		}
	}
	l.w.lapsed(l)
}

// miss notes that a place is known to be without the key, or counts as such.
func (l *lock) miss(i int) {
	h := &l.holds[i]
	h.become(missing)
	h.since = l.w.now
	if l.w.on(foundLost) {
		h.until = 0
	}
	l.remembers(i)
}

// lose notes that a place has said that the key is lost. The others are asked at once, so that it can be mended (9).
func (l *lock) lose(i int) {
	l.miss(i)
	l.look()
	switch {
	case !l.w.on(mendConfirmed):
		l.last.acquire(i)
	case l.lapsed == 0 && !l.verifying:
		l.verifying = true
		l.w.after(0, func() {
			l.verifying = false
			l.renew()
		})
	}
}

// obtain is one round of an Obtain.
func (l *lock) obtain(done func(granted bool)) {
	c := l.begin(obtain, l.ttl)
	c.done = done
	for i := range l.holds {
		c.acquire(i)
	}
	l.w.after(100*time.Millisecond, c.fail)
}

// attach makes a handle of a lock that another one has acquired.
func (l *lock) attach(done func(found bool)) {
	c := l.begin(attach, l.ttl)
	c.done = done
	for i := range l.holds {
		var left time.Duration
		r := &request{place: i}
		r.script = func(s *server) bool {
			left = s.expires - l.w.now
			return s.holds(l.token)
		}
		c.send(r, func(a answer) {
			if a != yes {
				l.miss(i)
				return
			}
			c.found(i, valid(r.sent, left))
		})
	}
	l.w.after(100*time.Millisecond, c.fail)
}

// refresh is a Refresh, for whose end its caller waits that long.
func (l *lock) refresh(ttl, wait time.Duration) {
	l.look()
	if l.ended {
		return
	}
	if l.w.on(refreshEnds) {
		l.endCalls()
	}
	for i := range l.holds {
		if h := &l.holds[i]; l.w.on(lowers) {
			h.until = min(h.until, valid(l.w.now, ttl))
			l.end = min(l.end, valid(l.w.now, ttl))
		}
	}
	c := l.begin(refresh, ttl)
	c.askAll()
	l.w.after(wait, func() {
		if l.w.on(abandoned) {
			c.fail()
		}
		l.w.settled(c)
	})
}

// renew is one round of renewals.
func (l *lock) renew() {
	l.look()
	if l.ended || l.lapsed > 0 {
		return
	}
	if l.w.on(commonRounds) {
		l.begin(renewal, l.ttl).askAll()
		return
	}
	for i := range l.holds {
		if l.holds[i].state == held {
			l.begin(renewal, l.ttl).ask(i)
		}
	}
}

// keep renews the lock until it is kept no longer: when a third of its validity is over, and then more often.
func (l *lock) keep() {
	l.kept = true
	var look func()
	look = func() {
		if !l.kept || l.ended || l.lapsed > 0 {
			return
		}
		if l.until()-l.w.now < 2*l.ttl/3 {
			l.renew()
		}
		l.w.after(ttl/10, look)
	}
	look()
}

// release is Release. It gives back the keys everywhere (10).
func (l *lock) release() {
	if l.ended {
		return
	}
	l.quit()
	l.endCalls()
	for i := range l.holds {
		l.holds[i].become(freed)
		l.w.giveBack(l.token, i)
	}
	l.w.released(l)
}

// quit ends a handle, and nothing else.
func (l *lock) quit() {
	l.ended = true
	l.token.handles--
}

// again is when a key is given back once more: a request that acquires may have been in the network.
const again = 100 * time.Millisecond

func (w *world) giveBack(t *token, i int) {
	for _, d := range []time.Duration{0, again} {
		w.after(d, func() {
			r := &request{w: w, place: i, script: func(s *server) bool { return s.release(t) }}
			r.begin()
		})
	}
}
