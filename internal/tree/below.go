package tree

import "slices"

// Branch is a waiter below a lock.
type Branch struct {
	Waiter  *Waiter
	Places  []*Place // for keys of that lock
	Skipped int      // how many before it are left out
}

// Keys returns the keys of that lock for which the waiter waits, and the other keys that it wants, as far as it names them.
func (b *Branch) Keys() (here, others []string) {
	for _, p := range b.Places {
		here = append(here, p.Key.Key)
	}
	for _, key := range b.Waiter.Wants {
		if !slices.Contains(here, key) {
			others = append(others, key)
		}
	}
	return here, others
}

// Below returns some of those who wait for keys, in the order in which they came: so many, and as many of those behind them
// who hold locks for which others wait; 0 for all. more counts the waiters behind them.
func Below(keys []*Key, most int) (some []Branch, more int) {
	extra := 0
	for i, b := range merge(keys) {
		leads := slices.ContainsFunc(b.Waiter.Locks, func(l *Lock) bool { return l.Waiting() > 0 })
		switch {
		case most == 0, i < most:
		case leads && extra < most:
			extra++
		default:
			more++
			continue
		}
		b.Skipped, more = more, 0
		some = append(some, b)
	}
	for _, k := range keys {
		more += k.Waiters - len(k.Places)
	}
	return some, more
}

// merge joins the lines of keys, in the order in which the waiters came.
func merge(keys []*Key) (all []Branch) {
	at := map[*Waiter]int{}
	for _, k := range keys {
		for _, p := range k.Places {
			i, seen := at[p.Waiter]
			if !seen {
				i = len(all)
				at[p.Waiter], all = i, append(all, Branch{Waiter: p.Waiter})
			}
			all[i].Places = append(all[i].Places, p)
		}
	}
	if len(keys) > 1 {
		slices.SortStableFunc(all, func(a, b Branch) int { return a.Waiter.Since.Compare(b.Waiter.Since) })
	}
	return all
}
