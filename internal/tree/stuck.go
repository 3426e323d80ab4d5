package tree

import "slices"

// settle finds out who is stuck: it looks at the line of each key, again whenever a holder or a waiter of that key turns out
// to be able to go on.
func settle(keys []*Key) {
	due, waiting := slices.Clone(keys), map[*Key]bool{}
	for _, k := range keys {
		waiting[k] = true
	}
	again := func(k *Key) {
		if !waiting[k] {
			waiting[k] = true
			due = append(due, k)
		}
	}
	for len(due) > 0 {
		k := due[0]
		due = due[1:]
		waiting[k] = false
		k.look(again)
	}
}

// look frees the places in the line of a key that nothing stuck blocks, and calls again for each key that this concerns. All
// behind a blocked place are blocked as well: each of them counts one more ahead, or has another limit than one ahead.
func (k *Key) look(again func(*Key)) {
	for k.settled < len(k.Places) && !k.Places[k.settled].Waiter.stuck {
		k.settled++
	}
	ahead := crowd{}
	for _, p := range k.Places[k.settled:] {
		if p.blocked && p.isBlocked(ahead) {
			return
		}
		w := p.Waiter
		if p.blocked {
			p.blocked = false
			if w.blocked--; w.blocked == 0 {
				w.goOn(again)
			}
		}
		if w.stuck {
			ahead.add(p.Limit)
		}
	}
}

// crowd counts stuck waiters in a line, who are not blocked there.
type crowd struct {
	count int
	limit int  // of the first
	mixed bool // others have another limit
}

func (c *crowd) add(limit int) {
	if c.count == 0 {
		c.limit = limit
	}
	c.mixed = c.mixed || limit != c.limit
	c.count++
}

// isBlocked reports whether a place cannot be served, with a stuck crowd ahead and the stuck ones among the holders: see
// "Keys that several want" in docs/line.md.
func (p *Place) isBlocked(ahead crowd) bool {
	if ahead.count > 0 && (ahead.mixed || ahead.limit != p.Limit) {
		return true
	}
	most, count := p.Limit, ahead.count+1
	for _, h := range p.Key.Holders {
		if !h.blocks(p) {
			continue
		}
		count++
		if most == 0 || h.Limit > 0 && h.Limit < most {
			most = h.Limit
		}
	}
	return most > 0 && count > most
}

// blocks reports whether a stuck holder takes room from a waiter.
func (h *Hold) blocks(p *Place) bool { return h.Lock.stuck && h.Lock.Token != p.Waiter.Token }

// goOn notes that a waiter is not stuck, and calls again for each key whose line may go on with it.
func (w *Waiter) goOn(again func(*Key)) {
	w.stuck = false
	for _, p := range w.Places {
		again(p.Key)
	}
	for _, l := range w.Locks {
		if l.stuck = l.hasStuckWait(); !l.stuck {
			for _, h := range l.Keys {
				again(h.Key)
			}
		}
	}
}

func (l *Lock) hasStuckWait() bool {
	for _, w := range l.Waits {
		if w.stuck {
			return true
		}
	}
	return false
}
