package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// spreading is the part of an obtain that is special to several places. It asks the places side by side, in rounds, and
// a round ends as soon as enough places have granted or refused. A goroutine for each call waits for the answer, so a
// server that hangs holds up nobody.
//
// Three rules keep rounds apart. At most one call of an obtain is under way to a place; a call that is answered late
// belongs to its own round, and what it was granted is given back, unless that round made the lock. Each round has a new
// random token, so that giving back never hits a later grant.
type spreading struct {
	o       *obtaining // the whole obtain; belongs to the goroutine of the caller
	places  *sites
	queue   bool          // a refused round waits in line
	once    bool          // no strategy tries again
	pace    RetryStrategy // see waiter.pace
	ordered bool          // ask one place after the other; belongs to the goroutine of the caller
	patient bool          // no other round follows; likewise
	since   time.Time     // when the obtain began; likewise
	refused bool          // some round was refused; likewise
	splits  int           // how many rounds in a row some places have granted and others refused; likewise
	news    chan struct{} // has room for one: something below has changed, or a waiter was woken

	mu       sync.Mutex // protects the fields below
	parts    []part
	round    int
	began    time.Time     // when the round began
	open     bool          // the present round takes answers
	won      bool          // the present round has been granted
	fastest  time.Duration // of the answers in this round
	ticket   int64         // in all lines, from tickets; 0 before the first refusal
	over     bool          // the obtain has ended
	holds    *several      // of the lock, once it is made
	panicked *panicked     // what a hook has panicked with; nil if none has
}

// spreadNumbers is the last number given to a waiter on several places. Obtains of many Clients may share an inbox.
var spreadNumbers atomic.Int64

// newSpreading returns what a prepared obtain needs for several places.
func newSpreading(o *obtaining, at *sites, queue bool) *spreading {
	s := &spreading{
		o: o, places: at, queue: queue, news: make(chan struct{}, 1), parts: make([]part, len(at.all)),
	}
	first := spreadNumbers.Add(int64(len(at.all))) - int64(len(at.all)) + 1
	for i, p := range at.all {
		part := &s.parts[i]
		part.site = p
		part.o = obtaining{
			place: p.place, keys: p.keys, boxed: p.boxed, ttl: o.ttl, metadata: o.metadata, token: o.token, part: true,
		}
		if at.quorum {
			part.o.fenceKey = o.fenceKey
		}
		if queue {
			part.o.waiter = newWaiter(&p.lines)
			part.o.waiter.woken, part.o.waiter.number = s.news, first+int64(i) // across slots, they may share an inbox
		}
	}
	return s
}

// run tries until the lock is granted, the strategy stops or ctx ends.
func (s *spreading) run(ctx context.Context, strategy RetryStrategy) (*Lock, error) {
	o := s.o
	s.since, s.once = time.Now(), !s.queue && strategy == nil
	if !s.queue && strategy != nil {
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.ttl)
			defer cancel()
			o.limited = true
		}
		if s.places.quorum {
			strategy = spreadOut{strategy}
		}
	}
	o.client.obtains.Add(1) // until s.end has begun the cleanups
	defer o.client.obtains.Add(-1)
	defer s.end(ctx) // also after a panic
	var cut bool
	var err error
	if s.queue {
		s.pace = strategy
		cut, err = s.inLine(ctx)
	} else {
		cut, err = retry(ctx, o.client.closed, strategy, time.Time{}, func() (bool, error) {
			again, err := s.attempt(ctx)
			s.ordered = !s.places.quorum
			return again, err
		})
		// If some servers have granted the last round and others refused it, a slow one that was not waited for may decide.
		if !cut && s.places.quorum && s.splits > 0 && !s.patient && err != ErrClosed && ended(ctx) == nil {
			s.patient = true
			_, err = s.tryRound(ctx)
		}
	}
	switch {
	case err == nil:
		return o.lock, nil
	case cut:
		return nil, o.cutShort(ctx)
	}
	return nil, err
}

// spreadOut makes each wait of a strategy up to half longer, at random.
type spreadOut struct{ RetryStrategy }

func (s spreadOut) NextBackoff() time.Duration {
	wait := s.RetryStrategy.NextBackoff()
	if wait < 2 {
		return wait
	}
	return wait + rand.N(wait/2)
}

// attempt is one round, with a refusal noted for those who want to know of it.
func (s *spreading) attempt(ctx context.Context) (again bool, err error) {
	again, err = s.try(ctx)
	if err == ErrNotObtained && (s.o.explain || s.o.client.tracer.Refused != nil) {
		s.o.refused(ctx)
	}
	return again, err
}

