package majority

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// A lock is one handle of a lock: a Lock, and what its owner does for it.
type lock struct {
	*Lock // nil before obtain or attach
	w     *world
	token *token
	ttl   time.Duration // of its Obtain
	sent  map[*Call]*call
	first *call // the Obtain or Attach, while somebody waits for it

	refreshes [][]time.Duration // by place: the ttl of each Refresh that is under way or was never answered
	ended     bool              // released, or never granted
	kept      bool
	verifying bool // a round of renewals is about to begin

	audit audit
}

// A call is a Call, and what its lock does not know.
type call struct {
	*Call
	lock     *lock
	began    time.Duration
	done     func(confirmed bool) // of an Obtain or an Attach
	executed int                  // by which servers, a bit each, whether they have said so or not; for the conditions
	sent     bool                 // some request was
	left     bool                 // nobody waits for it any longer
}

func (w *world) newLock(t *token, ttl time.Duration) *lock {
	l := &lock{
		w: w, token: t, ttl: ttl, sent: map[*Call]*call{}, refreshes: make([][]time.Duration, len(w.servers)),
	}
	t.handles++
	w.locks = append(w.locks, l)
	return l
}

// lasts returns until when the lock is valid as far as it knows, without telling it what time it is.
func (l *lock) lasts() time.Duration {
	if l.last == nil || l.ended || l.lapsed {
		return 0
	}
	return max(0, l.until().Sub(epoch))
}

func (l *lock) isValid() bool { return l.lasts() > l.w.now }

// obtain is one round of an Obtain.
func (l *lock) obtain(done func(granted bool)) {
	var requests []Request
	l.Lock, requests = Acquiring(len(l.w.servers), l.w.need, l.w.time(), l.ttl)
	l.begins(requests, done)
}

// attach makes a handle of a lock that another one has acquired.
func (l *lock) attach(done func(found bool)) {
	var requests []Request
	l.Lock, requests = Attaching(len(l.w.servers), l.w.need, l.w.time())
	l.begins(requests, done)
}

func (l *lock) begins(requests []Request, done func(bool)) {
	c := l.call(requests[0].Call)
	c.done = done
	l.first = c
	l.ask(requests)
	l.w.after(100*time.Millisecond, func() { l.fail(c) })
}

// fail ends an Obtain or an Attach, unless a majority has confirmed it.
func (l *lock) fail(c *call) {
	if l.first != c {
		return
	}
	l.first = nil
	l.Abandon(c.Call)
	if c.Kind == Obtain {
		l.release()
	}
	c.done(false)
}

// call returns what the world knows of a call.
func (l *lock) call(c *Call) *call {
	if l.sent[c] == nil {
		l.sent[c] = &call{Call: c, lock: l, began: l.w.now}
		l.w.open = append(l.w.open, l.sent[c])
	}
	return l.sent[c]
}

// isOpen reports whether a call waits for a majority.
func (c *call) isOpen() bool {
	lapsed := c.lock.hasLapsed() && c.began < c.lock.audit.end // since it began
	return !c.left && !c.over && !c.IsConfirmed() && !lapsed
}

// refresh is a Refresh, for whose end its caller waits that long (6a).
func (l *lock) refresh(ttl, wait time.Duration) {
	if l.ended {
		return
	}
	c, requests := l.Refresh(l.w.time(), ttl, "")
	l.ask(requests)
	l.w.after(wait, func() {
		if l.w.on(abandoned) {
			l.Abandon(c)
		}
		l.call(c).left = true
	})
}

// renew is one round of renewals.
func (l *lock) renew() {
	if !l.ended {
		_, requests := l.Renew(l.w.time())
		l.ask(requests)
	}
}

