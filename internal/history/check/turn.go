package check

// turns: once another lock was granted one of its keys, a lock is not valid again. A lock that has lapsed may come back, but
// not then. The other lock was granted after it if its call began after that, or if it has a higher token of the same counter.
// A moment at which both are valid is for exclusion.
func turns(m *model, r *Result) {
	grants := byKey(m.ordered)
	for _, h := range m.ordered {
		if len(h.spans) == 0 {
			continue
		}
		r.Checked[Turn]++
		m.turn(h, grants, r)
	}
}

// turn looks at what was granted after a hold. It notes one violation at most.
func (m *model) turn(h *hold, grants map[string][]*hold, r *Result) {
	for _, key := range h.Keys {
		for _, other := range between(grants[key], h.At+1, h.spans[len(h.spans)-1].to) {
			minted := h.FenceKey != "" && h.FenceKey == other.FenceKey && h.Fence < other.Fence
			if other.token() == h.token() || other.Start <= h.At && !minted {
				continue
			}
			at, valid := h.validFrom(other.At)
			if !valid || other.validAt(at) {
				continue
			}
			r.addUnless(m.forgot(h, h.Start, other.At) || m.forgot(other, other.Start, at), Turn, at, []string{h.Op, other.Op},
				"%s was valid at a time when %s had been granted %s, and no longer had it", h.Op, other.Op, key)
			return
		}
	}
}
