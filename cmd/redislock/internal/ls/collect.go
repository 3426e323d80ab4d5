package ls

import (
	"cmp"
	"slices"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

// orders are the ways to sort, each as people expect it: the shortest ttl first, the longest line first.
var orders = map[string]func(a, b show.Status) int{
	"key": byKey,
	"ttl": func(a, b show.Status) int {
		return cmp.Or(cmp.Compare(endless(a), endless(b)), cmp.Compare(a.TTL, b.TTL), byKey(a, b))
	},
	"waiters": func(a, b show.Status) int { return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), byKey(a, b)) },
	"holder":  func(a, b show.Status) int { return cmp.Or(strings.Compare(a.Token, b.Token), byKey(a, b)) },
	"none":    nil,
}

// orderOf returns the order of a name in orders, or its reverse if a minus precedes the name. "none" has no reverse.
func orderOf(name string) (order func(a, b show.Status) int, known bool) {
	name, reversed := strings.CutPrefix(name, "-")
	forward, known := orders[name]
	if !reversed {
		return forward, known
	}
	if forward == nil {
		return nil, false
	}
	return func(a, b show.Status) int { return forward(b, a) }, true
}

func byKey(a, b show.Status) int { return strings.Compare(a.Key, b.Key) }

// endless is 1 for a key without expiry, so that it comes after all others.
func endless(s show.Status) int {
	if s.TTL < 0 {
		return 1
	}
	return 0
}

// collection keeps the first few of any number of statuses, in an order.
type collection struct {
	order   func(a, b show.Status) int // nil for the order in which they came
	limit   int                        // 0 for none
	kept    []show.Status
	dropped int // how many more there were
}

func (c *collection) add(s show.Status) {
	if c.order == nil && c.limit > 0 && len(c.kept) == c.limit {
		c.dropped++
		return
	}
	c.kept = append(c.kept, s)
	if c.limit > 0 && len(c.kept) >= 2*c.limit+100 {
		c.settle()
	}
}

// settle sorts what was kept, and drops what is beyond the limit. It drops repetitions: SCAN may return a key twice.
func (c *collection) settle() {
	if c.order == nil {
		return
	}
	slices.SortStableFunc(c.kept, c.order)
	seen := make(map[string]bool, len(c.kept))
	c.kept = slices.DeleteFunc(c.kept, func(s show.Status) bool {
		again := seen[s.Key]
		seen[s.Key] = true
		return again
	})
	if c.limit > 0 && len(c.kept) > c.limit {
		c.dropped += len(c.kept) - c.limit
		clear(c.kept[c.limit:])
		c.kept = c.kept[:c.limit]
	}
}
