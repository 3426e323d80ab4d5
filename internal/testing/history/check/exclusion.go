package check

import (
	"cmp"
	"slices"
)

// claimed is one span of a hold.
type claimed struct {
	span
	*hold
}

// exclusion: while a worker believes that it holds a key, no other worker believes that, unless it has the same token.
func exclusion(m *model, r *Result) {
	byKey := map[string][]claimed{}
	for _, h := range m.ordered {
		for _, s := range h.spans {
			if s.from >= s.to {
				continue
			}
			for _, key := range h.Keys {
				byKey[key] = append(byKey[key], claimed{s, h})
			}
		}
	}
	seen := map[[2]string]bool{}
	for key, all := range byKey {
		r.Checked[Exclusion] += len(all)
		slices.SortFunc(all, func(a, b claimed) int { return cmp.Compare(a.from, b.from) })
		var before []claimed // those that may last until the next one begins
		for _, c := range all {
			before = slices.DeleteFunc(before, func(other claimed) bool { return other.to <= c.from })
			for _, other := range before {
				pair := [2]string{other.Op, c.Op}
				if other.token() == c.token() || seen[pair] {
					continue
				}
				seen[pair] = true
				excused := m.broke(other.hold, other.Start, c.At) || m.freed(other.hold, c.At)
				if c.refused() < other.At { // c may have been granted first
					excused = excused || m.mayReturn(c.hold, other.hold, c.from) || m.freed(c.hold, other.At)
				}
				r.addUnless(excused, Exclusion, c.from, pair[:],
					"%s and %s both held %s, for %s", other.Op, c.Op, key, seconds(min(other.to, c.to)-c.from))
			}
			before = append(before, c)
		}
	}
}
