package check

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
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
	for _, e := range m.done {
		h := m.holds[e.Op]
		// With several servers, TTL asks some of them, and the others may keep the lock for longer.
		if e.Name != "TTL" || e.Outcome != ok || e.Left <= 0 || h == nil || m.quorum {
			continue
		}
		if until := h.untilAt(e.Start); until > 0 {
			late(h, e.At, until, e.At+int64(e.Left)+fraction)
		}
	}
	for _, s := range m.samples {
		for op, held := range byOwner(s) {
			h := m.holds[op]
			if h == nil || h.Custom || !h.relied(s.Start, s.At) {
				continue
			}
			if left, found := held.left(h.Keys, int(max(s.Need, 1))); found {
				if !s.Exact {
					left += fraction
				}
				late(h, s.At, h.untilAt(s.Start), s.At+left)
			}
		}
	}
}

// owned is what a sample shows of one owner: by server, its keys with their ttls.
type owned map[int]map[string]int64

func byOwner(s history.Event) map[string]owned {
	all := map[string]owned{}
	for _, h := range s.Held {
		if all[h.Owner] == nil {
			all[h.Owner] = owned{}
		}
		at := place(s, h)
		if all[h.Owner][at] == nil {
			all[h.Owner][at] = map[string]int64{}
		}
		all[h.Owner][at][h.Key] = max(all[h.Owner][at][h.Key], int64(h.TTL))
	}
	return all
}

// place returns where a key is, of the places of which a lock needs some: all servers are one place if there is no quorum.
func place(s history.Event, h history.Held) int {
	if s.Need > 1 {
		return h.Server
	}
	return 0
}

// left returns for how long need places have all keys, if so many have them. It leaves out a key that fewer places have:
// missing finds that.
func (o owned) left(keys []string, need int) (left int64, found bool) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		n := 0
		for _, held := range o {
			if _, has := held[key]; has {
				n++
			}
		}
		return n < need
	})
	var ttls []int64 // of the places that have all keys
	for _, held := range o {
		var own []int64
		for _, key := range keys {
			if ttl, has := held[key]; has {
				own = append(own, ttl)
			}
		}
		if len(own) == len(keys) && len(keys) > 0 {
			ttls = append(ttls, slices.Min(own))
		}
	}
	if len(ttls) < need {
		return 0, false
	}
	slices.Sort(ttls)
	return ttls[len(ttls)-need], true
}

// relied reports whether the worker believed in the hold from from until to, and read or said nothing new about it.
func (h *hold) relied(from, to int64) bool {
	return h.validAt(from) && h.validAt(to) &&
		!slices.ContainsFunc(h.known, func(e history.Event) bool { return max(e.At, e.End) > from && e.At <= to })
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
			excused := m.broke(h, h.Start, e.At) || m.gaveBack(h, e.At)
			if !endsHold(e) {
				excused = m.forgot(h, h.Start, e.At)
			}
			r.addUnless(excused || m.freed(h, e.At), Loss, e.At, []string{e.Op},
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
		held := map[[2]string]uint64{} // by key and owner: the places, a bit each
		for _, h := range s.Held {
			held[[2]string{h.Key, h.Owner}] |= 1 << place(s, h)
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
			need := int(max(s.Need, 1))
			whole := ^uint64(0) // the places that have all keys
			var gone []string
			for _, key := range h.Keys {
				at := held[[2]string{key, h.Op}] | held[[2]string{key, ""}]
				if whole &= at; bits.OnesCount64(at) < need {
					gone = append(gone, key)
				}
			}
			if n := bits.OnesCount64(whole); n < need {
				if len(gone) == 0 {
					gone = h.Keys // each is at enough places, but not all of them together
				}
				seen[h.Op] = true
				r.addUnless(m.forgot(h, h.Start, s.At), Loss, s.At, []string{h.Op},
					"Redis did not hold %s for %s, which relied on it: only %d of %d places did", strings.Join(gone, ","), h.Op, n, need)
			}
		}
	}
}

// endsHold reports whether a call that reports a loss ends the hold. The others, such as TTL, say what Redis has. Under a
// guard, a hold is valid up to Until even if Redis has forgotten it.
func endsHold(e history.Event) bool {
	switch e.Name {
	case "Release", "Refresh", "KeepAlive", "Do":
		return true
	}
	return false
}

func reportsLoss(e history.Event) bool {
	switch e.Name {
	case "Release", "Refresh", "TTL", "KeepAlive":
		return true
	}
	return e.Lost
}
