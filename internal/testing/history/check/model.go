package check

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

// span is a time from which and until which a worker believed that it held something. The end is not part of it.
type span struct{ from, to int64 }

// hold is one hold as its worker believed in it.
type hold struct {
	history.Event // its Grant

	spans []span          // in the order of time
	known []history.Event // the claims, in the order of time, with the Until that was read
}

// token returns what tells the hold from others: its op, if the worker never saw the lock, and so does not know the token.
func (h *hold) token() string { return cmp.Or(h.Token, h.Op) }

// limit returns how many holders a call lets a key have, itself included.
func limit(e history.Event, key string) int64 {
	i := slices.Index(e.Keys, key)
	if e.Holders == nil || i < 0 {
		return 1
	}
	return cmp.Or(e.Holders[i], math.MaxInt64)
}

// exclude reports whether two calls cannot hold a key at the same time, because one of them wants it alone.
func exclude(a, b history.Event, key string) bool { return limit(a, key) == 1 || limit(b, key) == 1 }

// excludeAny reports whether two calls have a key in common that they cannot hold at the same time.
func excludeAny(a, b history.Event) bool {
	return slices.ContainsFunc(a.Keys, func(key string) bool { return slices.Contains(b.Keys, key) && exclude(a, b, key) })
}

// claim notes that from at on, the worker believed that the hold lasts until the second time.
func (h *hold) claim(at, until int64) {
	if n := len(h.spans); n > 0 && at < h.spans[n-1].to {
		h.spans[n-1].to = max(at, h.spans[n-1].from)
	}
	if until <= at {
		return
	}
	if n := len(h.spans); n > 0 && h.spans[n-1].to == at {
		h.spans[n-1].to = until
		return
	}
	h.spans = append(h.spans, span{at, until})
}

// alive notes that the hold was valid from its grant until at.
func (h *hold) alive(at int64) {
	if len(h.spans) == 0 {
		h.spans = append(h.spans, span{h.At, at})
		return
	}
	last := &h.spans[len(h.spans)-1]
	last.to = max(last.to, at)
}

// validAt reports whether the worker believed in the hold at that time.
func (h *hold) validAt(at int64) bool {
	return slices.ContainsFunc(h.spans, func(s span) bool { return s.from <= at && at < s.to })
}

// validFrom returns the first time, not before at, at which the worker believed in the hold, if there is one.
func (h *hold) validFrom(at int64) (from int64, found bool) {
	for _, s := range h.spans {
		if s.from < s.to && s.to > at {
			return max(s.from, at), true
		}
	}
	return 0, false
}

// untilAt returns the last end of the validity that the worker had read by that time; 0 if it had read none.
func (h *hold) untilAt(at int64) (until int64) {
	for _, e := range h.known {
		if e.At > at {
			break
		}
		if e.Until > 0 {
			until = e.Until
		}
	}
	return until
}

// model is what the events of a round say.
type model struct {
	holds   map[string]*hold
	ordered []*hold         // by the time of the grant
	done    []history.Event // by time, as all that follow
	waits   []history.Event // calls that waited in line: those that were granted, and the others
	faults  []history.Event
	writes  []history.Event
	samples []history.Event
	alives  []history.Event
	finals  []history.Event
	beats   map[string][]int64 // by worker
	ends    map[string]int64   // by op: from when on its owner held nothing
	left    map[string]span    // by op, if its owner then cut its connections: from the obtain until then
	grace   int64              // for how long a guard stays closed; 0 without one
	quorum  bool               // a lock is held if several servers have it
}

func newModel(events []history.Event) *model {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	m := &model{holds: map[string]*hold{}, beats: map[string][]int64{}, ends: map[string]int64{}, left: map[string]span{}}
	for _, e := range events {
		switch e.Kind {
		case history.Grant:
			h := &hold{Event: e, known: []history.Event{e}}
			h.claim(e.At, e.Until)
			m.holds[e.Op] = h
			m.ordered = append(m.ordered, h)
			if e.Queue && e.Refused > 0 {
				m.waits = append(m.waits, e)
			}
		case history.Claim, history.Alive:
			h := m.holds[e.Op]
			if e.Kind == history.Alive {
				m.alives = append(m.alives, e)
			}
			switch {
			case h == nil:
			case e.Kind == history.Alive && e.Until == 0:
				h.alive(e.At)
			default:
				h.claim(e.At, e.Until)
				h.known = append(h.known, e)
			}
		case history.Done:
			m.done = append(m.done, e)
			if e.Refused > 0 && e.Queue {
				m.waits = append(m.waits, e)
			}
			if e.Name == "Leave" {
				m.left[e.Op] = span{e.Start, e.At}
			}
		case history.Beat:
			m.beats[e.Worker] = append(m.beats[e.Worker], e.At)
		case history.Fault:
			m.faults = append(m.faults, e)
			m.grace = max(m.grace, int64(e.Grace))
		case history.Write:
			m.writes = append(m.writes, e)
		case history.Sample:
			m.samples = append(m.samples, e)
			m.quorum = m.quorum || e.Need > 1
		case history.Final, history.Last:
			m.finals = append(m.finals, e)
		}
	}
	m.faults = append(m.faults, stalls(m.samples)...)
	for _, e := range m.done {
		if m.gaveUp(e) {
			m.ends[e.Op] = max(m.ends[e.Op], e.At)
		}
	}
	return m
}

