package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

const (
	// settle is how long a waiter may need after a fault to take its position again. Its process sends a beat every second.
	settle = int64(6 * time.Second)

	// signOfLife is how long a process may stand still without missing a beat.
	signOfLife = int64(700 * time.Millisecond)

	// leastTTL is the least ttl of the waiters that are looked at. With a shorter one, a grant may expire before the waiter
	// hears of it.
	leastTTL = 1500 * time.Millisecond
)

// waitEnd returns when a wait was over for the waiter: with the grant, or with the end of its ctx, which may be some time
// before the call returned.
func waitEnd(w history.Event) int64 {
	if w.Kind == history.Done && w.Limit > 0 {
		return min(w.At, w.Limit)
	}
	return w.At
}

// lines: if a call begins when another call has a position in line for one of its keys, the other one is granted first. Two
// who let equally many hold the key, but more than one, go together, as long as there is room for both. The check does not
// look at waiters that a fault touched, or that stood still: they may count as dead.
func lines(m *model, r *Result) {
	byKey := map[string][]*hold{} // by the time of the grant
	for _, h := range m.ordered {
		if h.Custom || h.Name == "Attach" { // the token may hold one of the keys already, and then the call skips the line
			continue
		}
		for _, key := range h.Keys {
			byKey[key] = append(byKey[key], h)
		}
	}
	for _, w := range m.waits {
		end := waitEnd(w)
		if w.TTL < leastTTL || end <= w.Refused {
			continue
		}
		looked := false
		for _, key := range w.Keys {
			grants := byKey[key]
			first, _ := slices.BinarySearchFunc(grants, w.Refused, func(h *hold, at int64) int {
				if h.At <= at {
					return -1
				}
				return 1
			})
			for _, h := range grants[first:] {
				if h.At >= end {
					break
				}
				if h.Op == w.Op || h.Token != "" && h.Token == w.Token {
					continue
				}
				looked = true
				if !exclude(w, h.Event, key) && (mayPrecede(w, h) || limit(w, key) == limit(h.Event, key) && m.room(w, h, key, grants)) {
					continue
				}
				if h.Start <= w.Refused || !m.inOrder(w, h) ||
					!m.quiet(h.Worker, h.Start, h.At, 0) || m.stalled(w.Worker, w.Start, h.At, signOfLife) {
					continue
				}
				r.add(Line, h.At, []string{w.Op, h.Op}, "%s came %s after %s had a position in line for %s, and was granted first",
					h.Op, seconds(h.Start-w.Refused), w.Op, key)
			}
		}
		if looked && m.quiet(w.Worker, w.Start, end, settle) {
			r.Checked[Line]++
		}
	}
}

// inOrder reports whether a waiter must have kept its position until the grant of h: no fault touched it. If servers with a
// guard forget the lines, the waiters have the grace to take their positions again, with their old tickets.
func (m *model) inOrder(w history.Event, h *hold) bool {
	for _, f := range m.touching(w.Worker, w.Start, h.At, settle) {
		forgotten := f.Grace > 0 && f.Lossy && f.At >= w.Refused && h.At-f.End >= int64(f.Grace)
		if !forgotten {
			return false
		}
	}
	return true
}

// mayPrecede reports whether a waiter may have been granted its lock before h, and have heard of it later.
func mayPrecede(w history.Event, h *hold) bool {
	return w.Kind == history.Grant && w.Until-int64(w.TTL) <= h.At
}

// room reports whether, when h was granted the key, there may have been room for the waiter w as well. holds are all of the
// key, by the time of the grant.
func (m *model) room(w history.Event, h *hold, key string, holds []*hold) bool {
	const longest = int64(time.Minute) // for which anybody holds a key
	if limit(w, key) == math.MaxInt64 {
		return true
	}
	tokens := map[string]bool{h.token(): true}
	for _, other := range between(holds, h.Start-longest, h.Start) {
		if other.validAt(h.Start) && other.validAt(h.At) {
			tokens[other.token()] = true
		}
	}
	return int64(len(tokens)) < limit(w, key)
}

// behind reports whether another waiter for one of the keys, who came earlier, is still ahead at that time, unless both
// would share all those keys without a limit. One that no refusal is known of may have waited since it began: the functions
// that need no Client have no Tracer.
func (m *model) behind(w history.Event, at int64) bool {
	return slices.ContainsFunc(m.queued, func(other history.Event) bool {
		came := cmp.Or(other.Refused, other.Start)
		return came < w.Refused && waitEnd(other) > at && slices.ContainsFunc(w.Keys, func(key string) bool {
			return slices.Contains(other.Keys, key) && min(limit(w, key), limit(other, key)) < math.MaxInt64
		})
	})
}

// taken reports whether, in a sample, so many hold one of the keys that a waiter cannot hold it as well.
func (m *model) taken(w history.Event, s history.Event) bool {
	for _, key := range w.Keys {
		least, owners := limit(w, key), map[string]bool{}
		for _, h := range s.Held {
			if h.Key != key {
				continue
			}
			if owner := m.holds[h.Owner]; owner == nil {
				least = 1 // nobody knows
			} else {
				least = min(least, limit(owner.Event, key))
			}
			owners[h.Owner] = true
		}
		if len(owners) > 0 && int64(len(owners)) >= least {
			return true
		}
	}
	return false
}

// served: a live waiter does not wait for longer than patience while nobody holds its keys who does not share them, and no
// other waiter is ahead. Waiters of a worker that was killed, whose end nobody wrote down, may be ahead, and are out of the
// line within patience of that.
func served(m *model, r *Result) {
	const (
		patience = int64(5 * time.Second)
		settled  = int64(2500 * time.Millisecond) // after a fault
	)
	for _, w := range m.waits {
		end := waitEnd(w)
		if end-w.Refused < patience {
			continue
		}
		r.Checked[Served]++
		free := int64(0) // since when all keys have been free; 0 if they are not
		from, _ := slices.BinarySearchFunc(m.samples, w.Refused, func(e history.Event, at int64) int {
			if e.Start < at {
				return -1
			}
			return 1
		})
		for _, s := range m.samples[from:] {
			if s.At > end {
				break
			}
			switch {
			case m.taken(w, s) || m.behind(w, s.Start):
				free = 0
			case free == 0:
				free = s.At
			}
			if free > 0 && s.Start-max(free, m.lastKill(s.Start)) > patience && m.quiet(w.Worker, free-m.grace, s.At, settled) &&
				!m.stalled(w.Worker, free, s.At, signOfLife) {
				r.add(Served, s.At, []string{w.Op}, "%s waited for %s although its keys were free", w.Op, seconds(s.At-free))
				break
			}
		}
	}
}
