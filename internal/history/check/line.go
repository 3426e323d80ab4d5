package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/history"
)

const (
	// A waiter shows a sign of life every second. After a fault it needs some to take its place again.
	settle = int64(6 * time.Second)

	// signOfLife is how long a process may stand still without missing one.
	signOfLife = int64(700 * time.Millisecond)

	// A waiter with a shorter ttl may lose what it is granted before it hears of that.
	leastTTL = 1500 * time.Millisecond
)

// waitEnd returns when a wait was over for the waiter: with the grant, or with the end of its ctx, which may have been some
// time before the call returned.
func waitEnd(w history.Event) int64 {
	if w.Kind == history.Done && w.Limit > 0 {
		return min(w.At, w.Limit)
	}
	return w.At
}

// lines: a call that begins when another one has a place in line, for one of the same keys, is not granted first. Waiters
// that a fault touched or that stood still are not looked at: they may count as dead.
func lines(m *model, r *Result) {
	byKey := map[string][]*hold{} // by the time of the grant
	for _, h := range m.ordered {
		if h.Custom || h.Name == "Attach" { // it may hold one of the keys already, and then skips the line
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
				if h.Start <= w.Refused || !m.quiet(w.Worker, w.Start, h.At, settle) ||
					!m.quiet(h.Worker, h.Start, h.At, 0) || m.stalled(w.Worker, w.Start, h.At, signOfLife) {
					continue
				}
				r.add(Violation{
					Check: Line, At: h.At, Ops: []string{w.Op, h.Op},
					What: fmt.Sprintf("%s came %s after %s had a place in line for %s, and was granted first",
						h.Op, seconds(h.Start-w.Refused), w.Op, key),
				})
			}
		}
		if looked && m.quiet(w.Worker, w.Start, end, settle) {
			r.Checked[Line]++
		}
	}
}

// served: a live waiter does not wait for longer than patience while nobody holds its keys and nobody else is in its way,
// which after that time nobody can be.
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
		free := int64(0) // since when all keys are free; 0 if they are not
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
			switch held := slices.ContainsFunc(s.Held, func(h history.Held) bool { return slices.Contains(w.Keys, h.Key) }); {
			case held:
				free = 0
			case free == 0:
				free = s.At
			}
			if free > 0 && s.Start-free > patience && m.quiet(w.Worker, free, s.At, settled) &&
				!m.stalled(w.Worker, free, s.At, signOfLife) {
				r.add(Violation{
					Check: Served, At: s.At, Ops: []string{w.Op},
					What: fmt.Sprintf("%s waited for %s although its keys were free", w.Op, seconds(s.At-free)),
				})
				break
			}
		}
	}
}
