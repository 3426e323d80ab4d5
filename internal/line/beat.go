package line

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

const (
	// Interval is the time between two beats of a session that stands in few lines.
	Interval = time.Second

	// lineCost is how much longer the interval is for each line: about twenty times what the server needs for one.
	lineCost = 200 * time.Microsecond

	// leastGap is the least time between two beats, however often one is wanted.
	leastGap = 100 * time.Millisecond

	// maxLife is the longest life that a mark can have, and maxTook is how much of the time that an answer takes counts.
	maxLife, maxTook = 2047 * time.Second, 10 * time.Second

	// chunk is the number of lines of one script, so that none keeps the server from others for long.
	chunk = 500

	// prolongs says that each so many beats make the lines last; see lineLasts in internal/script/line.lua.
	prolongs = 3

	// maxLeft bounds the waiters that one beat takes out of the lines.
	maxLeft = 100
)

// beats is what a session knows of its beats. session.mu protects it.
type beats struct {
	running  bool                // there is a goroutine that sends them
	count    int                 // so many were sent
	took     time.Duration       // until the last answer
	answered time.Time           // when that was
	err      error               // how the last one has failed; nil if it was answered or is under way
	failing  bool                // none was answered as a whole since one has failed
	last     time.Time           // when one was sent last
	due      time.Time           // when the next one is to be sent
	answers  [2]answer           // the last ones, the latest first
	lasting  time.Duration       // the life for which the lines were made to last
	left     map[string]struct{} // ids of waiters that have left, and may still stand in line
}

// answer is when a script was sent, and when the server ran it, in µs by its clock.
type answer struct {
	sent   time.Time
	served int64
}

// beat is one sign of life in all lines of a session, while its calls are under way.
type beat struct {
	began        time.Time
	subscription int           // that was open; 0 for none
	left         []string      // what it removes if that is first in a line
	pending      int           // calls without a result
	answered     bool          // one was answered
	failed       bool          // one has failed
	lasting      time.Duration // the life for which it makes the lines last; 0 if it does not
	silence      *time.Timer   // sends the next beat if some call has no result for long
}

// group is the calls of a beat that go to one server: all lines of a waiter are there.
type group struct {
	apart   *Waiter                  // the waiter whose lines these are, if it shares no beat; nil for the others
	firsts  map[string]*script.First // of all answers so far, by number
	pending int                      // calls without a result
}

// part is what one call of a beat is about.
type part struct {
	*group

	keys []string
}

// beatBy makes the next beat due by then. The caller holds s.mu.
func (s *session) beatBy(due time.Time) {
	if soonest := s.beats.last.Add(leastGap); due.Before(soonest) {
		due = soonest
	}
	if due.Before(s.beats.due) {
		s.beats.due = due
		s.look()
	}
}

// look makes the goroutine of the session look at what has changed.
func (s *session) look() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// beatSoon makes the next beat due now.
func (s *session) beatSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beatBy(time.Now())
}

// interval returns the time between two beats. The caller holds s.mu.
func (s *session) interval() time.Duration { return s.intervalWith(0) }

// intervalWith is interval as it will be with so many more lines.
func (s *session) intervalWith(more int) time.Duration {
	return min(max(Interval, time.Duration(len(s.lines)+s.apart+more)*lineCost), maxLife/4)
}

// life returns for how long waiters are live after a try of this one: as after a beat, once it stands in line. The caller
// holds s.mu.
func (s *session) life(w *Waiter) time.Duration {
	more := 0
	if s.waiters[w.member.Number()] != w {
		more = len(w.keys)
	}
	return s.lifeWith(more)
}

// longest returns for how long the waiter may be live without another beat or try of the session.
func (s *session) longest(w *Waiter) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.life(w), s.beats.lasting)
}

// lifeNow returns for how long waiters are live after a beat: three intervals, in whole seconds. If answers take long, the
// next beat may be executed later than this one by as much. The caller holds s.mu.
func (s *session) lifeNow() time.Duration { return s.lifeWith(0) }

// lifeWith is lifeNow as it will be with so many more lines.
func (s *session) lifeWith(more int) time.Duration {
	life := 3*s.intervalWith(more) + 2*min(s.beats.took, maxTook)
	return min(life.Round(time.Second), maxLife)
}

