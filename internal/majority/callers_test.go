package majority

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	ttl     = 400 * time.Millisecond
	callers = 3
	length  = 3 * time.Second // of a schedule
)

// schedule runs one schedule of callers in competition, with faults of one kind.
func schedule(seed uint64, off rule) *world {
	random := rand.New(rand.NewPCG(seed, 1))
	sizes := [][2]int{{3, 2}, {5, 3}, {3, 2}, {5, 3}, {2, 2}}
	size := sizes[seed/4%5]
	w := newWorld(size[0], size[1], off)
	for _, s := range w.servers {
		s.fast = random.Int64N(10)
	}
	n := &weather{rand: random, w: w, most: 3 * ttl}
	w.travel = n.travel
	w.truthful, w.most = true, n.most+5*ttl
	s := &story{weather: n}
	switch seed % 4 {
	case 0: // servers forget
		n.slow, n.most = 40, 0
		w.tidy, w.calm = true, true
	case 1: // servers hang
		n.slow, n.most = 40, 0
		w.calm, s.hanging = true, true
	case 2:
		n.lost, n.slow, n.late, s.hanging, s.careless = 30, 60, 20, true, true
	default:
		n.lost, n.slow, n.late, s.hanging, s.careless = 30, 30, 120, true, true
	}
	s.lapsing, s.restless = s.chance(300), s.chance(300)
	s.length = length
	if s.chance(50) {
		s.length *= 4
	}
	glances := []int{0, 100, 1000}[n.rand.IntN(3)] // of 1,000
	w.glance = func() bool { return n.chance(glances) }
	w.admission = func() time.Duration { return max(0, n.upTo(2*ttl)-ttl) }
	w.gate = s.gate
	for range callers {
		w.after(n.upTo(20*time.Millisecond), s.caller)
	}
	w.after(n.upTo(ttl), s.fault)
	w.run(s.length + 4*ttl + n.most)
	return w
}

// A story is what the callers of one schedule do, and what happens to the servers.
type story struct {
	*weather
	length   time.Duration
	hanging  bool  // servers hang
	careless bool  // servers forget although too few others have a lock, and hang although too few others answer
	lapsing  bool  // callers often let a lock lapse
	restless bool  // there are more faults, more Refreshes, and more handles
	call     *Call // of the last request
	cut      bool  // no request of that is sent
}

// gate lets some requests wait, and leaves some unsent, or all of a call.
func (s *story) gate(c *Call, _ int) (time.Duration, bool) {
	if c != s.call {
		s.call, s.cut = c, s.chance(30) || c.Kind == Refresh && s.chance(100)
	}
	switch {
	case s.w.calm:
		return 0, false
	case s.cut, s.chance(20):
		return s.upTo(patience), true
	case s.chance(50):
		return s.upTo(2 * patience), false
	}
	return 0, false
}

func (s *story) half() bool { return s.chance(500) }

// caller acquires a lock, uses it, and begins again.
func (s *story) caller() {
	w := s.w
	if w.now > s.length {
		return
	}
	s.try(w.newToken(), 1+s.rand.IntN(4), func(l *lock) {
		if l == nil {
			w.after(s.upTo(200*time.Millisecond), s.caller)
			return
		}
		s.use(l)
	})
}

// try makes that many rounds of one Obtain.
func (s *story) try(t *token, rounds int, done func(*lock)) {
	l := s.w.newLock(t, ttl)
	l.obtain(func(granted bool) {
		switch {
		case granted:
			done(l)
		case rounds > 1:
			if s.w.on(ownToken) {
				t = s.w.newToken()
			}
			s.w.after(s.upTo(30*time.Millisecond), func() { s.try(t, rounds-1, done) })
		default:
			done(nil)
		}
	})
}

// use keeps, refreshes and ends a lock.
func (s *story) use(l *lock) {
	w := s.w
	for range 2 {
		w.after(s.upTo(5*ttl), l.mend)
	}
	if s.chance(600) {
		l.keep()
	}
	shared, pause := s.chance(150), ttl // between two Refreshes
	if s.restless {
		shared, pause = s.chance(400), ttl/4
	}
	if shared {
		w.after(s.upTo(ttl), func() { s.share(l.token) })
	}
	hold := []time.Duration{ttl / 40, ttl, 2 * ttl, 5 * ttl}[s.rand.IntN(4)]
	for at := s.upTo(pause); at < hold && s.chance(800); at += s.upTo(pause) {
		w.after(at, func() { s.refresh(l, shared) })
	}
	w.after(s.upTo(hold), func() {
		switch x := s.rand.IntN(10); {
		case x < 2, s.lapsing && x < 7: // lets it lapse, and comes back
			l.kept = false
			for range 4 {
				w.after(s.upTo(4*ttl), func() { s.refresh(l, shared) })
			}
			w.after(4*ttl, l.release)
		case x < 3: // forgets it
			l.kept, l.audit.left = false, true
		default:
			l.release()
		}
		w.after(s.upTo(40*time.Millisecond), s.caller)
	})
}

// refresh is a Refresh. All handles of one token must use the same ttl.
func (s *story) refresh(l *lock, shared bool) {
	d := ttl
	switch {
	case shared:
	case s.restless && s.w.calm:
		d = ttl / 2 << s.rand.IntN(4)
	case s.restless:
		d = ttl / 4 << s.rand.IntN(5)
	default:
		d = ttl * time.Duration(1+s.rand.IntN(4)) / 2
	}
	l.refresh(d, s.upTo(300*time.Millisecond))
}

// share is another process that attaches to a lock, keeps it, and mends it.
func (s *story) share(t *token) {
	w := s.w
	l := w.newLock(t, ttl)
	t.shared = true
	l.attach(func(found bool) {
		if !found {
			l.quit()
			return
		}
		l.refresh(ttl, 300*time.Millisecond)
		if s.half() {
			l.keep()
		}
		w.after(s.upTo(3*ttl), func() {
			if s.half() {
				l.release()
			} else {
				l.kept, l.audit.left = false, true
			}
		})
	})
}

// fault makes something go wrong.
func (s *story) fault() {
	w := s.w
	if w.now > s.length {
		return
	}
	i := s.rand.IntN(len(w.servers))
	switch x := s.rand.IntN(10); {
	case x < 2:
		s.remove()
	case x < 5 && s.hanging:
		if s.careless && s.half() || w.allSpare(i) && w.noneHangs() && len(w.servers) > w.need {
			w.hang(i, s.upTo(ttl))
		}
	case w.mayForget(i) && (s.careless && s.chance(300) || w.allSpare(i)) && (s.careless || !s.hanging):
		w.forget(i)
	}
	pause := ttl / 2
	if s.restless {
		pause = ttl / 8
	}
	w.after(s.upTo(pause), s.fault)
}

func (w *world) noneHangs() bool {
	return !slices.ContainsFunc(w.servers, func(s *server) bool { return s.hangs > w.now })
}

// remove deletes the keys of some lock on all servers, or on a majority.
func (s *story) remove() {
	w := s.w
	for _, l := range w.locks {
		if !l.counts() || s.half() {
			continue
		}
		at := make([]bool, len(w.servers))
		for n, i := range s.rand.Perm(len(at)) {
			at[i] = n < w.need || s.half()
		}
		if !w.remains(l.token, at) {
			w.remove(l.token, at)
		}
		return
	}
}
