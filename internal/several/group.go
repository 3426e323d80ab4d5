package several

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// site is a place as one lock sees it: with the keys that live there.
type site struct {
	*place.Place

	name   string // for errors
	health *health.Server
	keys   script.Keys // none until a lock sets them
}

// named adds the name of the place to an error.
func (p *site) named(err error) error { return fmt.Errorf("%s: %w", p.name, err) }

// Group are the places of locks, or of one lock, and how many of them must agree. It never changes.
type Group struct {
	all    []*site
	need   int
	quorum bool // they are servers that all have all keys
	set    *place.Config
}

// spare returns how many places can be missing.
func (p *Group) spare() int { return len(p.all) - p.need }

// numbers returns the numbers of all places.
func (p *Group) numbers() []int {
	numbers := make([]int, len(p.all))
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// NewQuorum returns the servers of a quorum.
func NewQuorum(all []*place.Place, set *place.Config) *Group {
	p := &Group{quorum: true, need: len(all)/2 + 1, set: set}
	for i, server := range all {
		name := fmt.Sprintf("server %d (%s)", i+1, server.Redis.Address())
		p.all = append(p.all, &site{Place: server, name: name, health: server.Health()})
	}
	return p
}

// With returns the servers of a quorum for a lock with these keys.
func (p *Group) With(keys []string) (*Group, error) {
	if err := script.TooMany(len(keys)); err != nil {
		return nil, err
	}
	boxed := script.Box(keys)
	own := &Group{quorum: true, need: p.need, set: p.set, all: make([]*site, len(p.all))}
	for i, server := range p.all {
		own.all[i] = &site{Place: server.Place, name: server.name, health: server.health, keys: boxed}
	}
	return own, nil
}

// Places returns the Redis of each place.
func (p *Group) Places() []*place.Place {
	all := make([]*place.Place, len(p.all))
	for i, server := range p.all {
		all[i] = server.Place
	}
	return all
}

// HasRing reports whether one of the places is a Ring.
func (p *Group) HasRing() bool {
	return slices.ContainsFunc(p.all, func(s *site) bool { return s.Redis.IsRing() })
}

// NewSlots returns the slots of the keys as places. They are in the same order for all callers, so that callers who acquire
// them one after the other cannot wait for each other in a circle.
func NewSlots(at *place.Place, keys []string, set *place.Config) (*Group, error) {
	groups := transport.GroupBySlot(keys)
	p := &Group{need: len(groups), set: set}
	for _, group := range groups {
		if err := script.TooMany(len(group)); err != nil {
			return nil, err
		}
		names := make([]string, len(group))
		for i, at := range group {
			names[i] = keys[at]
		}
		here := &site{Place: at, keys: script.Box(names), name: fault.Describe(names), health: &health.Server{}}
		p.all = append(p.all, here)
	}
	slices.SortFunc(p.all, func(a, b *site) int {
		return cmp.Compare(transport.Slot(a.keys.Names[0]), transport.Slot(b.keys.Names[0]))
	})
	return p, nil
}
