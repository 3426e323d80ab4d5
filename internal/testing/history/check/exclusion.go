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

// exclusion: while a worker believes that it holds a key, no other worker believes that, unless it has the same token, or
// both let so many hold the key.
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
			var beside []claimed // those that may hold the key as well
			for _, other := range before {
				pair := [2]string{other.Op, c.Op}
				if other.token() == c.token() || seen[pair] {
					continue
				}
				if !exclude(other.Event, c.Event, key) {
					beside = append(beside, other)
					r.Checked[Limits]++
					continue
				}
				seen[pair] = true
				r.addUnless(m.excuses(other, c), Exclusion, c.from, pair[:],
					"%s and %s both held %s, for %s", other.Op, c.Op, key, seconds(min(other.to, c.to)-c.from))
			}
			m.crowd(key, c, beside, r)
			before = append(before, c)
		}
	}
}

// excuses reports whether c may have been granted because Redis had forgotten another hold, or the other one because it had
// forgotten c.
func (m *model) excuses(other, c claimed) bool {
	excused := m.broke(other.hold, other.Start, c.At) || m.freed(other.hold, c.At)
	if c.refused() < other.At { // c may have been granted first
		excused = excused || m.mayReturn(c.hold, other.hold, c.from) || m.freed(c.hold, other.At)
	}
	return excused
}

// crowd notes if a hold and those beside it are more than one of them lets hold the key.
func (m *model) crowd(key string, c claimed, beside []claimed, r *Result) {
	tooMany := func(others []claimed) bool {
		least, tokens := limit(c.Event, key), map[string]bool{c.token(): true}
		for _, other := range others {
			least = min(least, limit(other.Event, key))
			tokens[other.token()] = true
		}
		return int64(len(tokens)) > least
	}
	if !tooMany(beside) {
		return
	}
	ops := []string{c.Op}
	for _, other := range beside {
		ops = append(ops, other.Op)
	}
	seen := slices.DeleteFunc(slices.Clone(beside), func(other claimed) bool { return m.excuses(other, c) })
	r.addUnless(!tooMany(seen), Limits, c.from, ops, "%s held %s beside %d others, which are more than one of them allows",
		c.Op, key, len(beside))
}
