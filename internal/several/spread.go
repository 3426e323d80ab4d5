package several

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
)

// Spreading makes the tries of an obtain at several places. It asks the places side by side, in rounds, and a round ends as
// soon as enough places have granted or refused. A goroutine for each call waits for the answer, so a server that hangs
// holds up nobody.
//
// Three rules keep rounds apart. At most one call of an obtain is under way to a place; a call that is answered late
// belongs to its own round, and what it was granted is given back, unless that round made the lock. Each round has a new
// random token, so that giving back never hits a later grant.
type Spreading struct {
	place.Progress // belongs to the goroutine of the caller, apart from resends, which mu protects until the obtain has ended

	keys     []string // of all places
	ttl      time.Duration
	metadata string
	fenceKey string // "" for no fencing token

	places  *Group
	queue   bool           // a refused round waits in line
	once    bool           // no strategy tries again
	pace    retry.Strategy // see line.Waiter
	ordered bool           // ask one place after the other; belongs to the goroutine of the caller
	patient bool           // no other round follows; likewise
	since   time.Time      // when the obtain began; likewise
	refused bool           // some round was refused; likewise
	splits  int            // how many rounds in a row some places have granted and others refused; likewise
	news    chan struct{}  // has room for one: something below has changed, or a waiter was woken

	mu       sync.Mutex // protects the fields below
	parts    []part
	round    int
	token    string        // of the round
	began    time.Time     // when the round began
	open     bool          // the present round takes answers
	won      bool          // the present round has been granted
	fastest  time.Duration // of the answers in this round
	ticket   int64         // in all lines, from tickets; 0 before the first refusal
	over     bool          // the obtain has ended
	holds    *Lock         // of the lock, once it is made
	panicked *panicked     // what a hook has panicked with; nil if none has
}

// spreadNumbers is the last number given to a waiter on several places. Obtains of many Clients may share an inbox.
var spreadNumbers atomic.Int64

// NewSpreading returns what makes the tries of an obtain of all keys. o says what else it asks for, except for a token. With
// queue, a refused round waits in line, and strategy is its pace; else strategy makes the tries.
func NewSpreading(at *Group, keys []string, o *script.Obtain, queue bool, strategy retry.Strategy) *Spreading {
	s := &Spreading{
		keys: keys, ttl: o.TTL, metadata: o.Metadata, fenceKey: o.FenceKey, places: at,
		queue: queue, once: !queue && strategy == nil, news: make(chan struct{}, 1), parts: make([]part, len(at.all)),
		since: time.Now(),
	}
	if queue {
		s.pace = strategy
	}
	first := spreadNumbers.Add(int64(len(at.all))) - int64(len(at.all)) + 1
	for i, p := range at.all {
		part := &s.parts[i]
		part.site = p
		part.Place, part.Keys, part.TTL, part.Metadata = p.Place, p.keys, o.TTL, o.Metadata
		if at.quorum {
			part.FenceKey = o.FenceKey
		}
		if queue {
			part.Waiter = p.Lines.NewWith(s.news, first+int64(i))
		}
	}
	return s
}

// Lock returns the lock that was made, once a try has succeeded.
func (s *Spreading) Lock() *Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds
}

// SpreadOut returns the strategy for the tries: on a quorum, one that waits up to half longer each time, at random.
func (s *Spreading) SpreadOut(strategy retry.Strategy) retry.Strategy {
	if s.places.quorum {
		return spreadOut{strategy}
	}
	return strategy
}

// spreadOut makes each wait of a strategy up to half longer, at random.
type spreadOut struct{ strategy retry.Strategy }

func (s spreadOut) NextBackoff() time.Duration {
	wait := s.strategy.NextBackoff()
	if wait < 2 {
		return wait
	}
	return wait + rand.N(wait/2)
}

// Try asks the places for the lock. It reports whether another try makes sense.
//
// Without a line, two callers that try at the same time can refuse each other: each has some places, and nobody has
// enough. That is not a refusal by a holder, so try then asks again, a few times and at random moments.
func (s *Spreading) Try(ctx context.Context) (again bool, err error) {
	if fault.Ended(ctx) != nil {
		return false, fault.ErrCut
	}
	s.Tries++
	s.ordered = s.Tries > 1 && !s.queue && !s.places.quorum
	for splits := 0; ; splits++ {
		s.patient = s.once && splits == maxSplits
		again, err = s.tryRound(ctx)
		decided := err == nil || err == fault.ErrClosed || s.splits == 0 || s.Belated >= place.MaxBelated
		if decided || s.queue || splits >= maxSplits || fault.Ended(ctx) != nil {
			return again, err
		}
		pause := time.NewTimer(rand.N(splitPause << splits))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false, fault.ErrCut
		case <-s.places.set.Closed:
			pause.Stop()
			return false, fault.ErrClosed
		}
	}
}

