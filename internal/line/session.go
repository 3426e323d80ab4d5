package line

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// session keeps the waiters of one inbox live in all of their lines, and calls back those who may have lost their position.
// Its goroutine runs while somebody stands in line; see beat.go. It is safe for concurrent use.
type session struct {
	redis *transport.Redis
	inbox *inbox.Inbox
	home  string      // the node of a Cluster that has the inbox's channel; "" if that is not known
	stays atomic.Bool // some who have left may still stand in line, and nobody takes them out any more
	born  time.Time
	news  chan struct{} // has room for one: beats.due has changed, or nobody stands in line any more

	// mu protects the fields below, and the standing of each waiter. The code that holds it calls no inbox, and locks nothing
	// else but Waiter.mu.
	mu        sync.Mutex
	waiters   map[string]*Waiter // that stand in line, by number
	lines     map[string]*queue  // by key
	entries   int                // of all of them in all lines
	apart     int                // beats and lines of those that share no beat, as lineCost counts them
	beats     beats
	back      recalls             // called back, but not told yet
	coming    int                 // waiters that were told, and have not come back yet
	halted    bool                // a try of one that was told has failed, so nobody is told before a beat is answered
	confirmed int                 // the subscription that a beat has found at the server; 0 for none
	departed  map[string][]string // the keys of those who have left lately, by number
	gone      []departed          // the same, in order
	forgets   *time.Timer         // calls forget; nil for none
	offset    int64               // by how much the server's clock is ahead of ours at least, in µs; see heed
}

// departed is a waiter that has left, or has never stood in line. A late message may still be about its lines.
type departed struct {
	number string
	at     time.Time
}

// A session remembers those who have left for some seconds, but no more than so many.
const (
	departedFor = 10 * time.Second
	maxDeparted = 10_000
)

// depart remembers one that has left. The caller holds s.mu.
func (s *session) depart(number string, keys []string) {
	if len(s.gone) == maxDeparted {
		delete(s.departed, s.gone[0].number)
		s.gone = s.gone[1:]
	}
	s.gone = append(s.gone, departed{number, time.Now()})
	s.departed[number] = keys
	if s.forgets == nil {
		s.forgets = time.AfterFunc(departedFor, s.forget)
	}
}

// forget forgets those who have left long enough ago.
func (s *session) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := 0
	for past < len(s.gone) && time.Since(s.gone[past].at) >= departedFor {
		delete(s.departed, s.gone[past].number)
		past++
	}
	if s.gone = slices.Clone(s.gone[past:]); len(s.gone) > 0 {
		s.forgets.Reset(departedFor)
	} else {
		s.forgets = nil
	}
}

// queue is a line in which a session stands.
type queue struct {
	waiters map[*Waiter]struct{}
	shared  int       // how many of them share beats
	made    int64     // when the session's mark was made last, in µs by the server's clock; 0 if that is not known
	heard   time.Time // when the session heard that
	err     error     // how the last beat has failed; nil if it was answered or is under way
}

// standing is what a session knows of one of its waiters. session.mu protects it.
type standing struct {
	ticket int64
	served int64 // when the server ran the last try that it has refused, in µs by its clock; 0 if that says nothing
	apart  bool  // the waiter shares no beat, because its calls share no round trip
	fails  int   // how often it has come back, and its try has failed
	back   recall
}

// recall is how far it is with a waiter that is to come back.
type recall int8

const (
	settled recall = iota
	called         // it is among session.back
	told           // its next try was asked for, and has not ended
)

// atOnce is how many waiters are told at a time to come back. If the server has lost its data, these are all waiters.
const atOnce = 200

func newSession(redis *transport.Redis, source inbox.Source, name, home string) *session {
	s := &session{
		redis: redis, home: home, born: time.Now(), news: make(chan struct{}, 1),
		waiters: map[string]*Waiter{}, lines: map[string]*queue{}, departed: map[string][]string{}, offset: math.MinInt64 / 2,
	}
	s.beats.left = map[string]struct{}{}
	s.inbox = inbox.New(source, name, inboxLinger, s)
	return s
}

