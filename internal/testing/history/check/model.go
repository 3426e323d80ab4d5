package check

import (
	"cmp"
	"math"
	"slices"

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
	queued  []history.Event // calls that waited in line, or may have: also those that no refusal is known of
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
	waiting := map[string]history.Event{} // calls that have not ended, by op
	for _, e := range events {
		switch e.Kind {
		case history.Wait:
			waiting[e.Op] = e
		case history.Grant:
			delete(waiting, e.Op)
			h := &hold{Event: e, known: []history.Event{e}}
			h.claim(e.At, e.Until)
			m.holds[e.Op] = h
			m.ordered = append(m.ordered, h)
			m.addWait(e)
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
			delete(waiting, e.Op)
			m.done = append(m.done, e)
			m.addWait(e)
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
	for _, e := range waiting { // until their workers died
		if beats := m.beats[e.Worker]; len(beats) > 0 {
			e.At = beats[len(beats)-1] + signOfLife
			m.queued = append(m.queued, e)
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

// addWait adds a call with Queue to those that waited. The wait of a Do that was granted has ended with the grant.
func (m *model) addWait(e history.Event) {
	if !e.Queue || e.Kind == history.Done && m.holds[e.Op] != nil {
		return
	}
	m.queued = append(m.queued, e)
	if e.Refused > 0 {
		m.waits = append(m.waits, e)
	}
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

// The outcomes that checks know. Workers also write others.
const (
	granted = "granted"
	ok      = "ok"
	taken   = "taken"
	refused = "refused"
	cut     = "deadlock" // the call gave up because it waited in a circle
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
