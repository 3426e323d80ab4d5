package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// spreading is the part of an obtain that is special to several places. It asks the places side by side, in rounds, and
// a round ends as soon as enough places have granted or refused. A goroutine for each call waits for the answer, so a
// server that hangs holds up nobody.
//
// Three rules keep rounds apart. At most one call of an obtain is under way to a place; a call that is answered late
// belongs to its own round, and what it was granted is given back, unless that round made the lock. Each round has a new
// random token, so that giving back never hits a later grant. A custom token stays, so the next round waits until all
// is given back.
type spreading struct {
	o       *obtaining // the whole obtain; belongs to the goroutine of the caller
	places  *places
	queue   bool          // a refused round waits in line
	ordered bool          // ask one place after the other; belongs to the goroutine of the caller
	split   bool          // some places have granted the last round and others refused it; likewise
	news    chan struct{} // has room for one: something below has changed, or a waiter was woken

	mu       sync.Mutex // protects the fields below
	parts    []part
	round    int
	began    time.Time     // when the round began
	open     bool          // the present round takes answers
	won      bool          // the present round has been granted
	fastest  time.Duration // of the answers in this round
	ticket   int64         // in all lines; 0 before the first refusal
	over     bool          // the obtain has ended
	holds    *holds        // of the lock, once it is made
	panicked *panicked     // what a hook has panicked with; nil if none has
}

// part is what happens at one place. While busy, its o belongs to the goroutine of the call; otherwise spreading.mu
// protects it.
type part struct {
	place *place
	o     obtaining
	busy  bool      // a call is under way
	began time.Time // when that was
	round int       // in which the place was last asked
	state partState
	err   error // how it failed

	refused bool // the last answer was a refusal
	ready   bool // it was a grant, which was given back
	topped  bool // it was asked once more after the lock was made
}

type partState int

const (
	partIdle partState = iota // not asked in this round
	partAsked
	partGranted
	partRefused
	partFailed
)

// errHangs is the error of a place that was not asked, because it does not answer earlier calls.
var errHangs = errors.New("does not answer earlier calls")

// maxPlaces is how many places a lock can have: as many as a Cluster has slots.
const maxPlaces = 1 << 14

// newSpreading returns what a prepared obtain needs for several places.
//
// Where two waiters have the same ticket, their names decide who is first. All places must decide alike, or the two would
// refuse each other for ever. So each obtain has a range of numbers of its own, and the inboxes of a quorum have one name.
func newSpreading(o *obtaining, at *places, queue bool) *spreading {
	s := &spreading{o: o, places: at, queue: queue, news: make(chan struct{}, 1), parts: make([]part, len(at.all))}
	now := time.Now().UnixMicro()
	first := o.client.spread.Add(maxPlaces)
	for i, p := range at.all {
		part := &s.parts[i]
		part.place = p
		part.o = obtaining{
			client: p.client, keys: p.keys, boxed: p.boxed, ttl: o.ttl, metadata: o.metadata, custom: o.custom, token: o.token,
			part: true, proposal: now,
		}
		if at.isQuorum() {
			part.o.fenceKey = o.fenceKey
		}
		if queue {
			part.o.waiter = newWaiter(p.client.lines)
			part.o.waiter.woken, part.o.waiter.number = s.news, first
			if o.client.quorum == nil { // one inbox for all
				part.o.waiter.number += int64(i)
			}
		}
	}
	return s
}

// run tries until the lock is granted, the strategy stops or ctx ends.
func (s *spreading) run(ctx context.Context, strategy RetryStrategy) (*Lock, error) {
	o := s.o
	if !s.queue && strategy != nil {
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.ttl)
			defer cancel()
		}
		if s.places.isQuorum() {
			strategy = spreadOut{strategy}
		}
	}
	defer s.end(ctx) // also after a panic
	var cut bool
	var err error
	if s.queue {
		cut, err = s.inLine(ctx)
	} else {
		cut, err = retry(ctx, o.client.closed, strategy, time.Time{}, func() (bool, error) {
			again, err := s.attempt(ctx)
			s.ordered = !s.places.isQuorum()
			return again, err
		})
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
		again, err = s.tryRound(ctx)
		if err == nil || s.queue || !s.split || splits >= maxSplits || ended(ctx) != nil {
			return again, err
		}
		pause := time.NewTimer(rand.N(splitPause << splits))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false, s.o.cutShort(ctx)
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
	answer, err := s.collect(ctx, func(now time.Time) (verdict, time.Time) {
		s.launch(ctx, now)
		return s.judge(now)
	})
	if err != nil {
		o.failure = s.failures()
		if ended(ctx) != nil {
			return false, o.cutShort(ctx)
		}
		return false, err
	}
	switch answer {
	case won:
		o.failure, s.split = nil, false
		if err := s.make(ctx); err != ErrNotObtained {
			return false, err
		}
	case refused:
		o.failure = nil
	case undecided:
		o.failure = s.failures()
	}
	s.undo(ctx)
	if s.waitForUndo(ctx) != nil && ended(ctx) != nil {
		return false, o.cutShort(ctx)
	}
	s.split = s.isSplit()
	if o.failure != nil {
		return s.queue && s.mayPass(), o.failure
	}
	return true, ErrNotObtained
}

