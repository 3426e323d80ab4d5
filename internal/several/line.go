package several

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/line"
)

// A waiter at several places is in the line of each place, with the same ticket everywhere. So all places agree who is
// next, and two waiters do not split the places between them again and again. After a refused round, the waiter steps back
// at each place: one script releases what the place has granted, and puts the waiter back into its line there. The common
// ticket is the largest of those that the places gave in the first round; if none has answered by its end, the one that the
// first late answer gives. To make these alike, the waiter proposes one.

// gather is how long a waiter that one server of a quorum has woken waits for messages of the others. A release reaches all
// servers at about the same time. Across slots, different holders may release the keys one after the other.
//
// Each split round doubles it, up to 2^maxGather times: while a minority is free for readers, each of them that tries there
// wakes others, who would be split as well.
const (
	gather    = time.Millisecond
	maxGather = 8
)

// Await waits until the next round is due. It returns false if ctx ends or the Client is closed first.
func (t *Tries) Await(ctx context.Context) bool {
	var woken time.Time // when the first place asked for a try
	paced := t.paced()
	_, err := t.collect(ctx, 0, func(now time.Time) (verdict, time.Time) {
		due, called := t.due()
		due = sooner(due, paced)
		if called > 0 && woken.IsZero() {
			woken = now
		}
		if t.places.quorum && called > 0 {
			due = sooner(due, woken.Add(gather<<min(t.splits, maxGather)))
		}
		if called >= t.places.need || !now.Before(due) {
			return undecided, due
		}
		return open, due
	})
	return err == nil
}

// paced returns when the strategy wants the next round; the zero time if that does not matter. It matters if messages
// cannot arrive from so many places that the others are too few.
func (t *Tries) paced() time.Time {
	if t.strategy == nil {
		return time.Time{}
	}
	t.mu.Lock()
	deaf := t.count(func(a *attempt) bool { return !a.busy && a.Waiter.IsDeaf() })
	t.mu.Unlock()
	if deaf > t.places.spare() {
		if pace := t.strategy.NextBackoff(); pace > 0 {
			return time.Now().Add(pace)
		}
	}
	return time.Time{}
}

// due returns when the next round is due: when enough places may grant, or when a waiter must come back into its line. It
// also returns how many places may grant by now: those that have asked for a try and, across slots, those that have granted
// the last one. If other waiters come first there meanwhile, the place refuses the next try, and wakes the waiter when it is
// its turn. The caller holds t.mu.
func (t *Tries) due() (due time.Time, called int) {
	times := make([]time.Time, 0, len(t.attempts))
	var back time.Time
	for _, a := range t.attempts {
		if a.busy { // without this, places that hang would make the others be asked again and again
			times = append(times, t.began.Add(line.Interval))
			continue
		}
		next, woken := a.Waiter.Due()
		if woken || a.last == granted && !t.places.quorum {
			called++
			next = t.began
		}
		times = append(times, next)
		if a.Waiter.HasLost() && (back.IsZero() || next.Before(back)) { // later if it was passed over because its place hangs
			back = next
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return sooner(times[t.places.need-1], back), called
}

// sooner brings a time forward to another one, if that comes before; the zero time does not.
func sooner(due, other time.Time) time.Time {
	if !other.IsZero() && other.Before(due) {
		return other
	}
	return due
}