// byKey returns the holds of each key, in the same order.
func byKey(holds []*hold) map[string][]*hold {
	all := map[string][]*hold{}
	for _, h := range holds {
		for _, key := range h.Keys {
			all[key] = append(all[key], h)
		}
	}
	return all
}

// between returns those of the holds that were granted between two times, the second of which does not count. The holds are
// in the order of the grants.
func between(holds []*hold, from, to int64) []*hold {
	search := func(at int64) int {
		i, _ := slices.BinarySearchFunc(holds, at, func(h *hold, at int64) int { return cmp.Compare(h.At, at) })
		return i
	}
	first := search(from)
	return holds[first:max(first, search(to))]
}

// stalls returns the times in which the whole machine may have stood still, as faults. Samples are a fifth of a second
// apart, and a busy machine adds some time. A longer gap between two of them is such a time.
func stalls(samples []history.Event) (faults []history.Event) {
	const most = int64(450 * time.Millisecond)
	for i := 1; i < len(samples); i++ {
		if from, to := samples[i-1].At, samples[i].Start; to-from > most {
			faults = append(faults, history.Event{Kind: history.Fault, Name: "stall", At: from, End: to})
		}
	}
	return faults
}

// The outcomes that checks know. Workers also write others.
const (
	granted = "granted"
	ok      = "ok"
	taken   = "taken"
	refused = "refused"
)

// gaveUp reports whether the owner of a call holds nothing after it: an obtain without a lock, or a release. If a
// release failed with an error of Redis or the network, it is up to the caller to release once more. If a try of an
// obtain with a token of the caller may have been sent twice or not been answered, the library does not know which keys the
// try acquired, and they expire with the ttl.
func (m *model) gaveUp(e history.Event) bool {
	switch e.Name {
	case "Obtain", "ObtainMulti":
		doubtful := isFailure(e) || !m.quiet(e.Worker, e.Start, e.At, 0)
		return e.Outcome != granted && !(doubtful && slices.Contains(e.Options, "token"))
	case "Release", "Do":
		return !isFailure(e)
	}
	return false
}

// slot returns the place of a worker. Processes that replace one another have the same place, and share its faults.
func slot(worker string) string {
	name, _, _ := strings.Cut(worker, ".")
	return name
}

// isHarmless reports whether a fault must have no effect on any call.
func isHarmless(fault string) bool { return fault == "flush-scripts" }

// quiet reports whether no fault touched a worker from from until to, or ended less than settle before.
func (m *model) quiet(worker string, from, to, settle int64) bool {
	return len(m.touching(worker, from, to, settle)) == 0
}

// touching returns the faults that touched a worker from from until to, or that ended less than settle before.
func (m *model) touching(worker string, from, to, settle int64) (found []history.Event) {
	name := slot(worker)
	for _, f := range m.faults {
		if (f.Target == "" || f.Target == name) && f.At <= to && f.End+settle >= from && !isHarmless(f.Name) {
			found = append(found, f)
		}
	}
	return found
}

// stalled reports whether the worker process may have stood still for longer than most, between from and to.
func (m *model) stalled(worker string, from, to, most int64) bool {
	beats := m.beats[worker]
	first, _ := slices.BinarySearch(beats, from)
	if first == 0 {
		return true // nobody knows
	}
	for i := first - 1; i+1 < len(beats); i++ {
		if beats[i+1]-beats[i] > most {
			return true
		}
		if beats[i+1] >= to {
			return false
		}
	}
	return true
}

// forgot reports whether Redis may have forgotten, between from and to, what it acknowledged about the keys of a hold.
func (m *model) forgot(h *hold, from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool { return mayHarm(f, h, from, to) })
}

// broke reports whether that may have broken the hold, because the servers have no guard.
func (m *model) broke(h *hold, from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool { return f.Grace == 0 && mayHarm(f, h, from, to) })
}

// gaveBack reports whether, between the obtain of a hold and to, a server that went back to what it had gave one of the keys
// back to another token, which had the key then. On a quorum, that server may have been one of a bare majority.
func (m *model) gaveBack(h *hold, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool {
		return f.At <= to && f.Start >= h.Start && slices.ContainsFunc(f.Held, func(held history.Held) bool {
			owner := m.holds[held.Owner] // nil if its obtain was not granted
			isOwn := held.Owner == h.Op || owner != nil && owner.token() == h.token()
			return !isOwn && slices.Contains(h.Keys, held.Key)
		})
	})
}

// freed reports whether a release of an earlier hold with the same token may have come so late that it freed the keys of a
// hold until to: a caller that chooses a token should not use it again.
func (m *model) freed(h *hold, to int64) bool {
	return h.Custom && slices.ContainsFunc(m.done, func(e history.Event) bool {
		earlier := m.holds[e.Op]
		return e.Name == "Release" && e.At <= h.At && earlier != nil && earlier != h && earlier.token() == h.token() &&
			slices.ContainsFunc(m.touching(e.Worker, e.Start, e.At, 0), func(f history.Event) bool {
				return (f.Name == "strand-requests" || f.Name == "delay-requests") && f.End >= h.Start && e.Start <= to
			})
	})
}

// mayHarm reports whether a fault may have made Redis forget, between from and to, what it acknowledged about the keys of a
// hold.
func mayHarm(f history.Event, h *hold, from, to int64) bool {
	return f.At <= to && f.End >= from && (f.Lossy || shareKey(f.Keys, h.Keys) || f.Op == h.Op ||
		f.Fresh && f.At <= h.At && h.At <= f.End)
}