// join notes a refused try of the waiter that was sent at that time, by which it stands in line.
func (s *session) join(w *Waiter, sent time.Time, g *script.Grant) {
	arrived := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	s.heed(answer{sent, g.Served}, arrived)
	s.stand(w, g.Ticket)
	s.came(w)
	w.stands.served, w.stands.fails = g.Served, 0
	if w.life < s.lifeNow() { // others have joined since it was sent, so its lines end too soon
		s.beats.count = 0 // the next beat prolongs them
	}
	s.beatBy(sent.Add(w.life * 2 / 3)) // its reply may have come late
	for _, key := range w.keys {
		if q := s.lines[key]; sent.Before(q.heard) && g.Served < q.made { // otherwise it is a later try
			s.callBack(w)
		}
	}
	s.made(g.Made, g.Served, w)
}

// stepBack notes that a release is about to put the waiter into its lines, after a try that has ended.
func (s *session) stepBack(w *Waiter, ticket int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	s.stand(w, ticket)
	s.came(w)
}

// stand makes the session beat for the waiter. The caller holds s.mu.
func (s *session) stand(w *Waiter, ticket int64) {
	w.stands.ticket = ticket
	if number := w.member.Number(); s.waiters[number] == nil {
		s.waiters[number] = w
		w.stands.apart = w.lines.Link.Separates()
		s.entries += len(w.keys)
		for _, key := range w.keys {
			q := s.lines[key]
			if q == nil {
				q = &queue{waiters: map[*Waiter]struct{}{}}
				s.lines[key] = q
			}
			if q.waiters[w] = struct{}{}; !w.stands.apart {
				q.shared++
			}
		}
		s.apart += w.apart()
	}
	if now := time.Now(); !s.beats.running {
		s.beats.running, s.beats.answered, s.beats.due = true, now, now.Add(s.interval())
		s.beats.err, s.beats.failing, s.beats.took, s.beats.lasting = nil, false, 0, 0 // of an earlier wait
		go s.run()
	}
}

// apart returns what the beats of a waiter cost, as lineCost counts it, if it shares none: each costs as much as three
// lines.
func (w *Waiter) apart() int {
	if !w.stands.apart {
		return 0
	}
	return 3 + len(w.keys)
}

const (
	// leastNet is after what time a waiter tries, if few wait, although nothing has asked for it.
	leastNet = 30 * time.Second

	// A refused try costs the server about waiterCost and, for each key, entryCost. The tries of all waiters of a session for
	// which nothing has asked take netShare of its time.
	waiterCost, entryCost = 30 * time.Microsecond, 5 * time.Microsecond
	netShare              = 1. / 400
)

// net returns after what time a waiter tries although nothing has asked for it. Until then it relies on messages and beats.
func (s *session) net() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := time.Duration(len(s.waiters))*waiterCost + time.Duration(s.entries)*entryCost
	return max(leastNet, time.Duration(float64(all)/netShare))
}

// quit notes that the waiter wants to stand in line no more.
func (s *session) quit(w *Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	number := w.member.Number()
	s.depart(number, w.keys)
	if s.waiters[number] != w {
		return
	}
	delete(s.waiters, number)
	s.entries -= len(w.keys)
	s.apart -= w.apart()
	for _, key := range w.keys {
		q := s.lines[key]
		if delete(q.waiters, w); !w.stands.apart {
			q.shared--
		}
		if len(q.waiters) == 0 {
			delete(s.lines, key)
		}
	}
	s.came(w)
	w.stands = standing{}
	if s.beatBy(time.Now().Add(s.interval())); len(s.waiters) == 0 { // with fewer lines, interval and life are shorter
		s.look() // its goroutine ends
	}
}

// Opened gives a sign of life, because the subscription has opened. If messages may have been lost, all waiters come back.
func (s *session) Opened(again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	if again {
		for _, w := range s.waiters {
			s.callBack(w)
		}
	}
	s.beatBy(time.Now())
}

// Stray takes a message for a waiter that has left, and so may still stand in line: a call of it may have been executed
// late.
func (s *session) Stray(id, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	m := script.ReadMessage(words)
	if m.Kind != script.Marked { // it is first in some line
		s.leave(id)
		return
	}
	_, number, _ := strings.Cut(id, "/")
	s.made(linesOf(s.departed[number], m.Lines), m.At, nil)
}