// keep renews the lock until it is kept no longer: when a third of its validity is over, and then more often.
func (l *lock) keep() {
	l.kept = true
	var look func()
	look = func() {
		if !l.kept || l.ended || l.HasLapsed(l.w.time()) {
			return
		}
		if l.lasts()-l.w.now < 2*l.TTL()/3 {
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
	for i := range l.holds {
		l.w.giveBack(l.token, i)
	}
	l.w.released(l)
}

// quit ends a handle, and nothing else.
func (l *lock) quit() {
	l.ended = true
	l.token.handles--
	l.End()
}

// mend acquires missing keys again, each when that is admitted.
func (l *lock) mend() {
	if l.ended {
		return
	}
	for _, i := range l.Missing(l.w.time()) {
		admitted := func() {
			if !l.ended && slices.Contains(l.Missing(l.w.time()), i) {
				l.w.seen[mends]++
				if l.IsAcquiring(i) {
					l.w.seen[overtakings]++
				}
				l.ask([]Request{l.Mend(i)})
			}
		}
		if d := l.w.admission(); d > 0 {
			l.w.after(d, admitted)
		} else {
			admitted()
		}
	}
}

func (l *lock) ask(requests []Request) {
	for _, r := range requests {
		l.send(r)
	}
}

// send sends a request, and tells the Lock the answer.
func (l *lock) send(r Request) {
	w, c, i := l.w, l.call(r.Call), r.Place
	delay, unsent := w.gate(r.Call, i)
	if unsent {
		w.after(delay, func() { l.answered(r, Answer{Result: Unsent}) })
		return
	}
	certain := c.TTL
	script := func(s *server) bool { return s.refresh(l.token, c.TTL, c.Kind == Renewal) }
	q := &request{w: w, place: i, sending: func() { certain = l.certain(i, c.TTL) }}
	switch {
	case r.Acquires:
		q.takes = l.token
		script = func(s *server) bool { return s.acquire(l.token, c.TTL) }
	case c.Kind == Refresh:
		l.refreshes[i] = append(l.refreshes[i], c.TTL)
	case c.Kind == Attach:
		q.sending = nil
		script = func(s *server) bool {
			certain = s.expires - w.now
			return s.holds(l.token)
		}
	}
	q.script = func(s *server) bool {
		executed := script(s)
		if executed {
			w.executed(c, s, i)
		}
		return executed
	}
	q.ended = func(a answer) {
		switch {
		case r.Acquires:
			l.gaveBack(i, a, q.unanswered)
		case c.Kind == Refresh && !q.unanswered:
			n := slices.Index(l.refreshes[i], c.TTL)
			l.refreshes[i] = slices.Delete(l.refreshes[i], n, n+1)
		}
		l.answered(r, map[answer]Answer{
			silence: {Doubtful: q.unanswered},
			yes:     {Confirmed, lease.ValidUntil(at(w.counted(q)), certain), q.unanswered},
			no:      {Result: Denied, Doubtful: q.unanswered},
		}[a])
	}
	begin := func() {
		c.sent = true
		q.begin()
	}
	if delay > 0 {
		w.after(delay, begin)
	} else {
		begin()
	}
}

// gaveBack gives back what was granted after the end of the lock, or may be granted yet (10).
func (l *lock) gaveBack(i int, a answer, unanswered bool) {
	late := l.ended && (a == yes || unanswered)
	if late && l.w.on(freesLate) || a == silence && !l.w.on(keepsWhileHeld) {
		l.w.giveBack(l.token, i)
	}
}

// answered tells the Lock an answer, and does what that asks for.
func (l *lock) answered(r Request, a Answer) {
	w, c := l.w, l.call(r.Call)
	if a.Result == Denied && l.holds[r.Place].change == r.change {
		l.remembers(r.Place)
	}
	undoes := l.newest == r.Call && !c.sent && l.unsent() != l.Lock && a.Result == Unsent
	before := l.lasts()
	out := l.Answer(r, w.time(), a)
	if undoes && l.lasts() > before {
		w.seen[undos]++
	}
	l.ask(out.Asks)
	if out.Confirmed {
		w.confirmed(c)
		if l.first == c {
			l.first = nil
			c.done(true)
		}
		l.mend()
	}
	if out.Lost && !l.verifying { // the others are asked at once, so that it can be mended (9)
		l.verifying = true
		w.after(0, func() {
			l.verifying = false
			l.renew()
		})
	}
	if f := l.first; f != nil && l.Fails(f.Call) {
		l.fail(f)
	}
}

// certain returns for how long a request for ttl that is sent to a place now is certain to hold, because a Refresh may be
// executed after it, also one that is yet to be sent (7). The request's own Refresh may be among these.
func (l *lock) certain(i int, ttl time.Duration) time.Duration {
	if l.w.on(limits) {
		for _, other := range l.refreshes[i] {
			ttl = min(ttl, other)
		}
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
