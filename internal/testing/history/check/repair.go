package check

import (
	"slices"
	"time"
)

// repairs: a lock that was kept for two of its ttls without a fault is on all servers of a quorum, even if a server
// forgot it before that. It need not be if another token, which cannot share it, has one of its keys at one of the servers,
// or while the guard of a server may be closed.
func repairs(m *model, r *Result) {
	const moment = int64(1300 * time.Millisecond) // the library asks a server that did not answer once a second
	seen := map[string]bool{}
	lastAlive := map[string]int64{}
	torn := map[string]int64{} // when a key was last seen with two owners who cannot share it
	next := 0
	for _, s := range m.samples {
		for ; next < len(m.alives) && m.alives[next].At <= s.Start; next++ {
			lastAlive[m.alives[next].Op] = m.alives[next].At
		}
		if s.Need <= 1 {
			continue
		}
		count := map[[2]string]int64{}
		for _, h := range s.Held {
			count[[2]string{h.Key, h.Owner}]++
		}
		owners, alone := map[string]int{}, map[string]bool{}
		for name := range count {
			owner := m.holds[name[1]]
			owners[name[0]]++
			alone[name[0]] = alone[name[0]] || owner == nil || limit(owner.Event, name[0]) == 1
			if alone[name[0]] && owners[name[0]] > 1 {
				torn[name[0]] = s.At
			}
		}
		for name, n := range count {
			h := m.holds[name[1]]
			if h == nil || seen[h.Op] || h.Custom || h.Name != "Do" && lastAlive[h.Op] == 0 {
				continue
			}
			steady := s.Start - 2*int64(h.TTL) - moment
			// Another token keeps a key until it expires, if its process has left it behind. After that, a renewal repairs.
			taken := func(key string) bool { return torn[key] > s.Start-int64(h.TTL) }
			if lastAlive[h.Op] < s.Start-int64(h.TTL) || h.At > steady || slices.ContainsFunc(h.Keys, taken) ||
				!h.relied(s.Start, s.At) || !m.repaired(h, steady, s.At) ||
				m.stalled(h.Worker, steady, s.At, max(int64(h.TTL)/2, int64(150*time.Millisecond))) {
				continue
			}
			r.Checked[Repair]++
			if all := 2*s.Need - 1; n < all {
				seen[h.Op] = true
				r.add(Repair, s.At, []string{h.Op}, "only %d of %d servers hold %s of %s, which is kept", n, all, name[0], h.Op)
			}
		}
	}
}

// repaired reports whether no fault touched a hold from from until to. A server that forgot before from has been back since,
// and its guard is open.
func (m *model) repaired(h *hold, from, to int64) bool {
	for _, f := range m.faults {
		switch {
		case f.At > to || f.End+int64(f.Grace) < from || isHarmless(f.Name):
		case f.Target == "" || f.Target == slot(h.Worker):
			return false
		}
	}
	return true
}