// verdict is what the answers of a round amount to.
type verdict int

const (
	open verdict = iota
	won
	refused
	undecided
)

// collect calls look, which may hold s.mu, whenever something has changed, until it returns a verdict. It returns an
// error if ctx ends or the Client is closed first. If a hook has panicked, it panics.
func (s *spreading) collect(ctx context.Context, look func(now time.Time) (verdict, time.Time)) (verdict, error) {
	var timer *time.Timer
	for {
		s.mu.Lock()
		answer, until := look(time.Now())
		failed := s.panicked
		if answer != open {
			s.open, s.won = false, answer == won
		}
		s.mu.Unlock()
		failed.again()
		if answer != open {
			return answer, nil
		}
		var late <-chan time.Time
		if !until.IsZero() {
			if timer == nil {
				timer = time.NewTimer(time.Until(until))
				defer timer.Stop()
			} else {
				timer.Reset(time.Until(until))
			}
			late = timer.C
		}
		select {
		case <-s.news:
		case <-late:
		case <-ctx.Done():
			return open, ended(ctx)
		case <-s.o.client.closed:
			return open, ErrClosed
		}
	}
}

// begin begins a round.
func (s *spreading) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.round++; s.round > 1 && !s.o.custom {
		s.o.token = randomToken()
	}
	s.began, s.open, s.won, s.fastest = time.Now(), true, false, 0
	for i := range s.parts {
		s.parts[i].state, s.parts[i].err = partIdle, nil
	}
}

// launch asks those places that are still to be asked in this round. The caller holds s.mu.
func (s *spreading) launch(ctx context.Context, now time.Time) {
	for i := range s.parts {
		p := &s.parts[i]
		if p.state == partIdle && !p.busy {
			s.ask(ctx, p, now)
		}
		if s.ordered && p.state != partGranted {
			return
		}
	}
}

// ask sends the obtain to one place. The caller holds s.mu.
func (s *spreading) ask(ctx context.Context, p *part, now time.Time) {
	if p.o.doubtful && !p.o.custom { // what an earlier round may have acquired unnoticed
		p.o.client.sweep(p.o.newRelease(ctx), WhyAbandoned, p.o.keys, p.o.ttl, 0)
	}
	p.round, p.o.token, p.o.doubtful, p.o.lock, p.o.got = s.round, s.o.token, false, nil, nil
	if !s.admits(p, now) {
		p.state, p.err = partFailed, errHangs
		if w := p.o.waiter; w != nil {
			w.next = now.Add(waiterInterval)
		}
		return
	}
	p.state = partAsked
	s.start(ctx, p, now)
}

// admits reports whether the place may be asked: see health.admit.
func (s *spreading) admits(p *part, now time.Time) bool {
	return !s.places.isQuorum() || p.place.health.admit(now, len(p.o.keys))
}

// start sends the obtain of a part in a goroutine, which ends with the call. The caller holds s.mu.
func (s *spreading) start(ctx context.Context, p *part, now time.Time) {
	p.busy, p.began = true, now
	c := &p.o.first
	if c.Script != nil {
		c = new(transport.Call)
	}
	free := ctx
	if ctx.Done() != nil {
		free = context.WithoutCancel(ctx)
	}
	var call *cleanup // lets a later obtain with the same token wait for this one
	if p.o.custom {
		call = p.o.client.underWay(p.o.token, p.o.keys)
	}
	p.o.call = call
	transport.Go(func() {
		err, failed := ErrNotObtained, &panicked{}
		defer func() {
			if failed != nil {
				failed.value = recover()
				p.o.doubtful = true
				err = errPanicked
			}
			s.land(free, p, c, err, failed)
			if call != nil {
				p.place.client.ended(call)
			}
		}()
		err = p.o.tryHere(free, c)
		failed = nil
	})
}

// land takes the answer of a call that has ended.
func (s *spreading) land(ctx context.Context, p *part, c *transport.Call, err error, failed *panicked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	p.busy = false
	s.panicked = cmp.Or(s.panicked, failed)
	now := time.Now()
	took := now.Sub(p.began)
	answered := c.Err == nil || transport.IsAnswer(c.Err)
	if s.places.isQuorum() {
		p.place.health.ended(now, took, answered)
	}
	p.refused, p.ready = err == ErrNotObtained, err == nil
	switch {
	case err == nil:
		p.state = partGranted
	case p.refused:
		p.state = partRefused
	default:
		p.state, p.err = partFailed, err
		if w := p.o.waiter; w != nil {
			w.next = now.Add(waiterInterval)
		}
	}
	if answered && s.fastest == 0 {
		s.fastest = took
	}
	switch present := p.round == s.round; {
	case present && (s.open || s.won && s.holds == nil):
		s.o.seen.resends += c.Resends
	case present && s.holds != nil:
		s.joinLate(ctx, p)
	default:
		s.settle(ctx, p)
	}
}

