package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/transport"
)

// verdict is what the answers of a round amount to.
type verdict int

const (
	open verdict = iota
	won
	refused
	undecided
)

// collect calls look, with s.mu held, whenever something has changed, until it returns a verdict. It also calls look some
// grace after the time that look returns: if this process has stood still, answers may be here that nobody has taken
// yet. collect returns an error if ctx ends or the Client is closed first. If a hook has panicked, it panics.
func (s *Spreading) collect(
	ctx context.Context, grace time.Duration, look func(now time.Time) (verdict, time.Time),
) (verdict, error) {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
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
			} else {
				timer.Reset(time.Until(until))
			}
			late = timer.C
		}
		select {
		case <-s.news:
		case <-late:
			time.Sleep(grace)
		case <-ctx.Done():
			return open, fault.Ended(ctx)
		case <-s.places.set.Closed:
			return open, fault.ErrClosed
		}
	}
}

// judge returns what the answers amount to by now, and when a place will count as absent. The caller holds s.mu.
func (s *Spreading) judge(now time.Time) (answer verdict, until time.Time) {
	t := tally{places: len(s.parts), need: s.places.need}
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.isGranted():
			t.granted++
		case p.state == partRefused && !p.busy:
			t.refused++
		case p.state == partFailed && !p.busy && s.ordered: // those behind it are not asked
			return undecided, until
		}
	}
	limit := health.NoLimit
	if t.granted > 0 && t.refused > 0 && !s.patient && !s.isNext() { // others may need what this round holds
		limit = s.splitPatience()
	}
	t.waits, until = s.waits(now, limit)
	return t.judge(), until
}

// tally is how the places have answered a round by now.
type tally struct {
	places, need     int // of which so many are enough
	granted, refused int
	waits            bool // some of the others may still answer in time
}

// judge returns what the answers amount to. A round that enough places have answered, and not all of them with a grant, is
// refused even if the others are down: that they are missing has not decided it.
func (t tally) judge() verdict {
	switch {
	case t.granted >= t.need:
		return won
	case t.refused > t.places-t.need:
		return refused
	case t.waits:
		return open
	case t.refused > 0 && t.granted+t.refused >= t.need:
		return refused
	}
	return undecided
}

// isNext reports whether a waiter in line may wait for the places that are left: its ticket keeps the others away from what
// this round holds. If a place that has refused wakes it meanwhile, the next round may do better. The caller holds s.mu.
func (s *Spreading) isNext() bool {
	if !s.queue || s.ticket == 0 {
		return false
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.state == partRefused && !p.busy {
			if called, _ := p.Waiter.WasWoken(); called {
				return false
			}
		}
	}
	return true
}

// waits reports whether some place may still answer in time, and when the first of those will count as absent. On a
// quorum, a server does so after limit, and at once if it usually takes longer than that. The caller holds s.mu.
func (s *Spreading) waits(now time.Time, limit time.Duration) (waits bool, until time.Time) {
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case !p.busy:
			continue
		case !s.places.quorum:
			waits = true
			continue
		}
		late := p.began.Add(p.site.health.Patience(len(p.Keys.Names), s.fastest, limit))
		if now.Before(late) && (until.IsZero() || late.Before(until)) {
			waits, until = true, late
		}
	}
	return waits, until
}

const (
	// leastSplitPatience allows for a server that is late by chance.
	leastSplitPatience = 5 * time.Millisecond

	// patientSplits is after how many split rounds in a row splitPatience doubles.
	patientSplits = 4
)

// splitPatience returns how long a server of a quorum may take for its answer to a round that the others have split: four
// times as long as a majority usually takes. While a round waits, nobody else can have what it was granted. But if round
// after round is split, other callers may not be the reason: a server can hold keys that nobody will release. So the time
// grows. The caller holds s.mu.
func (s *Spreading) splitPatience() time.Duration {
	if !s.places.quorum {
		return health.NoLimit
	}
	usual := make([]time.Duration, 0, len(s.parts))
	for i := range s.parts {
		if answers := s.parts[i].site.health.Usually(); answers > 0 {
			usual = append(usual, answers)
		}
	}
	if len(usual) < s.places.need {
		return health.NoLimit
	}
	slices.Sort(usual)
	return max(leastSplitPatience, 4*usual[s.places.need-1]) << min(s.splits/patientSplits, 10)
}

// failures returns an error that names every place that has not answered, or not well.
func (s *Spreading) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.state == partFailed:
			errs = append(errs, s.named(p, p.err))
		case p.busy || p.state == partIdle && !s.ordered:
			errs = append(errs, s.named(p, s.Unanswered(s.began, s.ttl)))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fault.Failed("obtain", s.keys, fault.Joined(errs))
}

// hasFailed reports whether a place has answered the present round with an error, or was not asked because it hangs.
func (s *Spreading) hasFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.parts { // not by value: what a goroutine writes is not looked at
		if s.parts[i].state == partFailed {
			return true
		}
	}
	return false
}

// named adds the name of the place to an error that does not have it.
func (s *Spreading) named(p *part, err error) error {
	if !s.places.quorum && !errors.Is(err, fault.ErrUnanswered) {
		return err
	}
	return p.site.named(err)
}

// mayPass reports whether a majority of the places may grant later: not too many have answered with an error that
// stays.
func (s *Spreading) mayPass() bool {
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
