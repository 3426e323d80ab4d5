package check

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

const (
	// longestWait is the longest wait in line of a worker. Before a worker has ended, its history does not show who waits.
	longestWait = int64(22 * time.Second)

	// moment is how long the last look of a search may take, together with what follows, and how long a waiter stays in line
	// after its call has ended, if no fault touches them.
	moment = int64(1200 * time.Millisecond)

	// clocks is by how much the clock of a server is moved: tickets are times.
	clocks = int64(1500 * time.Millisecond)
)

// falseCircles: a call that ended because of a circle held something, and waited for somebody who waited for that, directly
// or over others, who all came before it.
//
// A history shows only when a call began and ended. So each call with Queue counts as a waiter from its beginning until some
// time after its end, and waits for everybody who may be ahead. Only a call that had no way at all back to itself was wrong.
// Of a worker that died, the history shows waits that were refused. The check does not look at calls shortly before and
// after the death of one, because others may have been in line.
func falseCircles(m *model, r *Result) {
	last, over := int64(0), len(m.finals) > 0
	for _, beats := range m.beats {
		last = max(last, beats[len(beats)-1])
	}
	for _, e := range m.done {
		if e.Outcome != cut {
			continue
		}
		if len(e.Under) == 0 {
			r.Checked[FalseCircle]++
			r.add(FalseCircle, e.At, []string{e.Op}, "%s ended because of a circle, although its caller held nothing", e.Op)
			continue
		}
		if !over && e.At+longestWait > last || m.died(e.At) || m.stalled(e.Worker, e.Refused, e.At, signOfLife) {
			continue
		}
		r.Checked[FalseCircle]++
		if !m.mayBeInCircle(e) {
			r.add(FalseCircle, e.At, []string{e.Op}, "%s ended because of a circle, but nobody who came before it, "+
				"and for whom it waited, waited for what its caller held", e.Op)
		}
	}
}

// died reports whether a worker died so shortly before or after that time that it may have had waiters in line which nobody
// wrote down.
func (m *model) died(at int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool {
		return f.Name == "kill-worker" && f.At-settle <= at && at <= f.End+settle
	})
}

// mayBeInCircle reports whether there may have been a circle of waiters that e closed.
func (m *model) mayBeInCircle(e history.Event) bool {
	latest := e.Refused // when others came at the latest
	if len(m.rough(e.Worker, e.Start, e.At, settle)) > 0 {
		latest = e.At // its ticket may be a later one
	} else if slices.ContainsFunc(m.faults, func(f history.Event) bool { return strings.HasPrefix(f.Name, "clock") }) {
		latest += clocks
	}
	var others []history.Event
	for _, w := range m.queued {
		if w.Op != e.Op && w.Start <= latest && w.At+settle >= e.At && w.At+m.lingers(w, e) >= e.At {
			others = append(others, w)
		}
	}
	for todo := []history.Event{e}; len(todo) > 0; todo = todo[1:] {
		w := todo[0]
		if m.mayAwait(w, e) {
			return true
		}
		others = slices.DeleteFunc(others, func(other history.Event) bool {
			is := m.mayAwait(w, other) || meet(w, other)
			if is {
				todo = append(todo, other)
			}
			return is
		})
	}
	return false
}

// lingers returns for how long after the end of its call a waiter may have been part of the circle that e found.
func (m *model) lingers(w, e history.Event) int64 {
	if len(m.rough(w.Worker, w.At, e.At, settle)) > 0 || len(m.rough(e.Worker, w.At, e.At, 0)) > 0 {
		return settle
	}
	return moment
}

// mayAwait reports whether a waiter may wait for what the caller of another one holds.
func (m *model) mayAwait(w, other history.Event) bool {
	return slices.ContainsFunc(other.Under, func(op string) bool {
		h := m.holds[op]
		return h != nil && meet(w, h.Event)
	})
}

// meet reports whether two calls have a key in common that not both share without a limit.
func meet(a, b history.Event) bool {
	return slices.ContainsFunc(a.Keys, func(key string) bool {
		return slices.Contains(b.Keys, key) && min(limit(a, key), limit(b, key)) < math.MaxInt64
	})
}
