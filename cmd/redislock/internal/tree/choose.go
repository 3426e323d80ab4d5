package tree

import (
	"slices"

	"github.com/redislock/redislock/internal/tree"
)

// item is a waiter that is shown below a lock.
type item struct {
	waiter  *tree.Waiter
	places  []*tree.Place // for keys of that lock
	skipped int           // how many before it are not shown
}

// choose returns the waiters to show: the first ones, and the first of the others that lead to more. more counts the waiters
// behind them.
func (d *drawing) choose(keys []*tree.Key) (shown []item, more int) {
	all := merge(keys)
	extra := 0
	for i, one := range all {
		leads := slices.ContainsFunc(one.waiter.Locks, func(l *tree.Lock) bool { return l.Waiting() > 0 })
		switch {
		case d.bounds.waiters == 0, i < d.bounds.waiters:
		case leads && extra < d.bounds.waiters:
			extra++
		default:
			more++
			continue
		}
		one.skipped, more = more, 0
		shown = append(shown, one)
	}
	for _, k := range keys {
		more += k.Waiters - len(k.Places)
	}
	return shown, more
}

// merge joins the lines of keys, in the order in which the waiters came.
func merge(keys []*tree.Key) (all []item) {
	at := map[*tree.Waiter]int{}
	for _, k := range keys {
		for _, p := range k.Places {
			i, seen := at[p.Waiter]
			if !seen {
				i = len(all)
				at[p.Waiter], all = i, append(all, item{waiter: p.Waiter})
			}
			all[i].places = append(all[i].places, p)
		}
	}
	if len(keys) > 1 {
		slices.SortStableFunc(all, func(a, b item) int { return a.waiter.Since.Compare(b.waiter.Since) })
	}
	return all
}
