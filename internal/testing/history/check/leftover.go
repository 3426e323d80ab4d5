package check

import (
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

// leftovers: a key is gone soon after its owner has given it up, or has failed to acquire it. Every key has an expiry. When
// all is over, Redis holds nothing, and every key can be locked.
func leftovers(m *model, r *Result) {
	// A cleanup needs no more when no fault is at work: the Redis client gives up an unanswered call after less than a second,
	// and the library releases once more a second after that.
	const cleanup = int64(3 * time.Second)
	// A worker that leaves gives up what it can within the second for which Close waits.
	const before, still = int64(time.Second), int64(250 * time.Millisecond)
	seen := map[string]bool{}
	for _, s := range m.samples {
		for _, h := range s.Held {
			if h.TTL < 0 {
				if !seen[h.Key] {
					seen[h.Key] = true
					r.add(Leftover, s.At, []string{h.Owner}, "%s has no expiry", h.Key)
				}
				continue
			}
			end, gone := m.ends[h.Owner]
			if h.Owner == "" || !gone || seen[h.Owner] {
				continue
			}
			r.Checked[Leftover]++
			worker, _, _ := strings.Cut(h.Owner, "/")
			if s.Start <= end+cleanup || !m.quiet(worker, s.Start-cleanup, s.At, 0) || !m.ran(worker, end, s.At) ||
				m.stalled(worker, s.Start-cleanup, s.Start, signOfLife) {
				continue
			}
			if l, has := m.left[h.Owner]; has && (!m.quiet(worker, l.from, l.to, before) || m.stalled(worker, l.from, l.to, still)) {
				continue // a fault hindered the cleanup, and nobody repeats it
			}
			seen[h.Owner] = true
			r.addUnless(m.mayStandAgain(h.Owner, end), Leftover, s.At, []string{h.Owner}, "%s still holds %s, %s after it gave it up",
				h.Owner, h.Key, seconds(s.Start-end))
		}
	}
	for _, e := range m.finals {
		r.Checked[Leftover]++
		for _, h := range e.Held {
			r.add(Leftover, e.At, []string{h.Owner}, "when all is over, server %d still holds %s of %q, for another %s",
				h.Server, h.Key, h.Owner, seconds(int64(h.TTL)))
		}
		if e.Name != "" && e.Outcome != granted {
			r.add(Leftover, e.At, []string{e.Op}, "%s could not be locked when all was over: %s",
				strings.Join(e.Keys, ","), e.Outcome)
		}
	}
}

// ran reports whether the worker process lived from from until to.
func (m *model) ran(worker string, from, to int64) bool {
	beats := m.beats[worker]
	return len(beats) > 0 && beats[0] <= from && beats[len(beats)-1] >= to
}

// mayStandAgain reports whether Redis may have forgotten that an owner left its lines at that time. Then the owner stands
// there again, and a release may hand it the keys much later.
func (m *model) mayStandAgain(owner string, left int64) bool {
	const lag = int64(time.Second) // of a replica
	waited := slices.ContainsFunc(m.waits, func(e history.Event) bool { return e.Op == owner })
	return waited && slices.ContainsFunc(m.faults, func(f history.Event) bool {
		return f.Lossy && f.At-lag <= left && left <= f.End+lag
	})
}
