package check

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/history"
)

// kept: the context of a kept lock is not alive once Until has passed.
func kept(m *model, r *Result) {
	for _, e := range m.alives {
		if e.Bound == 0 {
			continue
		}
		r.Checked[Kept]++
		if e.At > e.Bound {
			r.add(Kept, e.At, []string{e.Op}, "the context of %s was alive %s after Until", e.Op, seconds(e.At-e.Bound))
		}
	}
}

// fraction is what Redis cuts off when it reports a ttl: less than a millisecond.
const fraction = 1_000_000

// leases: Redis keeps a lock for at least as long as its worker counts on it.
func leases(m *model, r *Result) {
	late := func(h *hold, at, until, expiry int64) {
		r.Checked[Lease]++
		if until > expiry {
			r.addUnless(m.forgot(h, h.Start, at), Lease, at, []string{h.Op},
				"%s counts on its lock for %s longer than Redis keeps it", h.Op, seconds(until-expiry))
		}
	}
	several := slices.ContainsFunc(m.samples, func(s history.Event) bool { return s.Need > 1 })
	for _, e := range m.done {
		h := m.holds[e.Op]
		// With several servers, TTL asks some of them, and the others may keep the lock for longer.
		if e.Name != "TTL" || e.Outcome != ok || e.Left <= 0 || h == nil || several {
			continue
		}
		if until := h.untilAt(e.Start); until > 0 {
			late(h, e.At, until, e.At+int64(e.Left)+fraction)
		}
	}
	for _, s := range m.samples {
		kept := map[[2]string][]int64{} // by owner and key: the ttls
		for _, held := range s.Held {
			name := [2]string{held.Owner, held.Key}
			kept[name] = append(kept[name], int64(held.TTL))
		}
		for name, ttls := range kept {
			h := m.holds[name[0]]
			need := int(max(s.Need, 1))
			if h == nil || h.Custom || len(ttls) < need || !h.relied(s.Start, s.At) {
				continue
			}
			slices.Sort(ttls)
			late(h, s.At, h.untilAt(s.Start), s.At+ttls[len(ttls)-need]+fraction)
		}
	}
}

// relied reports whether the worker believed in the hold from from until to, and read or said nothing new about it.
func (h *hold) relied(from, to int64) bool {
	return h.validAt(from) && h.validAt(to) &&
		!slices.ContainsFunc(h.known, func(e history.Event) bool { return e.At > from && e.At <= to })
}

// losses: no call reports that a lock is lost before the end of its validity, and no key of one is missing.
func losses(m *model, r *Result) {
	for _, e := range m.done {
		h := m.holds[e.Op]
		if h == nil || !reportsLoss(e) {
			continue
		}
		r.Checked[Loss]++
		if until := h.untilAt(e.Start); e.Lost && e.At < until {
			r.addUnless(m.forgot(h, h.Start, e.At), Loss, e.At, []string{e.Op},
				"%s of %s reported a loss %s before Until", e.Name, e.Op, seconds(until-e.At))
		}
	}
	missing(m, r)
}

// missing finds keys that Redis does not hold although a worker relies on them.
func missing(m *model, r *Result) {
	// A sample asks the servers one after the other, so it says little while they change roles.
	const unsteady = int64(time.Second)
	seen := map[string]bool{}
	for _, s := range m.samples {
		if !m.quiet("", s.Start-unsteady, s.At, 0) {
			continue
		}
		held := map[[2]string]int64{}
		for _, h := range s.Held {
			held[[2]string{h.Key, h.Owner}]++
		}
		for _, h := range m.ordered {
			if h.At > s.Start { // the grants are in order, so all others are later as well
				break
			}
			if seen[h.Op] || h.Custom || h.Name == "Attach" || !h.relied(s.Start, s.At) {
				continue
			}
			if s.Need > 1 && !m.quiet("", h.Start, s.At, 0) { // a server that forgot gets keys again only when they are renewed
				continue
			}
			r.Checked[Loss]++
			for _, key := range h.Keys {
				if held[[2]string{key, h.Op}]+held[[2]string{key, ""}] < max(s.Need, 1) {
					seen[h.Op] = true
					r.addUnless(m.forgot(h, h.Start, s.At), Loss, s.At, []string{h.Op},
						"Redis did not hold %s for %s, which relied on it", key, h.Op)
					break
				}
			}
		}
	}
}

func reportsLoss(e history.Event) bool {
	switch e.Name {
	case "Release", "Refresh", "TTL", "KeepAlive":
		return true
	}
	return e.Lost
}
