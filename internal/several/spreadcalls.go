package several

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// part is what happens at one place. While busy, its attempt belongs to the goroutine of the call; otherwise Spreading.mu
// protects it.
type part struct {
	place.Attempt

	site  *site
	grant place.Granted // of the place, if its state is partGranted

	request majority.Request // of the lock that was made of this round
	busy    bool             // a call is under way
	began   time.Time        // when that was
	round   int              // in which the place was last asked
	state   partState
	err     error // how it failed

	refused bool // the last answer was a refusal, or a grant that came too late
	lapsed  bool // it was a grant that came too late
	ready   bool // it was a grant, which was given back
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

// isGranted reports whether the place has granted. The caller holds Spreading.mu.
func (p *part) isGranted() bool { return p.state == partGranted && !p.busy }

// launch asks those places that are still to be asked in this round. The caller holds s.mu.
func (s *Spreading) launch(ctx context.Context, now time.Time) {
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
func (s *Spreading) ask(ctx context.Context, p *part, now time.Time) {
	if p.Doubtful { // what an earlier round may have acquired unnoticed
		p.Place.Cleanups.Sweep(undo.New(p.ReleaseCall(ctx), undo.Abandoned, p.Keys.Names, p.TTL), 0)
	}
	p.round, p.Token, p.Doubtful = s.round, s.token, false
	p.Proposal = s.began.UnixMicro() // a server takes none that is over a second old

	if !s.admits(p, now) {
		p.state, p.err = partFailed, errHangs
		p.Waiter.PassOver(now)
		return
	}
	p.state = partAsked
	s.start(ctx, p, now)
}

// admits reports whether the place may be asked: see health.Server.Admit.
func (s *Spreading) admits(p *part, now time.Time) bool {
	return !s.places.quorum || p.site.health.Admit(now, len(p.Keys.Names))
}

// start sends the obtain of a part in a goroutine, which ends with the call. The caller holds s.mu.
func (s *Spreading) start(ctx context.Context, p *part, now time.Time) {
	p.busy, p.began = true, now
	free := ctx
	if ctx.Done() != nil {
		free = context.WithoutCancel(ctx)
	}
	p.site.Calls.Add(1)
	c := new(transport.Call)
	transport.Go(func() {
		var grant place.Granted
		err, failed := fault.ErrPanicked, &panicked{} // unless TryHere returns
		defer func() {
			if failed != nil {
				failed.value = recover()
				p.Doubtful = true
			}
			s.land(free, p, c, grant, err, failed)
			p.site.Calls.Add(-1)
		}()
		grant, err = p.TryHere(free, c)
		failed = nil
	})
}

// land takes the answer of a call that has ended.
func (s *Spreading) land(
	ctx context.Context, p *part, c *transport.Call, grant place.Granted, err error, failed *panicked,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	p.busy, p.grant = false, grant
	s.panicked = cmp.Or(s.panicked, failed)
	now := time.Now()
	took := now.Sub(p.began)
	answered := c.IsAnswered()
	if s.places.quorum {
		p.site.health.Ended(now, took, answered)
	}
	p.refused, p.ready = errors.Is(err, fault.ErrNotObtained), err == nil
	p.lapsed = p.refused && errors.Is(err, fault.ErrLapsed)
	switch {
	case err == nil:
		p.state = partGranted
	case p.refused:
		p.state = partRefused
	default:
		p.state, p.err = partFailed, err
		if w := p.Waiter; w != nil {
			w.Rest(now)
		}
	}
	if answered && s.fastest == 0 {
		s.fastest = took
	}
	switch present := p.round == s.round; {
	case present && (s.open || s.won && s.holds == nil):
		s.Resends += int(c.Resends)
	case present && s.holds != nil: // it has the token of the lock
		s.join(ctx, p)
	default:
		s.settle(ctx, p)
	}
}

// settle deals with a place whose answer came too late for its round, or that has given back what it had granted. The
// caller holds s.mu, and no call is under way to the place.
func (s *Spreading) settle(ctx context.Context, p *part) {
	switch {
	case s.over || s.holds != nil:
		s.leave(ctx, p)
		if s.holds != nil { // it was not asked for the lock yet
			s.holds.mendSoon(s.number(p))
		}
	case p.state != partIdle:
		s.undoPart(ctx, p)
	}
}

func (s *Spreading) signal() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *Spreading) number(p *part) int {
	return slices.IndexFunc(s.places.all, func(other *site) bool { return other == p.site })
}
