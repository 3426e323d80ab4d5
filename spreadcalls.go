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
	site  *site
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

// ask sends the obtain to one place, unless that hangs. The caller holds s.mu.
func (s *spreading) ask(ctx context.Context, p *part, now time.Time) {
	if p.o.doubtful { // what an earlier round may have acquired unnoticed
		p.o.place.sweep(newCleanup(p.o.newRelease(ctx), WhyAbandoned, p.o.keys, p.o.ttl), 0)
	}
	p.round, p.o.token, p.o.hold, p.o.doubtful = s.round, s.o.token, nil, false
	p.o.proposal = s.began.UnixMicro() // a server takes none that is over a second old

	if !s.admits(p, now) {
		p.state, p.err = partFailed, errHangs
		if w := p.o.waiter; w != nil {
			w.heed() // otherwise a message would make the other places be asked at once, again and again
			w.next = now.Add(waiterInterval)
		}
		return
	}
	p.state = partAsked
	s.start(ctx, p, now)
}

// admits reports whether the place may be asked: see health.admit.
func (s *spreading) admits(p *part, now time.Time) bool {
	return !s.places.quorum || p.site.health.admit(now, len(p.o.keys))
}

// start sends the obtain of a part in a goroutine, which ends with the call. The caller holds s.mu.
func (s *spreading) start(ctx context.Context, p *part, now time.Time) {
	p.busy, p.began = true, now
	free := ctx
	if ctx.Done() != nil {
		free = context.WithoutCancel(ctx)
	}
	p.site.calls.Add(1)
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
			p.site.calls.Add(-1)
		}()
		err = p.o.tryHere(free, c)
		failed = nil
	})
}

// tryHere is try at one of several places. It returns when the call has ended, however long that takes: nobody waits for
// it. ctx must not end. It returns nil if the place has granted, and ErrNotObtained if it has refused.
func (o *obtaining) tryHere(ctx context.Context, c *transport.Call) error {
	if o.waiter != nil {
		done, _ := o.waiter.admit(ctx, o.place.closed, len(o.keys)) // nothing is handed over at several places
		if done == nil {
			return ErrClosed
		}
		defer done()
	}
	o.fillObtain(c)
	c.GiveUp, c.Ctx = time.Now().Add(o.ttl), ctx
	o.place.redis.Do(ctx, c)
	o.failure = nil
	if _, err := o.conclude(ctx, c); err != nil {
		return err
	}
	if o.joins != nil && o.joins.isFenced() {
		o.hold.fence = o.joins.raise(ctx, o.hold)
	}
	return nil
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
	answered := c.IsAnswered()
	if s.places.quorum {
		p.site.health.ended(now, took, answered)
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
	case present && s.holds != nil: // it has the token of the lock
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
			s.holds.miss(s.number(p), false, false)
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
	return slices.IndexFunc(s.places.all, func(other *site) bool { return other == p.site })
}
