package majority

import (
	"container/heap"
	"slices"
	"time"
)

// A world is one schedule: servers, a network, and locks, in virtual time. It starts at time 0, and nothing in it runs in
// parallel.
type world struct {
	now     time.Duration
	events  events
	count   int // of all events so far, so that those of one moment happen in order
	servers []*server
	need    int
	off     rule // the rules that are switched off
	travel  func(i int, back bool, arrive func()) bool
	locks   []*lock // that may be valid
	open    []*call // that wait for a majority
	tokens  int

	glance    func() bool                                // whether a lock is told what time it is, although nothing happens to it
	admission func() time.Duration                       // for which a mend waits
	gate      func(c *Call, i int) (time.Duration, bool) // how long a request waits, and whether it is never sent after that

	auditor
}

type event struct {
	at     time.Duration
	number int
	happen func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func newWorld(servers, need int, off rule) *world {
	w := &world{need: need, off: off}
	w.glance = func() bool { return false }
	w.admission = func() time.Duration { return 0 }
	w.gate = sendsAll
	for range servers {
		w.servers = append(w.servers, &server{w: w})
	}
	return w
}

func sendsAll(*Call, int) (time.Duration, bool) { return 0, false }

// epoch is the time 0 of a world.
var epoch = time.Unix(1_000_000_000, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func (w *world) time() time.Time { return at(w.now) }

// on reports whether a rule is followed.
func (w *world) on(r rule) bool { return w.off&r == 0 }

func (w *world) after(d time.Duration, happen func()) {
	w.count++
	heap.Push(&w.events, event{w.now + d, w.count, happen})
}

// run lets time pass until then, or until a promise is broken.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until && w.problem == "" {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.look()
		e.happen()
		w.check()
	}
	w.now = until
	w.look()
	w.check()
}

// look tells some locks what time it is, and leaves out those that have ended.
func (w *world) look() {
	w.locks = slices.DeleteFunc(w.locks, func(l *lock) bool { return l.ended || l.hasLapsed() && l.audit.left })
	for _, l := range w.locks {
		if w.glance() {
			l.HasLapsed(w.time())
		}
	}
	w.open = slices.DeleteFunc(w.open, func(c *call) bool { return !c.isOpen() })
}

// A token is what tells locks apart.
type token struct {
	number    int
	handles   int   // locks that have this token and have not ended
	acquiring []int // by place: requests that acquire and are under way, with their sendings in the network

	shared   bool          // there were several handles
	released bool          // by one of them
	deleted  time.Duration // when an operator has deleted its keys; 0 for never
}

func (w *world) newToken() *token {
	w.tokens++
	return &token{number: w.tokens, acquiring: make([]int, len(w.servers))}
}

// A server holds one key.
type server struct {
	w       *world
	key     *token
	expires time.Duration
	hangs   time.Duration // until then it executes nothing
	fast    int64         // of 1,000, by how much its clock runs faster than that of a caller
}

func (s *server) holds(t *token) bool { return s.key == t && s.expires > s.w.now }

func (s *server) expiry(ttl time.Duration) time.Duration {
	return s.w.now + ttl - time.Duration(int64(ttl)*s.fast/1000)
}

// acquire is obtain.lua: it takes a free key, and never shortens what the token has already.
func (s *server) acquire(t *token, ttl time.Duration) bool {
	switch {
	case s.expires <= s.w.now || s.key == nil:
		s.key, s.expires = t, s.expiry(ttl)
	case s.key == t:
		s.expires = max(s.expires, s.expiry(ttl))
	}
	return s.key == t
}

// refresh is refresh.lua: a renewal never shortens what is left.
func (s *server) refresh(t *token, ttl time.Duration, renewal bool) bool {
	if !s.holds(t) {
		return false
	}
	if e := s.expiry(ttl); !renewal || e > s.expires {
		s.expires = e
	}
	return true
}

// release is release.lua.
func (s *server) release(t *token) bool {
	if !s.holds(t) {
		return false
	}
	s.key = nil
	return true
}
