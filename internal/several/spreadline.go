package several

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
)

// A waiter on several places stands in the line of each place, with the same ticket everywhere. So all places agree who
// is next, and two waiters do not split the places between them again and again. A round that is refused steps back:
// one script gives up what a place has granted and puts the waiter back into its line there. The common ticket is the
// largest of those that the places gave in the first round. To make them alike, the waiter proposes one.

// gather is how long a waiter that one server of a quorum has woken waits for others to do so. A release reaches all of
// them at about the same time. Across slots, the keys can be freed one after another, by different holders.
const gather = time.Millisecond

// agree sets the common ticket, after the first round with a refusal. The caller holds s.mu.
func (s *Spreading) agree() {
	if s.ticket > 0 {
		return
	}
	for i := range s.parts {
		if p := &s.parts[i]; !p.busy && p.Waiter.HasPlace() {
			s.ticket = max(s.ticket, p.Waiter.LastTicket())
		}
	}
	if s.ticket > 0 {
		s.ticket = tickets.claim(s.ticket)
	}
}

// Await waits until the next round is due. It returns false if ctx ends or the Client is closed first.
func (s *Spreading) Await(ctx context.Context) bool {
	var woken time.Time // when the first place asked for a try
	paced := s.paced()
	_, err := s.collect(ctx, 0, func(now time.Time) (verdict, time.Time) {
		due, called := s.due()
		if !paced.IsZero() && paced.Before(due) {
			due = paced
		}
		if called > 0 && woken.IsZero() {
			woken = now
		}
		if s.places.quorum && called > 0 && woken.Add(gather).Before(due) {
			due = woken.Add(gather)
		}
		if called >= s.places.need || !now.Before(due) {
			return undecided, due
		}
		return open, due
	})
	return err == nil
}

// paced returns when the strategy wants the next round, if no message can come from so many places that the others are too
// few; the zero time if it does not matter.
func (s *Spreading) paced() time.Time {
	if s.pace == nil {
		return time.Time{}
	}
	s.mu.Lock()
	deaf := 0
	for i := range s.parts {
		if p := &s.parts[i]; !p.busy && p.Waiter.IsDeaf() {
			deaf++
		}
	}
	s.mu.Unlock()
	if deaf > s.places.spare() {
		if pace := s.pace.NextBackoff(); pace > 0 {
			return time.Now().Add(pace)
		}
	}
	return time.Time{}
}

// due returns when the next round is due: when enough places may grant, or when the waiter must give a sign of life
// somewhere. It also returns how many places may grant by now: those that have asked for a try and, across slots, those
// that have granted the last one. If others come first there meanwhile, the place refuses the next try and wakes the
// waiter when it is its turn. The caller holds s.mu.
func (s *Spreading) due() (due time.Time, called int) {
	var times []time.Time
	var life time.Time
	for i := range s.parts {
		p := &s.parts[i]
		if p.busy { // without this, places that hang would make the others be asked again and again
			times = append(times, s.began.Add(line.Interval))
			continue
		}
		next, woken := p.Waiter.Due()
		if woken || p.ready && !s.places.quorum {
			called++
		}
		times = append(times, next)
		if sign := p.Waiter.SignDue(p.err != nil); !sign.IsZero() && (life.IsZero() || sign.Before(life)) {
			life = sign
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	due = times[s.places.need-1]
	if !life.IsZero() && life.Before(due) {
		due = life
	}
	return due, called
}

// Blocker asks the places of a quorum that have refused what is in the way, and returns what most of them say: one can
// have keys of somebody who has too few places. Across slots, it asks the first place.
func (s *Spreading) Blocker(ctx context.Context) script.Blocker {
	s.mu.Lock()
	questions := map[int]func() script.Blocker{}
	for i := range s.parts {
		if p := &s.parts[i]; p.refused && !p.busy && (s.places.quorum || len(questions) == 0) {
			at, keys, token, ticket := p.Place, p.Keys.Names, p.Token, p.Waiter.LastTicket()
			questions[i] = func() script.Blocker { return at.Blocker(ctx, keys, token, ticket) }
		}
	}
	s.mu.Unlock()
	type holder struct{ key, token string }
	count := map[holder]int{}
	most, why := 0, script.Blocker{}
	sideBySide(slices.Collect(maps.Keys(questions)), func(i int) script.Blocker { return questions[i]() },
		func(_ int, b script.Blocker) bool {
			is := holder{b.Key, b.Token}
			if count[is]++; b.Key != "" && count[is] > most {
				most, why = count[is], b
			}
			return false
		})
	return why
}

// errGone is the error of a place that has lost the keys before its fence counter was raised.
var errGone = errors.New("the keys were lost again at once")