// settle deals with a place whose answer came too late for its round, or that has given back what it had granted. The
// caller holds s.mu, and no call is under way to the place.
func (s *spreading) settle(ctx context.Context, p *part) {
	switch {
	case s.over || s.holds != nil:
		s.leave(ctx, p)
		if s.holds != nil {
			s.holds.miss(s.number(p), false)
			s.holds.topUp(s.number(p), 0)
		}
	case p.state != partIdle:
		s.undoPart(ctx, p)
	}
}

func (s *spreading) signal() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// judge returns what the answers amount to by now, and when a place will count as absent. The caller holds s.mu.
func (s *spreading) judge(now time.Time) (answer verdict, until time.Time) {
	granted, refusals, waiting := 0, 0, 0
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.state == partGranted && !p.busy:
			granted++
		case p.state == partRefused && !p.busy:
			refusals++
		case p.state == partFailed && !p.busy:
		case !s.places.isQuorum():
			waiting++
		default:
			late := p.began.Add(p.place.health.patience(len(p.o.keys), s.fastest))
			if now.Before(late) {
				waiting++
				if until.IsZero() || late.Before(until) {
					until = late
				}
			}
		}
	}
	switch {
	case granted >= s.places.need:
		return won, until
	case refusals > s.places.spare():
		return refused, until
	case waiting == 0:
		return undecided, until
	}
	return open, until
}

// failures returns an error that names every place that has not answered, or not well.
func (s *spreading) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.state == partFailed:
			errs = append(errs, s.named(p, p.err))
		case p.busy || p.state == partIdle:
			errs = append(errs, s.named(p, errUnanswered))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return failed("obtain", s.o.keys, joined(errs))
}

// named adds the name of the place to an error that does not have it.
func (s *spreading) named(p *part, err error) error {
	if !s.places.isQuorum() && err != errUnanswered {
		return err
	}
	return fmt.Errorf("%s: %w", p.place.name, err)
}

// mayPass reports whether a majority of the places may grant later: not too many have answered with an error that
// stays.
func (s *spreading) mayPass() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	final := 0
	for i := range s.parts {
		if p := &s.parts[i]; p.state == partFailed && transport.IsFinal(p.err) {
			final++
		}
	}
	return final <= s.places.spare()
}

// make makes the lock of a round that was won. It returns ErrNotObtained if the lock has lapsed by now.
func (s *spreading) make(ctx context.Context) error {
	o := s.o
	fence, err := s.fence(ctx)
	if err != nil {
		o.failure = err
		s.mu.Lock()
		s.won = false
		s.mu.Unlock()
		if s.places.isQuorum() {
			return ErrNotObtained // the next round of a waiter may do better
		}
		s.undo(ctx)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.won = false
	h := &holds{places: s.places, token: o.token, fence: fence, fenceKey: o.fenceKey, at: make([]hold, len(s.parts))}
	lock := &Lock{
		client: o.client, keys: o.keys, token: o.token, fence: fence, metadata: o.metadata, obtained: o.ttl, holds: h,
	}
	h.whole = lock
	for i := range s.parts {
		if p := &s.parts[i]; p.state == partGranted && !p.busy && p.round == s.round {
			h.put(i, p.o.lock)
			if lock.since.IsZero() || p.o.lock.since.Before(lock.since) {
				lock.since = p.o.lock.since
			}
		}
	}
	if lease.Passed(h.until()) {
		return ErrNotObtained
	}
	o.lock, s.holds, h.shown = lock, h, h.until()
	for i := range s.parts { // a place that is busy joins when it lands
		p := &s.parts[i]
		if p.state == partGranted {
			p.o.lock = nil // it belongs to the lock now
		} else if !p.busy {
			s.joinLate(ctx, p)
		}
	}
	return nil
}

// joinLate deals with a place that has answered when the lock was already made. The caller holds s.mu.
func (s *spreading) joinLate(ctx context.Context, p *part) {
	i := s.number(p)
	if p.state == partGranted {
		s.holds.join(ctx, i, p.o.lock)
		p.o.lock = nil
		p.o.waiter.quitInbox()
		return
	}
	s.holds.miss(i, p.o.doubtful)
	if p.topped || p.state == partFailed {
		if p.state == partRefused {
			s.holds.topUp(i, 1)
		}
		if p.o.waiter.hasPlace() {
			p.o.leaveLines(ctx)
			p.o.waiter.quitInbox()
		}
		return
	}
	// Others may have been about to give back what they had there. With three holds, a server that forgets its data
	// does no harm.
	p.topped = true
	p.o.fenceKey, p.o.raise = "", s.holds.raiser()
	if s.queue {
		s.topUp(ctx, p)
		return
	}
	time.AfterFunc(topUpAfter+rand.N(topUpAfter), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.holds.isOver() {
			s.topUp(ctx, p)
		}
	})
}

