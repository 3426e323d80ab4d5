package redislock

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

// A lock can live on several places: the servers of a quorum, or the slots that hold its keys. It is a list of
// holds, one for each place, and is valid while enough of them are. The rules for quorums are those of Redlock
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with the holes closed that docs/decisions.md
// describes.

// site is a place as one lock sees it: with the keys that live there.
type site struct {
	*place.Place

	name   string // for errors
	health *health.Server
	keys   script.Keys // none until a lock sets them
}

// named adds the name of the place to an error.
func (p *site) named(err error) error { return fmt.Errorf("%s: %w", p.name, err) }

// sites are the places of a lock, and how many of them must agree.
type sites struct {
	all    []*site
	need   int
	quorum bool // they are servers that all have all keys
}

// spare returns how many places can be missing.
func (p *sites) spare() int { return len(p.all) - p.need }

// numbers returns the numbers of all places.
func (p *sites) numbers() []int {
	numbers := make([]int, len(p.all))
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// placesFor returns the places of a lock, or nil if one script can hold all of its keys, which it checks. across allows
// for several slots. It does no I/O.
func (c *Client) placesFor(keys []string, fenceKey string, across bool) (*sites, error) {
	if c.quorum != nil {
		if err := script.Check(len(keys)); err != nil {
			return nil, err
		}
		boxed := script.Box(keys)
		p := &sites{quorum: true, need: c.quorum.need, all: make([]*site, len(c.quorum.all))}
		for i, server := range c.quorum.all {
			p.all[i] = &site{Place: server.Place, name: server.name, health: server.health, keys: boxed}
		}
		return p, nil
	}
	divided := across && c.one.Redis.IsCluster() && !haveOneTag(keys, fenceKey)
	if divided && len(transport.GroupBySlot(script.WithFence(keys, fenceKey))) > 1 { // the fence key can be elsewhere
		p := c.slotsOf(keys)
		for _, slot := range p.all {
			if err := script.Check(len(slot.keys.Names)); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
	return nil, script.Check(len(keys))
}

// slotsOf returns the slots of the keys as places. They are in the same order for all callers, so that callers who acquire
// them one after the other cannot wait for each other in a circle.
func (c *Client) slotsOf(keys []string) *sites {
	groups := transport.GroupBySlot(keys)
	p := &sites{need: len(groups)}
	for _, group := range groups {
		names := make([]string, len(group))
		for i, at := range group {
			names[i] = keys[at]
		}
		here := &site{Place: c.one, keys: script.Box(names), name: fault.Describe(names), health: &health.Server{}}
		p.all = append(p.all, here)
	}
	slices.SortFunc(p.all, func(a, b *site) int {
		return cmp.Compare(transport.Slot(a.keys.Names[0]), transport.Slot(b.keys.Names[0]))
	})
	return p
}