const (
	// maxSplits is how often a try without a line asks again after a round in which nobody had enough places.
	maxSplits = 3

	// splitPause bounds the random wait before that. It doubles each time.
	splitPause = 2 * time.Millisecond
)

// Decide follows the last try, which ended with that error. If some servers have granted its last round and others refused
// it, a slow one that was not waited for may decide: then decide asks once more, and waits for all.
func (s *Spreading) Decide(ctx context.Context, err error) error {
	if s.places.quorum && s.splits > 0 && !s.patient && err != fault.ErrClosed && fault.Ended(ctx) == nil {
		s.patient = true
		_, err = s.tryRound(ctx)
	}
	return err
}

// tryRound asks the places once.
func (s *Spreading) tryRound(ctx context.Context) (again bool, err error) {
	s.begin()
	answer, err := s.collect(ctx, place.LastWord, func(now time.Time) (verdict, time.Time) {
		s.launch(ctx, now)
		return s.judge(now)
	})
	if err != nil {
		if s.Failure == nil || s.hasFailed() { // otherwise how the round before has failed says more
			s.Failure = s.failures()
		}
		if fault.Ended(ctx) != nil {
			return false, fault.ErrCut
		}
		return false, err
	}
	switch answer {
	case won:
		s.Failure, s.splits = nil, 0
		if err := s.make(ctx); err != fault.ErrNotObtained {
			return false, err
		}
	case refused:
		s.Failure = s.lateness()
	case undecided:
		s.Failure = s.failures()
	}
	passes := s.mayPass() // before undo, which forgets how the places have failed
	s.undo(ctx)
	if s.waitForUndo(ctx) != nil && fault.Ended(ctx) != nil {
		return false, fault.ErrCut
	}
	if s.splits++; !s.isSplit() {
		s.splits = 0
	}
	switch {
	case answer != undecided && errors.Is(s.Failure, fault.ErrLapsed):
		s.Belated++
		return s.Belated < place.MaxBelated, s.Failure
	case s.Failure != nil:
		return passes && s.bears(ctx), s.Failure
	case !lease.Passed(lease.ValidUntil(s.began, s.ttl)): // see single.decline
		s.Belated = 0
	}
	s.refused = true
	return true, fault.ErrNotObtained
}

// lateness returns the error of a round that was refused because grants came too late. It returns nil if others have so many
// places that the round would have been refused anyway.
func (s *Spreading) lateness() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	others, late := 0, false
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.state != partRefused || p.busy:
		case p.lapsed:
			late = true
		default:
			others++
		}
	}
	if !late || others > s.places.spare() {
		return nil
	}
	return fault.TooLate(s.began, s.ttl)
}

// bears reports whether the obtain goes on after a round that has failed in a way that may pass. In line, that is as at one
// place: see line.Waiter.Bear. But a quorum gives each server a tenth of a second, not the seconds that the first try at one
// place takes. So without a deadline, its first try is as many rounds as fit into longPatience. Without a line, a quorum
// tries again as the strategy says. Across slots, calls have been resent for as long as at one place.
func (s *Spreading) bears(ctx context.Context) bool {
	if !s.queue {
		return s.places.quorum
	}
	return s.refused || fault.HasDeadline(ctx) || s.places.quorum && time.Since(s.since) < health.LongPatience
}

// begin begins a round.
func (s *Spreading) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
	s.token = place.NewToken()
	s.began, s.open, s.won, s.fastest = time.Now(), true, false, 0
	for i := range s.parts {
		s.parts[i].state, s.parts[i].err = partIdle, nil
	}
}

// isSplit reports whether some places have granted the last round and others have refused it. A place that granted after
// the round was refused counts as well: its answer may have been late because this Client had just released the lock
// there, and a caller that obtains, releases and obtains again must not be refused by itself.
func (s *Spreading) isSplit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted, refused := false, false
	for i := range s.parts {
		granted, refused = granted || s.parts[i].ready, refused || s.parts[i].refused
	}
	return granted && refused
}
