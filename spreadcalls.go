package redislock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

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

	refused bool // the last answer was a refusal, or a grant that came too late
	late    bool // it was a grant that came too late
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

// isGranted reports whether the place has granted. The caller holds spreading.mu.
func (p *part) isGranted() bool { return p.state == partGranted && !p.busy }

// launch asks those places that are still to be asked in this round. The caller holds s.mu.
func (s *spreading) launch(ctx context.Context, now time.Time) {
	s.insist(ctx, now)
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
		p.o.client.sweep(newCleanup(p.o.newRelease(ctx), WhyAbandoned, p.o.keys, p.o.ttl), 0)
	}
	p.round, p.o.token, p.o.lock, p.o.got = s.round, s.o.token, nil, nil
	p.o.doubtful = p.o.doubtful && p.o.custom // with the same token, a request of an earlier round may still be stuck
	p.o.proposal = s.began.UnixMicro()        // a server takes none that is over a second old
	p.o.tentative, p.o.stale = p.o.custom, false
	s.send(ctx, p, now)
}

// insist asks places again that have granted keys which the token had before, once that can win the round. Only then are
// these keys given the ttl. If each try did so, keys that an abandoned call has left behind would last for as long as their
// token is refused elsewhere. After insist, stale grants can be counted like others: they make no majority. The caller holds
// s.mu.
func (s *spreading) insist(ctx context.Context, now time.Time) {
	granted, stale := 0, 0
	for i := range s.parts {
		if p := &s.parts[i]; p.isGranted() {
			granted++
			if p.o.stale {
				stale++
			}
		}
	}
	if granted < s.places.need || granted-stale >= s.places.need {
		return
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.isGranted() && p.o.stale {
			p.o.taken, p.o.got, p.o.lock = p.o.got, nil, nil // to be given back with the rest, or if this fails
			p.o.tentative, p.o.stale = false, false
			s.send(ctx, p, now)
		}
	}
}

// send sends the obtain of a part, unless its place hangs. The caller holds s.mu.
func (s *spreading) send(ctx context.Context, p *part, now time.Time) {
	if !s.admits(p, now) {
		p.state, p.err = partFailed, errHangs
		if w := p.o.waiter; w != nil {
			w.heed() // otherwise a message would make the other places be asked at once, again and again
			w.next = now.Add(waiterInterval)
		}
		return
	}
	p.state = partAsked
	s.start(ctx, p, now, p.o.known())
}

// admits reports whether the place may be asked: see health.admit.
func (s *spreading) admits(p *part, now time.Time) bool {
	return !s.places.quorum || p.place.health.admit(now, len(p.o.keys))
}

// known lets a later obtain with the same custom token wait for the call that follows; nil for a random token, which no
// later obtain has. Call ended with the result.
func (o *obtaining) known() *cleanup {
	if !o.custom {
		return nil
	}
	return o.client.underWay(o.token, o.keys)
}

// start sends the obtain of a part in a goroutine, which ends with the call. The caller holds s.mu.
func (s *spreading) start(ctx context.Context, p *part, now time.Time, call *cleanup) {
	p.busy, p.began = true, now
	free := ctx
	if ctx.Done() != nil {
		free = context.WithoutCancel(ctx)
	}
	p.o.call = call
	client := p.place.client
	client.obtains.Add(1)
	c := new(transport.Call)
	transport.Go(func() {
		err, failed := ErrNotObtained, &panicked{}
		defer func() {
			if failed != nil {
				failed.value = recover()
				p.o.doubtful = true
				err = errPanicked
			}
			s.land(free, p, c, err, failed)
			client.ended(call)
			client.obtains.Add(-1)
		}()
		err = p.o.tryHere(free, c)
		failed = nil
	})
}

// tryHere is try at one of several places. It returns when the call has ended, however long that takes: nobody waits for
// it. ctx must not end. It returns nil if the place has granted, and ErrNotObtained if it has refused.
func (o *obtaining) tryHere(ctx context.Context, c *transport.Call) error {
	if o.custom {
		if err := o.waitForOwn(ctx); err != nil {
			return err
		}
	}
	if o.waiter != nil {
		done, _ := o.waiter.admit(ctx, o.client.closed, len(o.keys)) // nothing is handed over at several places
		if done == nil {
			return ErrClosed
		}
		defer done()
	}
	o.fillObtain(c)
	c.GiveUp, c.Ctx = time.Now().Add(o.ttl), ctx
	o.client.redis.Do(ctx, c)
	o.failure = nil
	if _, err := o.conclude(ctx, c); err != nil {
		return err
	}
	if len(o.taken) > 0 { // those are given back with the hold
		o.got = slices.Concat(o.got, o.taken)
		slices.Sort(o.got)
		o.got, o.taken = slices.Compact(o.got), nil
	}
	if o.joins != nil && o.joins.isFenced() {
		o.lock.fence = o.joins.raise(ctx, o.lock)
	}
	return nil
}

// waitForOwn waits for earlier calls with the same token. That says nothing about the server.
func (o *obtaining) waitForOwn(ctx context.Context) (err error) {
	if o.health != nil {
		began := time.Now()
		o.health.leave()
		defer func() {
			o.waited = time.Since(began)
			o.health.enter(time.Now())
		}()
	}
	if o.superseded, err = o.client.supersede(ctx, o.token, o.keys, o.call.order); err == nil {
		o.inherit()
	}
	return err
}

// land takes the answer of a call that has ended.
func (s *spreading) land(ctx context.Context, p *part, c *transport.Call, err error, failed *panicked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	p.busy = false
	s.panicked = cmp.Or(s.panicked, failed)
	now := time.Now()
	took := now.Sub(p.began) - p.o.waited
	answered := c.IsAnswered()
	if s.places.quorum {
		p.place.health.ended(now, took, answered)
	}
	p.refused, p.ready = errors.Is(err, ErrNotObtained), err == nil
	p.late = p.refused && errors.Is(err, ErrLapsed)
	switch {
	case err == nil:
		p.state = partGranted
	case p.refused:
		p.state = partRefused
	default:
		p.state, p.err = partFailed, err
		if w := p.o.waiter; w != nil {
			w.rest(now)
		}
	}
	if answered && s.fastest == 0 {
		s.fastest = took
	}
	switch present := p.round == s.round; {
	case present && (s.open || s.won && s.holds == nil):
		s.o.seen.resends += int(c.Resends)
	case (present || p.o.custom) && s.holds != nil: // it has the token of the lock
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
		unsure := p.o.custom && p.o.doubtful // leave gives back nothing that may be an earlier hold
		s.leave(ctx, p)
		if s.holds != nil {
			s.holds.miss(s.number(p), false, unsure)
			if p.topped {
				s.holds.mendSoon(s.number(p))
				return
			}
			p.round, p.o.token = s.round, s.o.token // it was not asked for the lock yet
			s.askAgain(ctx, p)
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

func (s *spreading) number(p *part) int {
	return slices.IndexFunc(s.places.all, func(other *place) bool { return other == p.place })
}
