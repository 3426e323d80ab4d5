package several

import (
	"cmp"
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

// collect calls look, with t.mu held, whenever something has changed, until look returns a verdict. It also calls look some
// grace after the time that look returns: if this process has stood still, answers may be here that nobody has taken yet.
// collect returns an error if ctx ends or the Client is closed first. If a hook has panicked, collect panics.
func (t *Tries) collect(
	ctx context.Context, grace time.Duration, look func(now time.Time) (verdict, time.Time),
) (verdict, error) {
	timer := time.NewTimer(health.NoLimit)
	defer timer.Stop()
	for {
		t.mu.Lock()
		found, until := look(time.Now())
		hook := t.panicked
		if found != open {
			t.verdict = found
		}
		t.mu.Unlock()
		hook.again()
		if found != open {
			return found, nil
		}
		wait := health.NoLimit
		if !until.IsZero() {
			wait = time.Until(until)
		}
		timer.Reset(wait)
		select {
		case <-t.news:
		case <-timer.C:
			time.Sleep(grace)
		case <-ctx.Done():
			return open, fault.Ended(ctx)
		case <-t.places.set.Closed:
			return open, fault.ErrClosed
		}
	}
}

// judge returns what the answers amount to by now, and when the next place will count as absent. The caller holds t.mu.
func (t *Tries) judge(now time.Time) (found verdict, until time.Time) {
	votes := tally{places: len(t.attempts), need: t.places.need}
	for _, a := range t.attempts {
		switch {
		case a.vote == granted:
			votes.granted++
		case a.vote == denied:
			votes.refused++
		case a.vote == failed && t.isOrdered(): // the places behind it are not asked
			return undecided, until
		}
	}
	limit := health.NoLimit
	if votes.granted > 0 && votes.refused > 0 && !t.patient && !t.isNext() { // others may need what this round holds
		limit = t.splitPatience()
	}
	least, fastest := time.Duration(0), t.fastest
	if limit == health.NoLimit && votes.mayWin(t.count(isBusy)) { // what else is fast does not help
		least, fastest = health.FirstPatience, 0
	}
	votes.waits, until = t.waits(now, least, fastest, limit)
	return votes.judge(), until
}

// isNext reports whether a waiter in line may wait for the places that are left: its ticket keeps other waiters away from
// what this round holds. If a place that has refused wakes the waiter meanwhile, the next round may do better. The caller
// holds t.mu.
func (t *Tries) isNext() bool {
	return t.queue && t.ticket > 0 && t.count(func(a *attempt) bool {
		if a.vote != denied {
			return false
		}
		called, _ := a.Waiter.WasWoken()
		return called
	}) == 0
}

// waits reports whether some place may still answer in time, and when the first of those will count as absent. On a quorum,
// a server counts as absent after limit, and at once if it usually takes longer than that, but not before least. fastest is
// how long the first answer took that says how long the others should take; 0 if none does. The caller holds t.mu.
func (t *Tries) waits(now time.Time, least, fastest, limit time.Duration) (waits bool, until time.Time) {
	for _, a := range t.attempts {
		switch {
		case !a.busy:
		case !t.places.quorum:
			waits = true
		default:
			late := a.began.Add(max(least, a.site.health.Patience(a.began, len(a.Keys.Names), fastest, limit)))
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
// the time grows. The caller holds t.mu.
func (t *Tries) splitPatience() time.Duration {
	if !t.places.quorum {
		return health.NoLimit
	}
	usual := make([]time.Duration, 0, len(t.attempts))
	for _, a := range t.attempts {
		if takes := a.site.health.Usually(); takes > 0 {
			usual = append(usual, takes)
		}
	}
	if len(usual) < t.places.need {
		return health.NoLimit
	}
	slices.Sort(usual)
	return max(leastSplitPatience, 4*usual[t.places.need-1]) << min(t.splits/patientSplits, 10)
}

// lateness returns the error of a round that was refused because grants came too late; nil if others have so many places
// that the round would have been refused anyway. The caller holds t.mu.
func (t *Tries) lateness() error {
	late := t.count(func(a *attempt) bool { return a.vote == denied && a.Late })
	others := t.count(func(a *attempt) bool { return a.vote == denied && !a.Late })
	if late == 0 || others > t.places.spare() {
		return nil
	}
	return fault.TooLate(t.began, t.want.TTL)
}

// failures returns an error that names every place that has not answered, or not well. The caller holds t.mu.
func (t *Tries) failures() error {
	var errs []error
	for _, a := range t.attempts {
		switch {
		case a.vote == failed:
			errs = append(errs, t.named(a, a.err))
		case a.busy || a.vote == none && !t.isOrdered():
			errs = append(errs, t.named(a, t.silence(a)))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fault.Failed("obtain", t.keys, fault.Joined(errs))
}

// silence returns the error of a place that has not answered. For a server of a quorum, that is how a call to it was last
// sent in vain, if one was: go-redis dials for longer than a quorum waits. The caller holds t.mu.
func (t *Tries) silence(a *attempt) error {
	silence := t.Unanswered(t.began, t.want.TTL)
	if !a.busy || !t.places.quorum || errors.Is(silence, fault.ErrLapsed) {
		return silence
	}
	return cmp.Or(a.site.health.Failure(), silence)
}

// named adds the name of the place to an error that does not have it.
func (t *Tries) named(a *attempt, err error) error {
	if !t.places.quorum && !errors.Is(err, fault.ErrUnanswered) {
		return err
	}
	return a.site.named(err)
}
