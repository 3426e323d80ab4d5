package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/redislock/redislock/internal/testing/history"
)

// fences: if one call was granted before another call began, the later one has the higher fencing token. The same is true
// of two holds of one key that they cannot share if a worker believed in one before the other, however long the calls
// waited. No token is minted twice. The servers of a quorum may give the same token to two calls that begin at the same
// time, for different keys or such as they share, because some of them answer the one call first, and some the other.
func fences(m *model, r *Result) {
	byFence := map[string][]*hold{}
	for _, h := range m.ordered {
		if h.FenceKey != "" {
			byFence[h.FenceKey] = append(byFence[h.FenceKey], h)
		}
	}
	for key, all := range byFence {
		r.Checked[Fence] += len(all)
		minted := map[int64]*hold{}
		for _, h := range all {
			if other := minted[h.Fence]; other != nil && (h.Need <= 1 || other.At < h.Start || excludeAny(other.Event, h.Event)) {
				r.add(Fence, h.At, []string{other.Op, h.Op}, "%s and %s both have the token %d of %s", other.Op, h.Op, h.Fence, key)
			}
			minted[h.Fence] = h
			if h.Fence <= 0 {
				r.add(Fence, h.At, []string{h.Op}, "%s has no token of %s", h.Op, key)
			}
		}
		starts := slices.Clone(all)
		slices.SortFunc(starts, func(a, b *hold) int { return cmp.Compare(a.Start, b.Start) })
		var highest *hold // of those that were granted before the next one began
		next := 0
		for _, h := range starts {
			for ; next < len(all) && all[next].At < h.Start; next++ {
				if highest == nil || all[next].Fence > highest.Fence {
					highest = all[next]
				}
			}
			if highest != nil && h.Fence < highest.Fence {
				r.falling(key, highest, h, false)
			}
		}
		grants := byKey(all)
		for _, b := range all {
			a := b // the highest of those that were granted while b was not yet
			for _, one := range b.Keys {
				for _, other := range between(grants[one], b.Start, b.At) {
					if len(other.spans) > 0 && other.Fence > a.Fence && exclude(b.Event, other.Event, one) {
						a = other
					}
				}
			}
			if a != b && len(b.spans) > 0 {
				r.falling(key, a, b, m.broke(a, min(a.Start, b.Start), b.At))
			}
		}
	}
}

// share reports whether another call has keys in common with a hold, and all of them such that both can have them.
func (m *model) share(h *hold, other string) bool {
	o := m.holds[other]
	return o != nil && shareKey(h.Keys, o.Keys) && !excludeAny(h.Event, o.Event)
}

func shareKey(a, b []string) bool {
	return slices.ContainsFunc(a, func(key string) bool { return slices.Contains(b, key) })
}

// falling notes that b was granted after a, with a lower token.
func (r *Result) falling(key string, a, b *hold, excused bool) {
	r.addUnless(excused, Fence, b.At, []string{a.Op, b.Op},
		"%s was granted after %s, and its token of %s is lower: %d after %d", b.Op, a.Op, key, b.Fence, a.Fence)
}

// fencedStore: the store never takes a lower token after a higher one, and never has to refuse a valid holder, unless that
// one shares the key with another whose token is higher.
func fencedStore(m *model, r *Result) {
	highest := map[string]history.Event{}
	for _, w := range m.writes {
		r.Checked[Store]++
		top := highest[w.FenceKey]
		ops := []string{top.Op, w.Op}
		h := m.holds[w.Op]
		valid := h != nil && h.validAt(w.At)
		switch {
		case w.Outcome == taken && w.Fence < top.Fence:
			r.add(Store, w.At, ops, "the store took %d of %s after %d", w.Fence, w.FenceKey, top.Fence)
		case w.Outcome == refused && w.Fence >= top.Fence:
			r.add(Store, w.At, ops, "the store refused %d of %s after %d", w.Fence, w.FenceKey, top.Fence)
		case w.Outcome == refused && valid && m.share(h, top.Op):
		case w.Outcome == refused && valid:
			excused := m.broke(h, h.Start, w.At) || m.freed(h, w.At)
			r.addUnless(excused, Store, w.At, ops, "the store refused %d of %s after %d, although %s holds %s",
				w.Fence, w.FenceKey, top.Fence, w.Op, strings.Join(h.Keys, ","))
		case w.Outcome == refused:
			r.LateRefused++
		case !valid:
			r.LateTaken++
		}
		if w.Outcome == taken && w.Fence >= top.Fence {
			highest[w.FenceKey] = w
		}
	}
}