// try asks the places for the lock. It reports whether another try makes sense.
//
// Without a line, two callers that try at the same time can refuse each other: each has some places, and nobody has
// enough. That is not a refusal by a holder, so try then asks again, a few times and at random moments.
func (s *spreading) try(ctx context.Context) (again bool, err error) {
	if ended(ctx) != nil {
		return false, s.o.cutShort(ctx)
	}
	s.o.seen.tries++
	for splits := 0; ; splits++ {
		s.patient = s.once && splits == maxSplits
		again, err = s.tryRound(ctx)
		decided := err == nil || err == ErrClosed || s.splits == 0 || s.o.belated >= maxBelated
		if decided || s.queue || splits >= maxSplits || ended(ctx) != nil {
			return again, err
		}
		pause := time.NewTimer(rand.N(splitPause << splits))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false, s.o.cutShort(ctx)
		case <-s.o.client.closed:
			pause.Stop()
			return false, ErrClosed
		}
	}
}

const (
	// maxSplits is how often a try without a line asks again after a round in which nobody had enough places.
	maxSplits = 3

	// splitPause bounds the random wait before that. It doubles each time.
	splitPause = 2 * time.Millisecond
)

// tryRound asks the places once.
func (s *spreading) tryRound(ctx context.Context) (again bool, err error) {
	o := s.o
	s.begin()
	answer, err := s.collect(ctx, lastWord, func(now time.Time) (verdict, time.Time) {
		s.launch(ctx, now)
		return s.judge(now)
	})
	if err != nil {
		if o.failure == nil || s.hasFailed() { // otherwise how the round before has failed says more
			o.failure = s.failures()
		}
		if ended(ctx) != nil {
			return false, o.cutShort(ctx)
		}
		return false, err
	}
	switch answer {
	case won:
		o.failure, s.splits = nil, 0
		if err := s.make(ctx); err != ErrNotObtained {
			return false, err
		}
	case refused:
		o.failure = s.lateness()
	case undecided:
		o.failure = s.failures()
	}
	passes := s.mayPass() // before undo, which forgets how the places have failed
	s.undo(ctx)
	if s.waitForUndo(ctx) != nil && ended(ctx) != nil {
		return false, o.cutShort(ctx)
	}
	if s.splits++; !s.isSplit() {
		s.splits = 0
	}
	switch {
	case answer != undecided && errors.Is(o.failure, ErrLapsed):
		o.belated++
		return o.belated < maxBelated, o.failure
	case o.failure != nil:
		return passes && s.bears(ctx), o.failure
	case !lease.Passed(lease.ValidUntil(s.began, o.ttl)): // see obtaining.decline
		o.belated = 0
	}
	s.refused = true
	return true, ErrNotObtained
}

// lateness returns the error of a round that was refused because grants came too late. It returns nil if others have so many
// places that the round would have been refused anyway.
func (s *spreading) lateness() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	others, late := 0, false
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.state != partRefused || p.busy:
		case p.late:
			late = true
		default:
			others++
		}
	}
	if !late || others > s.places.spare() {
		return nil
	}
	return tooLate(s.began, s.o.ttl)
}

// bears reports whether the obtain goes on after a round that has failed in a way that may pass. In line, that is as at one
// place: see waiter.bear. But a quorum gives each server a tenth of a second, not the seconds that the first try at one
// place takes. So without a deadline, its first try is as many rounds as fit into longPatience. Without a line, a quorum
// tries again as the strategy says. Across slots, calls have been resent for as long as at one place.
func (s *spreading) bears(ctx context.Context) bool {
	if !s.queue {
		return s.places.quorum
	}
	return s.refused || hasDeadline(ctx) || s.places.quorum && time.Since(s.since) < longPatience
}

// begin begins a round.
func (s *spreading) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.round++; s.round > 1 {
		s.o.token = randomToken()
	}
	s.began, s.open, s.won, s.fastest = time.Now(), true, false, 0
	for i := range s.parts {
		s.parts[i].state, s.parts[i].err = partIdle, nil
	}
}

// isSplit reports whether some places have granted the last round and others have refused it. A place that granted after
// the round was refused counts as well: its answer may have been late because this Client had just released the lock
// there, and a caller that obtains, releases and obtains again must not be refused by itself.
func (s *spreading) isSplit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted, refused := false, false
	for i := range s.parts {
		granted, refused = granted || s.parts[i].ready, refused || s.parts[i].refused
	}
	return granted && refused
}
