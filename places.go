package redislock

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redislock/redislock/internal/transport"
)

// A lock can live on several places: the servers of a quorum, or the slots that hold its keys. It is a list of
// holds, one for each place, and is valid while enough of them are. The rules for quorums are those of Redlock
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with the holes closed that docs/decisions.md
// describes.

// place is one of the places of a lock.
type place struct {
	client *Client // obtains the hold; it has no Tracer of its own
	name   string  // for errors
	health *health

	// The keys that live here, nil until a lock sets them.
	keys  []string
	boxed []any
}

// named adds the name of the place to an error.
func (p *place) named(err error) error { return fmt.Errorf("%s: %w", p.name, err) }

// isRing reports whether the place is a Ring.
func (p *place) isRing() bool { return p.client.redis.IsRing() }

// places are the places of a lock, and how many of them must agree.
type places struct {
	all    []*place
	need   int
	quorum bool // they are servers that all have all keys
}

// spare returns how many places can be missing.
func (p *places) spare() int { return len(p.all) - p.need }

// numbers returns the numbers of all places.
func (p *places) numbers() []int {
	numbers := make([]int, len(p.all))
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// placesFor returns the places of a lock, or nil if one script can hold all of its keys, which it checks. across allows
// for several slots. It does no I/O.
func (c *Client) placesFor(keys []string, fenceKey string, across bool) (*places, error) {
	if c.quorum != nil {
		if err := checkScript(len(keys)); err != nil {
			return nil, err
		}
		boxed := box(keys)
		p := &places{quorum: true, need: c.quorum.need, all: make([]*place, len(c.quorum.all))}
		for i, server := range c.quorum.all {
			p.all[i] = &place{client: server.client, name: server.name, health: server.health, keys: keys, boxed: boxed}
		}
		return p, nil
	}
	divided := across && c.redis.IsCluster() && !haveOneTag(keys, fenceKey)
	if divided && len(transport.GroupBySlot(withFence(keys, fenceKey))) > 1 { // the fence key can be elsewhere
		p := c.slotsOf(keys)
		for _, slot := range p.all {
			if err := checkScript(len(slot.keys)); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
	return nil, checkScript(len(keys))
}

// slotsOf returns the slots of the keys as places. They are in the same order for all callers, so that callers who acquire
// them one after the other cannot wait for each other in a circle.
func (c *Client) slotsOf(keys []string) *places {
	groups := transport.GroupBySlot(keys)
	p := &places{need: len(groups)}
	for _, group := range groups {
		here := &place{client: c.inner(), keys: make([]string, len(group)), health: &health{}}
		for i, at := range group {
			here.keys[i] = keys[at]
		}
		here.boxed = box(here.keys)
		here.name = describe(here.keys)
		p.all = append(p.all, here)
	}
	slices.SortFunc(p.all, func(a, b *place) int { return cmp.Compare(transport.Slot(a.keys[0]), transport.Slot(b.keys[0])) })
	return p
}

// inner returns the Client that obtains the holds of locks across slots. It shares the Redis of c and tells no Tracer.
func (c *Client) inner() *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots == nil {
		c.slots = &Client{
			redis: c.redis, tracer: silent, renewals: c.renewals, lines: c.lines, closed: c.closed,
			cleanups: c.cleanups,
		}
	}
	return c.slots
}
