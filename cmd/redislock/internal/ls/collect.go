package ls

import (
	"cmp"
	"slices"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

// orders are the ways to sort. A lock that does not say what it is sorted by comes last.
var orders = map[string]func(a, b show.Status) int{
	"key": byKey,
	"ttl": func(a, b show.Status) int {
		return cmp.Or(last(a.TTL < 0, b.TTL < 0), cmp.Compare(a.TTL, b.TTL), byKey(a, b))
	},
	"age": func(a, b show.Status) int {
		since, since2 := show.OwnerOf(a.Metadata).Since, show.OwnerOf(b.Metadata).Since
		return cmp.Or(last(since.IsZero(), since2.IsZero()), since.Compare(since2), byKey(a, b))
	},
	"line": func(a, b show.Status) int { return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), byKey(a, b)) },
	"holder": func(a, b show.Status) int {
		who, who2 := show.OwnerOf(a.Metadata).Who, show.OwnerOf(b.Metadata).Who
		return cmp.Or(last(who == "", who2 == ""), strings.Compare(who, who2), byKey(a, b))
	},
	"none": nil,
}

// orderOf returns the order of a name in orders, or its reverse if a minus precedes the name. "none" has no reverse.
func orderOf(name string) (order func(a, b show.Status) int, known bool) {
	name, reversed := strings.CutPrefix(cmp.Or(name, "key"), "-")
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

// last compares so that what is true comes last.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// collection keeps the first few of any number of statuses, in an order.
type collection struct {
	order func(a, b show.Status) int // nil for the order in which they came
	limit int                        // 0 for none
	first bool                       // the first that come are enough

	kept    []show.Status
	seen    map[string]bool // keys that are kept: SCAN may return a key twice
	dropped int             // how many more there were
}

// add keeps a status. It returns scan.ErrEnough if no more are needed.
func (c *collection) add(s show.Status) error {
	if c.seen[s.Key] {
		return nil
	}
	c.seen[s.Key] = true
	c.kept = append(c.kept, s)
	switch {
	case c.limit > 0 && c.first && len(c.kept) == c.limit:
		return scan.ErrEnough
	case c.limit > 0 && len(c.kept) >= 2*c.limit+100:
		c.settle()
	}
	return nil
}

func (c *collection) settle() {
	if c.order == nil {
		return
	}
	slices.SortFunc(c.kept, c.order)
	if c.limit > 0 && len(c.kept) > c.limit {
		for _, s := range c.kept[c.limit:] {
			delete(c.seen, s.Key) // if it comes again, it is dropped again, and counted twice
		}
		c.dropped += len(c.kept) - c.limit
		clear(c.kept[c.limit:])
		c.kept = c.kept[:c.limit]
	}
}