// markOf returns what a try of the waiter is to write, and the number of the subscription that is open; 0 for none.
func (s *session) markOf(w *Waiter) (m script.Mark, subscription int) {
	subscription = s.inbox.Subscription()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark(subscription, s.life(w)), subscription
}

// mark returns a mark with that life. It says open if the messages of this subscription come from the server of the lines,
// for all that is known. The slots of a Cluster move, so there a beat must have found it. The caller holds s.mu.
func (s *session) mark(subscription int, life time.Duration) script.Mark {
	open := subscription != 0 && (s.redis.IsSingle() || s.redis.IsCluster() && s.confirmed == subscription)
	return script.Mark{Life: life, Open: open, Left: s.stays.Load()}
}

// run sends beats until nobody stands in line.
func (s *session) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		due := s.beats.due
		if len(s.waiters) == 0 {
			s.beats.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		now := time.Now()
		if !now.Before(due) {
			s.beat(now)
			continue
		}
		timer.Reset(due.Sub(now))
		select {
		case <-timer.C:
		case <-s.news:
		}
	}
}

// beat sends one beat.
func (s *session) beat(now time.Time) {
	b := &beat{began: now, subscription: s.inbox.Subscription()}
	s.mu.Lock()
	m := s.mark(b.subscription, s.lifeNow())
	prolong := s.beats.count%prolongs == 0 || m.Life > s.beats.lasting
	if prolong {
		b.lasting = m.Life
	}
	s.beats.count++
	s.beats.due, s.beats.last = now.Add(s.interval()-rand.N(s.interval()/8)), now
	for id := range s.beats.left {
		delete(s.beats.left, id) // an answer will name it again if it is still first
		if b.left = append(b.left, id); len(b.left) == maxLeft {
			break
		}
	}
	shared := make([]string, 0, len(s.lines))
	for key, q := range s.lines {
		if q.shared > 0 {
			shared = append(shared, key)
		}
	}
	var apart []*Waiter
	if len(shared) < len(s.lines) {
		for _, w := range s.waiters {
			if w.stands.apart {
				apart = append(apart, w)
			}
		}
	}
	var calls []*transport.Call
	add := func(ctx context.Context, keys []string, apart *Waiter) {
		g := &group{apart: apart, firsts: map[string]*script.First{}}
		for some := range slices.Chunk(keys, chunk) {
			c := script.Beat(some, s.inbox.Name(), m, prolong, b.left)
			c.Ctx, c.Alone, c.Tag = ctx, apart != nil, part{g, some}
			calls = append(calls, c)
			g.pending++
		}
	}
	for _, keys := range s.byServer(shared) {
		add(context.Background(), keys, nil)
	}
	for _, w := range apart {
		add(w.ctx, w.keys, w)
	}
	if b.pending = len(calls); b.pending > 0 {
		b.silence = time.AfterFunc(max(s.interval()/4, 4*s.beats.took), func() { s.hangs(b) })
	}
	s.mu.Unlock()
	patience := func(*transport.Call) time.Duration { return Interval }
	unsent := s.redis.SendBatches(calls, patience, func(c *transport.Call) { s.answered(b, c, true) })
	for _, c := range unsent {
		s.answered(b, c, false)
	}
}

// hangs makes the next beat due now, because no call of this one has an answer yet: perhaps its connection is dead.
func (s *session) hangs(b *beat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !b.answered && s.beats.last.Equal(b.began) { // otherwise another one is under way already
		s.beatBy(time.Now())
	}
}

// byServer returns keys in groups of which one script can have the lines.
func (s *session) byServer(keys []string) (groups [][]string) {
	var indices [][]int
	switch {
	case s.redis.IsSingle():
		return [][]string{keys}
	case s.redis.IsRing():
		indices, _ = s.redis.Group(keys) // without an answer from its shards, there is nobody to send a beat to
	default: // also if the client does not say what it is
		indices = transport.GroupBySlot(keys)
	}
	for _, group := range indices {
		part := make([]string, len(group))
		for i, index := range group {
			part[i] = keys[index]
		}
		groups = append(groups, part)
	}
	return groups
}
