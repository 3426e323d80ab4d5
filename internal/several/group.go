package several

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// site is a place with those keys of one lock that live there.
type site struct {
	*place.Place

	name   string // for errors
	health *health.Server
	keys   script.Keys // none in the Group of a Client
}

// named adds the name of the place to an error.
func (s *site) named(err error) error { return fmt.Errorf("%s: %w", s.name, err) }

// raise raises the fence counter of the place to least. It returns errGone if the token does not have the keys there.
func (s *site) raise(ctx context.Context, token, fenceKey string, least int64) error {
	counter, err := s.FenceTo(ctx, s.keys.Names, token, s.keys, fenceKey, least)
	if err == nil && counter < least { // it may also be larger: locks of other keys can use the same counter
		err = errGone
	}
	return err
}

// errGone is the error of a place that lost the keys before its fence counter was raised.
var errGone = errors.New("the keys were lost again at once")

// Group is the places of a lock, or of all locks of a Client, and how many of them must agree. A Group never changes.
type Group struct {
	all    []*site
	need   int
	quorum bool // the places are servers, and each has all keys; otherwise slots, and each has some keys
	set    *place.Config
}

// spare returns how many places can be missing.
func (g *Group) spare() int { return len(g.all) - g.need }

// numbers returns the numbers of all places.
func (g *Group) numbers() []int {
	numbers := make([]int, len(g.all))
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// NewQuorum returns the servers of a quorum.
func NewQuorum(all []*place.Place, set *place.Config) *Group {
	g := &Group{quorum: true, need: len(all)/2 + 1, set: set}
	for i, server := range all {
		name := fmt.Sprintf("server %d (%s)", i+1, server.Address())
		g.all = append(g.all, &site{Place: server, name: name, health: server.Health()})
	}
	return g
}

// With returns the servers of a quorum for a lock with these keys. limits says how many holders each of them may have, as
// script.BoxShared takes it.
func (g *Group) With(keys []string, limits []int) (*Group, error) {
	if err := script.TooMany(len(keys)); err != nil {
		return nil, err
	}
	boxed := script.BoxShared(keys, limits)
	return g.with(func(int) script.Keys { return boxed }), nil
}

// with returns the places with other keys. keys returns those of a place.
func (g *Group) with(keys func(i int) script.Keys) *Group {
	own := *g
	own.all = make([]*site, len(g.all))
	for i, place := range g.all {
		here := *place
		here.keys = keys(i)
		own.all[i] = &here
	}
	return &own
}

// Places returns each place without keys.
func (g *Group) Places() []*place.Place {
	all := make([]*place.Place, len(g.all))
	for i, server := range g.all {
		all[i] = server.Place
	}
	return all
}

// HasRing reports whether one of the places is a Ring.
func (g *Group) HasRing() bool {
	return slices.ContainsFunc(g.all, func(s *site) bool { return s.IsRing() })
}

// NewSlots returns the slots of the keys as places. limits is as for With. All callers have them in the same order, so
// callers who acquire them one after the other cannot wait for each other in a circle.
func NewSlots(at *place.Place, keys []string, limits []int, set *place.Config) (*Group, error) {
	groups := transport.GroupBySlot(keys)
	g := &Group{need: len(groups), set: set}
	for _, group := range groups {
		if err := script.TooMany(len(group)); err != nil {
			return nil, err
		}
		names, own := make([]string, len(group)), []int(nil)
		for i, at := range group {
			names[i] = keys[at]
			if limits != nil {
				own = append(own, limits[at])
			}
		}
		here := &site{Place: at, keys: script.BoxShared(names, own), name: fault.Describe(names), health: &health.Server{}}
		g.all = append(g.all, here)
	}
	slices.SortFunc(g.all, func(a, b *site) int {
		return cmp.Compare(transport.Slot(a.keys.Names[0]), transport.Slot(b.keys.Names[0]))
	})
	return g, nil
}
