package check

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

const (
	// longestCircle is how long a circle may last.
	longestCircle = int64(10 * time.Second)

	// searches is the time without a fault in which a waiter must have looked for a circle: it looks every 4 s, and a look
	// that began during a fault may take 2 s.
	searches = int64(7 * time.Second)

	// calmed is how long after a fault a search may still miss a circle.
	calmed = int64(2500 * time.Millisecond)
)

// circles: callers who hold something and wait in line do not wait for each other's keys for long. A waiter is blocked if
// those who are blocked themselves hold one of its keys, and leave no room for it. What a caller holds and wants does not
// change while it waits, so a circle begins when one of its waiters was refused, and ends when one of them stops waiting.
//
// The check looks at a circle if no fault touched its waiters all the time, or for long enough that one of them must have
// found it.
func circles(m *model, r *Result) {
	var inner []*history.Event
	for i := range m.waits {
		if len(m.waits[i].Under) > 0 {
			inner = append(inner, &m.waits[i])
		}
	}
	slices.SortStableFunc(inner, func(a, b *history.Event) int { return cmp.Compare(a.Refused, b.Refused) })
	var waiting []*history.Event
	for _, w := range inner {
		waiting = append(slices.DeleteFunc(waiting, func(e *history.Event) bool { return waitEnd(*e) <= w.Refused }), w)
		circle, end := m.longest(w, waiting)
		if circle == nil {
			continue
		}
		var ops []string
		for _, e := range circle {
			ops = append(ops, e.Op)
		}
		calm := m.calm(circle, w.Refused, end)
		if long := end - w.Refused; calm == long || calm > searches {
			r.Checked[Circle]++
			if long > longestCircle {
				r.add(Circle, end, ops, "%s waited for each other for %s", strings.Join(ops, ", "), seconds(long))
			}
		}
	}
}

// longest returns the circle that w closes which lasts longest, and when it ends; nil if w closes none.
func (m *model) longest(w *history.Event, waiting []*history.Event) (circle []*history.Event, end int64) {
	for {
		found := m.circleOf(w, waiting)
		if found == nil {
			return circle, end
		}
		circle, end = found, waitEnd(*slices.MinFunc(found, func(a, b *history.Event) int {
			return cmp.Compare(waitEnd(*a), waitEnd(*b))
		}))
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(e *history.Event) bool { return waitEnd(*e) <= end })
	}
}

// circleOf returns those of the waiting that w waits for, directly or over others, if w is one of them, and none of them can
// go on before another one does; nil if there are none.
func (m *model) circleOf(w *history.Event, waiting []*history.Event) []*history.Event {
	for {
		blockers := map[*history.Event][]*history.Event{}
		for _, e := range waiting {
			if found := m.blockers(e, waiting); len(found) > 0 {
				blockers[e] = found
			}
		}
		if len(blockers) < len(waiting) {
			waiting = slices.DeleteFunc(slices.Clone(waiting), func(e *history.Event) bool { return blockers[e] == nil })
			continue
		}
		reached := map[*history.Event]bool{}
		for todo := slices.Clone(blockers[w]); len(todo) > 0; todo = todo[1:] {
			if !reached[todo[0]] {
				reached[todo[0]] = true
				todo = append(todo, blockers[todo[0]]...)
			}
		}
		if !reached[w] {
			return nil
		}
		byName := func(a, b *history.Event) int { return cmp.Compare(a.Op, b.Op) }
		return slices.SortedFunc(maps.Keys(reached), byName)
	}
}

// blockers returns those of the waiting whose holds leave no room for w at one of its keys, even if all others leave.
func (m *model) blockers(w *history.Event, waiting []*history.Event) (all []*history.Event) {
	for _, key := range w.Keys {
		var found []*history.Event
		holds, least := int64(0), limit(*w, key)
		for _, e := range waiting {
			for _, op := range e.Under {
				if h := m.holds[op]; h != nil && slices.Contains(h.Keys, key) {
					found = append(found, e)
					holds, least = holds+1, min(least, limit(h.Event, key))
				}
			}
		}
		if holds > 0 && holds >= least {
			all = append(all, found...)
		}
	}
	return all
}

// calm returns the longest time, between from and to, for which no fault touched the waiters, and none of their processes
// stood still.
func (m *model) calm(waiters []*history.Event, from, to int64) (longest int64) {
	var rough []span
	for _, w := range waiters {
		for _, f := range m.rough(w.Worker, from, to, calmed+m.grace) {
			end := f.End
			if f.Lossy {
				end += int64(f.Grace)
			}
			rough = append(rough, span{f.At, end + calmed})
		}
		beats := m.beats[w.Worker]
		if len(beats) == 0 {
			return 0 // nobody knows
		}
		for i := 1; i < len(beats); i++ {
			if beats[i]-beats[i-1] > signOfLife {
				rough = append(rough, span{beats[i-1], beats[i] + calmed})
			}
		}
		rough = append(rough, span{beats[len(beats)-1] + signOfLife, to})
	}
	slices.SortFunc(rough, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range rough {
		longest = max(longest, min(s.from, to)-from)
		from = max(from, s.to)
	}
	return max(longest, to-from)
}