// topUp asks a place once more for a lock that is made. The caller holds s.mu.
func (s *spreading) topUp(ctx context.Context, p *part) {
	now := time.Now()
	if s.admits(p, now) {
		s.start(ctx, p, now)
	} else if p.o.waiter.hasPlace() {
		p.o.leaveLines(ctx)
		p.o.waiter.quitInbox()
	}
}

// topUpAfter is how long after a grant a place that has refused is asked again.
const topUpAfter = 5 * time.Millisecond

func (s *spreading) number(p *part) int {
	return slices.IndexFunc(s.places.all, func(other *place) bool { return other == p.place })
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

// undo gives back what the present round was granted, at all places.
func (s *spreading) undo(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
	if s.queue {
		s.agree()
	}
	for i := range s.parts {
		if p := &s.parts[i]; !p.busy {
			s.undoPart(ctx, p)
		}
	}
}

// waitForUndo waits until all is given back, or for as long as the servers usually take. With a custom token it waits
// until all is given back, whatever that takes. It returns an error if ctx ends or the Client is closed first.
func (s *spreading) waitForUndo(ctx context.Context) error {
	_, err := s.collect(ctx, func(now time.Time) (answer verdict, until time.Time) {
		for i := range s.parts {
			p := &s.parts[i]
			if !p.busy {
				continue
			}
			if s.o.custom || !s.places.isQuorum() {
				return open, time.Time{}
			}
			late := p.began.Add(p.place.health.patience(len(p.o.keys), s.fastest))
			if now.Before(late) && (until.IsZero() || late.Before(until)) {
				until = late
			}
		}
		if until.IsZero() {
			answer = undecided
		}
		return answer, until
	})
	return err
}

// undoPart gives back what a place has granted. In line, it steps back: the waiter keeps its place, with the common
// ticket. The caller holds s.mu, and no call is under way to the place.
func (s *spreading) undoPart(ctx context.Context, p *part) {
	granted := p.state == partGranted
	p.state = partIdle
	w := p.o.waiter
	stays := w.hasPlace() && s.ticket > 0
	moved := stays && w.ticket != 0 && w.ticket != s.ticket
	if stays {
		w.ticket = s.ticket
	}
	if !granted && !moved {
		return
	}
	keys := p.o.got
	if !granted {
		keys = nil
	}
	c := newRelease(ctx, p.o.token, nil, nil)
	boxed := box(keys)
	c.Keys, c.Spare, c.Simple = boxed[:len(keys)], p.o.boxed[len(p.o.keys):], false
	c.SetArgs(len(keys))
	if stays {
		c.Args = append(c.Args, w.entry, "0", s.ticket, int(w.life/time.Second), w.isOpen())
	}
	p.o.lock, p.o.got = nil, nil
	p.busy, p.began = true, time.Now()
	x := &cleanup{release: c, why: WhyAbandoned, keys: keys, about: p.o.keys}
	if !p.o.client.inBackground(x, func() error {
		_, err := p.o.client.sendCleanup(x, p.o.ttl)
		s.undone(ctx, p)
		return err
	}) {
		p.busy = false
	}
}

// undone notes that a place has given back what it granted.
func (s *spreading) undone(ctx context.Context, p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.busy = false
	s.settle(ctx, p)
	s.signal()
}

// end ends the obtain. Unless it made a lock, it gives everything back in the background.
func (s *spreading) end(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.open, s.won = true, false, false
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.busy: // it is dealt with when its call has ended
		case s.holds == nil:
			s.leave(ctx, p)
		default:
			p.o.waiter.quitInbox()
		}
	}
}

// leave gives up all that an obtain that has ended may have at a place, apart from the hold of a lock. The caller holds
// s.mu, and no call is under way to the place.
func (s *spreading) leave(ctx context.Context, p *part) {
	o := &p.o
	gone := &obtaining{
		client: o.client, keys: o.keys, boxed: o.boxed, ttl: o.ttl, custom: o.custom, token: o.token, waiter: o.waiter,
		doubtful: o.doubtful,
	}
	if p.state == partGranted && o.lock != nil {
		gone.late, gone.taken = true, o.got
	}
	p.state, o.lock, o.waiter, o.doubtful = partIdle, nil, nil, false
	gone.withdraw(ctx)
	gone.waiter.quitInbox()
}
