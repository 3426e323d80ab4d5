package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/argument"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/several"
	"github.com/redislock/redislock/internal/transport"
)

// Nothing in this file does any I/O.

// check returns an error if an obtain with these arguments cannot work.
func (c *Client) check(ctx context.Context, keys []string, ttl time.Duration, opt *Options) error {
	if err := c.usable(ctx, keys); err != nil {
		return err
	}
	if err := argument.TTL(ttl, c.config.Scripts.Guard.MaxTTL); err != nil {
		return err
	}
	if opt == nil {
		opt = &Options{}
	}
	if err := argument.Token(opt.Token); err != nil {
		return err
	}
	if err := argument.FenceKey(opt.FenceKey, keys); err != nil {
		return err
	}
	if opt.Queue {
		if err := argument.Lines(keys); err != nil {
			return err
		}
	}
	return c.checkPlaces(keys, opt)
}

// checkGuard returns an error if a place cannot have a guard. The marker is in one slot of a Cluster, and on one shard of a
// Ring, and would say nothing of the others.
func checkGuard(guard script.Guard, p *place.Place) error {
	switch {
	case !guard.IsSet():
		return nil
	case p.Redis.IsCluster():
		return fault.Invalid("WithGuard does not work on a Cluster")
	case p.Redis.IsRing():
		return fault.Invalid("WithGuard does not work on a Ring")
	}
	return nil
}

// usable returns an error if nothing can be sent: New could not use its client, ctx is nil, a key cannot be locked, or
// the Client is closed.
func (c *Client) usable(ctx context.Context, keys []string) error {
	switch {
	case c == nil || c.closed == nil:
		return fault.Invalid("the Client is nil or was not made by New")
	case c.unusable != nil:
		return c.unusable
	case ctx == nil:
		return fault.ErrNilContext
	}
	if err := argument.Keys(keys); err != nil {
		return err
	}
	if fault.IsClosed(c.closed) {
		return ErrClosed
	}
	return nil
}

// checkPlaces returns an error if no lock can be where these keys are. It asks the names alone, and not where slots are
// today. So the same call gets the same answer every time.
//
// A Ring sends a script to the shard of its first key, so it would lock the other keys where nobody else looks for them. A
// common hash tag keeps them together, even if a hook rewrites keys.
//
// With a token of the caller, a lock at several places cannot tell which of its keys an earlier call with that token has
// acquired. So the cleanup after one call could free keys on which the next one relies.
func (c *Client) checkPlaces(keys []string, opt *Options) error {
	together := argument.HaveOneTag(keys, opt.FenceKey)
	switch {
	case c.config.Scripts.Guard.IsSet() && opt.AcrossSlots:
		return fault.Invalid("AcrossSlots does not work with WithGuard")
	case c.quorum != nil && opt.AcrossSlots:
		return fault.Invalid("AcrossSlots does not work with a quorum of servers")
	case c.quorum != nil && opt.Token != "":
		return fault.Invalid("Token does not work with a quorum of servers; %s", insteadOfToken)
	case c.quorum != nil && !together && c.quorum.HasRing():
		return fault.Invalid("a quorum of Rings needs one hash tag for all keys of a lock, and for its FenceKey, " +
			"as in {order:7}:stock")
	case c.quorum != nil || together:
		return nil
	case c.one.Redis.IsRing():
		return fault.Invalid("a Ring needs one hash tag for all keys of a lock, and for its FenceKey, as in {order:7}:stock")
	case opt.AcrossSlots && opt.Token != "" && c.one.Redis.IsCluster():
		return fault.Invalid("Token does not work with AcrossSlots for keys without a common hash tag; %s", insteadOfToken)
	}
	return nil
}

// limits returns how many holders each key may have, as argument.Limits does.
func (c *Client) limits(keys []string, opt *Options) ([]int, error) {
	if c == nil || opt == nil || len(opt.Shared)+len(opt.Permits) == 0 { // check refuses a nil Client
		return nil, nil
	}
	limits, err := argument.Limits(keys, opt.Shared, opt.Permits)
	if err == nil && c.quorum != nil && slices.ContainsFunc(limits, func(n int) bool { return n > 1 }) {
		return nil, fault.Invalid("Permits above 1 do not work with a quorum of servers, because two majorities may each " +
			"grant so many")
	}
	return limits, err
}

// insteadOfToken says what to do instead of choosing the token of a lock on several servers or slots.
const insteadOfToken = "let the library choose the token, and resume or share the lock with Attach"

// placesFor returns the places of a lock. It returns nil if one script can hold all of its keys, and checks that it can
// hold so many. limits says how many holders each key may have; nil if all are exclusive. across allows for several slots.
func (c *Client) placesFor(keys []string, limits []int, fenceKey string, across bool) (*several.Group, error) {
	if c.quorum != nil {
		return c.quorum.With(keys, limits)
	}
	divided := across && c.one.Redis.IsCluster() && !argument.HaveOneTag(keys, fenceKey)
	if divided && len(transport.GroupBySlot(script.WithFence(keys, fenceKey))) > 1 { // the fence key can be elsewhere
		return several.NewSlots(c.one, keys, limits, &c.config)
	}
	return nil, script.TooMany(len(keys))
}
