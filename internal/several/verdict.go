package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
)

// verdict is what the answers of a round amount to.
type verdict int

const (
	open verdict = iota
	won
	refused
	undecided
)

// tally is how the places have answered a round by now.
type tally struct {
	places, need     int // of which so many are enough
	granted, refused int
	waits            bool // some of the others may still answer in time
}

// judge returns what the answers amount to. If enough places have answered, and some of them have refused, the round is
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

// mayWin reports whether the round has no verdict yet, and needs those that are under way to be won.
func (t tally) mayWin(underWay int) bool {
	return t.granted+t.refused < t.need && t.granted+underWay >= t.need
}

// collect calls look, with s.mu held, whenever something has changed, until look returns a verdict. It also calls look some
// grace after the time that look returns: if this process has stood still, answers may be here that nobody has taken yet.
// collect returns an error if ctx ends or the Client is closed first. If a hook has panicked, collect panics.
func (s *Rounds) collect(
	ctx context.Context, grace time.Duration, look func(now time.Time) (verdict, time.Time),
) (verdict, error) {
	timer := time.NewTimer(health.NoLimit)
	defer timer.Stop()
	for {
		s.mu.Lock()
		answer, until := look(time.Now())
		hook := s.panicked
		if answer != open {
			s.verdict = answer
		}
		s.mu.Unlock()
		hook.again()
		if answer != open {
			return answer, nil
		}
		wait := health.NoLimit
		if !until.IsZero() {
			wait = time.Until(until)
		}
		timer.Reset(wait)
		select {
		case <-s.news:
		case <-timer.C:
			time.Sleep(grace)
		case <-ctx.Done():
			return open, fault.Ended(ctx)
		case <-s.places.set.Closed:
			return open, fault.ErrClosed
		}
	}
}

// judge returns what the answers amount to by now, and when the next place will count as absent. The caller holds s.mu.
func (s *Rounds) judge(now time.Time) (answer verdict, until time.Time) {
	t := tally{places: len(s.parts), need: s.places.need}
	for _, p := range s.parts {
		switch {
		case p.answer == granted:
			t.granted++
		case p.answer == denied:
			t.refused++
		case p.answer == failed && s.isOrdered(): // the places behind it are not asked
			return undecided, until
		}
	}
	limit := health.NoLimit
	if t.granted > 0 && t.refused > 0 && !s.patient && !s.isNext() { // others may need what this round holds
		limit = s.splitPatience()
	}
	var least time.Duration
	if limit == health.NoLimit && t.mayWin(s.count(isBusy)) {
		least = health.FirstPatience
	}
	t.waits, until = s.waits(now, least, limit)
	return t.judge(), until
}

// isNext reports whether a waiter in line may wait for the places that are left: its ticket keeps other waiters away from
// what this round holds. If a place that has refused wakes the waiter meanwhile, the next round may do better. The caller
// holds s.mu.
func (s *Rounds) isNext() bool {
	return s.queue && s.ticket > 0 && s.count(func(p *part) bool {
		if p.answer != denied {
			return false
		}
		called, _ := p.Waiter.WasWoken()
		return called
	}) == 0
}

// waits reports whether some place may still answer in time, and when the first of those will count as absent. On a quorum,
// a server counts as absent after limit, and at once if it usually takes longer than that, but not before least. The caller
// holds s.mu.
func (s *Rounds) waits(now time.Time, least, limit time.Duration) (waits bool, until time.Time) {
	for _, p := range s.parts {
		switch {
		case !p.busy:
		case !s.places.quorum:
			waits = true
		default:
			late := p.began.Add(max(least, p.site.health.Patience(p.began, len(p.Keys.Names), s.fastest, limit)))
			if now.Before(late) && (until.IsZero() || late.Before(until)) {
				waits, until = true, late
			}
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
// times as long as a majority usually takes. While a round waits, no other caller can get what the round was granted. But
// if round after round is split, other callers may not be the reason: a server can hold keys that nobody will release. So
// the time grows. The caller holds s.mu.
func (s *Rounds) splitPatience() time.Duration {
	if !s.places.quorum {
		return health.NoLimit
	}
	usual := make([]time.Duration, 0, len(s.parts))
	for _, p := range s.parts {
		if answers := p.site.health.Usually(); answers > 0 {
			usual = append(usual, answers)
		}
	}
	if len(usual) < s.places.need {
		return health.NoLimit
	}
	slices.Sort(usual)
	return max(leastSplitPatience, 4*usual[s.places.need-1]) << min(s.splits/patientSplits, 10)
}

// lateness returns the error of a round that was refused because grants came too late; nil if others have so many places
// that the round would have been refused anyway. The caller holds s.mu.
func (s *Rounds) lateness() error {
	late := s.count(func(p *part) bool { return p.answer == denied && p.Late })
	others := s.count(func(p *part) bool { return p.answer == denied && !p.Late })
	if late == 0 || others > s.places.spare() {
		return nil
	}
	return fault.TooLate(s.began, s.want.TTL)
}

// failures returns an error that names every place that has not answered, or not well. The caller holds s.mu.
func (s *Rounds) failures() error {
	var errs []error
	for _, p := range s.parts {
		switch {
		case p.answer == failed:
			errs = append(errs, s.named(p, p.err))
		case p.busy || p.answer == none && !s.isOrdered():
			errs = append(errs, s.named(p, s.Unanswered(s.began, s.want.TTL)))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fault.Failed("obtain", s.keys, fault.Joined(errs))
}

// named adds the name of the place to an error that does not have it.
func (s *Rounds) named(p *part, err error) error {
	if !s.places.quorum && !errors.Is(err, fault.ErrUnanswered) {
		return err
	}
	return p.site.named(err)
}
