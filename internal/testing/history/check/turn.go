package check

// turns is a part of exclusion: a lock that has lapsed may become valid again, but not once another lock was granted one of
// its keys that the two cannot share. The other lock was granted later if its call began later, or if it has a higher token
// of the same counter. If both are valid at the same moment, exclusion finds that.
func turns(m *model, r *Result) {
	grants := byKey(m.ordered)
	for _, h := range m.ordered {
		if len(h.spans) > 0 {
			m.turn(h, grants, r)
		}
	}
}

// turn compares a hold with what was granted after it. It notes at most one violation.
func (m *model) turn(h *hold, grants map[string][]*hold, r *Result) {
	for _, key := range h.Keys {
		for _, other := range between(grants[key], h.At+1, h.spans[len(h.spans)-1].to) {
			minted := h.FenceKey != "" && h.FenceKey == other.FenceKey && h.Fence < other.Fence
			if other.token() == h.token() || !exclude(h.Event, other.Event, key) || other.Start <= h.At && !minted {
				continue
			}
			at, valid := h.validFrom(other.At)
			if !valid || other.validAt(at) {
				continue
			}
			r.addUnless(m.mayReturn(h, other, at), Exclusion, at,
				[]string{h.Op, other.Op}, "%s held %s after %s was granted it", h.Op, key, other.Op)
			return
		}
	}
}

// mayReturn reports whether a worker may believe in a hold at that time although another one was granted later: Redis forgot
// the hold before it granted the other one, or the other one before it renewed the hold.
func (m *model) mayReturn(h, other *hold, at int64) bool {
	return m.broke(h, h.refused(), other.At) || m.broke(other, other.refused(), at)
}

// refused returns a time before which the hold was not granted.
func (h *hold) refused() int64 { return max(h.Start, h.Refused) }
