package redislock

import (
	"context"
	"time"

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
func (s *spreading) collect(
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
			return open, ended(ctx)
		case <-s.o.client.closed:
			return open, ErrClosed
		}
	}
}

// judge returns what the answers amount to by now, and when a place will count as absent. The caller holds s.mu.
func (s *spreading) judge(now time.Time) (answer verdict, until time.Time) {
	granted, refusals, waiting := 0, 0, 0
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.isGranted():
			granted++
		case p.state == partRefused && !p.busy:
			refusals++
		case p.state == partFailed && !p.busy:
			if s.ordered { // those behind it are not asked
				return undecided, until
			}
		case !s.places.quorum:
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
		case p.busy || p.state == partIdle && !s.ordered:
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
	if !s.places.quorum && err != errUnanswered {
		return err
	}
	return p.place.named(err)
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