// marked takes a message about marks that a call of the waiter has made.
func (s *session) marked(w *Waiter, m *script.Message) {
	arrived := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	at := m.At
	if at-s.local(arrived) < s.offset-maxJitter { // the clock was set back, or the message took that long
		at = math.MaxInt64
	}
	s.made(linesOf(w.keys, m.Lines), at, w)
}

// linesOf returns those of the keys whose lines a message names.
func linesOf(keys []string, lines []int) (some []string) {
	for _, i := range lines {
		if i < len(keys) {
			some = append(some, keys[i])
		}
	}
	return some
}

// made notes that the marks of the session in the lines of these keys were made at that time, by a call of this waiter, or
// were missing; then by is nil. Entries from before that may be missing as well. The caller holds s.mu, and calls tellNext.
func (s *session) made(keys []string, at int64, by *Waiter) {
	for _, key := range keys {
		q := s.lines[key]
		if q == nil {
			continue
		}
		q.made, q.heard = max(q.made, at), time.Now()
		for w := range q.waiters {
			if w != by && w.stands.served < at {
				s.callBack(w)
			}
		}
	}
}

// maxJitter is by how much the clocks of the server and of this process may run apart, in µs, before the server's counts as
// set back. A shorter step ends no mark.
const maxJitter = 500_000

// local returns a time of this process in µs, by the monotonic clock.
func (s *session) local(at time.Time) int64 { return at.Sub(s.born).Microseconds() }

// heed notes how far the clock of the server is ahead of that of this process. If it was set back, the times of earlier
// tries say nothing any more. The caller holds s.mu.
func (s *session) heed(a answer, arrived time.Time) {
	most, least := a.served-s.local(a.sent), a.served-s.local(arrived)
	if most < s.offset-maxJitter {
		s.offset = least
		for _, w := range s.waiters {
			w.stands.served = 0
		}
		for _, q := range s.lines {
			q.made = 0
		}
	}
	s.offset = max(s.offset, least)
}

// callBack makes a waiter try once more, with its ticket. The caller holds s.mu, and calls tellNext.
func (s *session) callBack(w *Waiter) {
	if w.stands.back == settled {
		w.stands.back = called
		heap.Push(&s.back, w)
	}
}

// tellNext tells those who were called back, lowest tickets first, but not too many at a time. The caller holds s.mu.
func (s *session) tellNext() {
	for !s.halted && s.coming < atOnce && len(s.back) > 0 {
		if w := heap.Pop(&s.back).(*Waiter); w.stands.back == called {
			w.stands.back = told
			s.coming++
			w.comeBack()
		}
	}
}

// came notes that a try of the waiter has ended. The caller holds s.mu, and calls tellNext.
func (s *session) came(w *Waiter) {
	if w.stands.back == told {
		s.coming--
	}
	w.stands.back = settled // if it was called, tellNext passes over it
}

// failed notes that a try has failed. If the waiter was called back, it will be told again. Otherwise it tries again by
// itself. If all do so after the time that failed returns, atOnce of them try in each Interval.
func (s *session) failed(w *Waiter) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tellNext()
	if s.waiters[w.member.Number()] != w {
		return 0
	}
	if w.stands.back == told {
		s.coming--
		s.halted = true
		w.stands.fails++
		w.stands.back = called
		heap.Push(&s.back, w)
	}
	return Interval * time.Duration(len(s.waiters)) / atOnce
}

// recalls is a heap of waiters; see container/heap. It may hold a waiter twice, and waiters that have come by themselves.
type recalls []*Waiter

func (r recalls) Len() int      { return len(r) }
func (r recalls) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *recalls) Push(w any)   { *r = append(*r, w.(*Waiter)) }

func (r recalls) Less(i, j int) bool {
	a, b := &r[i].stands, &r[j].stands
	return cmp.Or(cmp.Compare(a.fails, b.fails), cmp.Compare(a.ticket, b.ticket)) < 0
}

func (r *recalls) Pop() any {
	last := len(*r) - 1
	w := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return w
}
