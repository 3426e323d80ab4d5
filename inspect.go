package redislock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Status is what [Client.Inspect] found about one key.
type Status struct {
	Key      string
	Token    string        // the holder's; "" if the key is free, or no lock can have written its value
	Metadata string        // what the holder stored
	TTL      time.Duration // the remaining ttl; -1 for a key without expiry, 0 only if the key is free, or see Places

	Waiters      int       // how many live waiters are in line for the key; see [Options.Queue]
	WaitingSince time.Time // about when the first of them came, by the server's clock; zero without waiters

	// Places are what the servers of a quorum hold, where they disagree; nil where they agree and for one Redis. Servers
	// that did not answer are left out. If no majority agrees, Token is "" and TTL is 0, although some servers hold it.
	Places []PlaceStatus
}

// PlaceStatus is what one server of a quorum holds for a key.
type PlaceStatus struct {
	Server string        // its number in the list given to [NewQuorum], and its address
	Token  string        // as in Status
	TTL    time.Duration // as in Status
}

// Inspect returns who holds each of keys, in their order. It changes nothing, and its result may be out of date when it
// returns. It needs one round trip; on a Cluster, one for each slot, and on a Ring, one for each shard, in parallel.
//
// It counts only live waiters: see [Options.Queue]. It shows no waiters for a key that can have no line, and for the keys
// of a Cluster slot that is moving.
//
// A value that no lock has written is split like any other: the token ends at the first space, and the metadata
// follows. If that leaves the Token empty, or if the key is not a string, a TTL other than 0 shows that the key is not
// free.
//
// Of a quorum, it returns what a majority of the servers hold: the Token that a majority has, and the TTL that a
// majority has at least. Without such a token, Token is "" and TTL is 0, and Places says what each server holds that has
// answered; the others may hold the key as well. It needs the answers of a majority.
//
// Inspect blocks until Redis answers or ctx ends. It returns an error that wraps [ErrInvalid] without keys, for a key
// that cannot be a lock, or for more keys than one script can hold (see [Client.ObtainMulti]), [ErrClosed] after Close,
// an error that wraps ctx.Err() if ctx ended first, and any error of Redis, wrapped.
func (c *Client) Inspect(ctx context.Context, keys ...string) ([]Status, error) {
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	if c.quorum != nil {
		if err := checkScript(len(keys)); err != nil {
			return nil, err
		}
		return c.quorum.inspect(ctx, keys)
	}
	return c.one.inspect(ctx, keys)
}

// inspect does the work of Client.Inspect at one place.
func (p *place) inspect(ctx context.Context, keys []string) ([]Status, error) {
	groups, err := p.redis.Group(keys)
	if err != nil {
		return nil, fault.Failed("inspect", keys, err)
	}
	for _, group := range groups {
		if err := checkScript(len(group)); err != nil {
			return nil, err
		}
	}
	held, err := p.inspectGroups(ctx, keys, groups)
	if transport.HasCode(err, "CROSSSLOT") { // a Cluster behind a custom client type
		held, err = p.inspectGroups(ctx, keys, transport.GroupBySlot(keys))
	}
	if err != nil {
		return nil, err
	}
	statuses := make([]Status, len(keys))
	for i, h := range held {
		statuses[i] = Status{
			Key: keys[i], Token: h.Token, Metadata: h.Metadata, TTL: h.TTL, Waiters: h.Waiters, WaitingSince: h.Since,
		}
	}
	return statuses, nil
}

// Attach returns a handle for a lock that was obtained elsewhere, by another process or before a restart. The caller
// knows its keys and its token. The metadata is that of the first key, [Lock.Until] follows from the shortest remaining
// ttl, and [Lock.FenceToken] is 0. If a key has no expiry, Until has passed, because a renewal through another handle may
// give that key any ttl: Refresh the lock first. Attach does not change the lock.
//
// Attach blocks until Redis answers or ctx ends. It returns [ErrLockNotHeld] if the token holds none of keys; a
// [*LostError] if it holds only some of them; an error that wraps [ErrInvalid] if an argument cannot be used;
// [ErrClosed] after Close; an error that wraps ctx.Err() if ctx ended first; and any error of Redis, wrapped.
func (c *Client) Attach(ctx context.Context, keys []string, token string) (*Lock, error) {
	keys = script.Unique(keys)
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, fault.Invalid("the token is empty; pass what Lock.Token returned")
	}
	if err := checkToken(token); err != nil {
		return nil, err
	}
	if err := c.checkPlaces(keys, nil); err != nil {
		return nil, err
	}
	at, err := c.placesFor(keys, "", true)
	if err != nil {
		return nil, err
	}
	if at != nil {
		return c.attachPlaces(ctx, at, keys, token)
	}
	found, err := c.one.attach(ctx, keys, token)
	if err != nil {
		return nil, err
	}
	lock := new(Lock)
	h := &lock.one
	h.place, h.keys, h.token, h.Since = c.one, script.Box(keys), token, found.since
	h.SetMetadata(found.metadata)
	h.lease = lease.Found(found.since, found.ttl)
	return lock, nil
}

// found is what Attach has found at one place.
type found struct {
	since    time.Time // when the question was sent
	ttl      time.Duration
	metadata string
}

// attach does the work of Client.Attach at one place: it looks whether the token has the keys there.
func (p *place) attach(ctx context.Context, keys []string, token string) (found, error) {
	held, sent, err := p.look(ctx, "attach", keys, false)
	if err != nil {
		return found{}, err
	}
	loss, ttl := script.ReadOwned(keys, held, token)
	if err := lossError(&loss, ErrLockNotHeld); err != nil {
		return found{}, err
	}
	return found{sent, ttl, held[0].Metadata}, nil
}

// maxLooks bounds how many groups of keys are inspected in parallel.
const maxLooks = 16

// inspectGroups asks what the keys hold, with one round trip for each group.
func (p *place) inspectGroups(ctx context.Context, keys []string, groups [][]int) ([]script.Held, error) {
	all := make([]script.Held, len(keys))
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	room := make(chan struct{}, maxLooks)
	for g, group := range groups {
		slices.SortStableFunc(group, func(a, b int) int { return script.LinesFirst(keys[a], keys[b]) })
		some := make([]string, len(group))
		for i, at := range group {
			some[i] = keys[at]
		}
		lookAt := func() {
			found, _, err := p.look(ctx, "inspect", some, true)
			errs[g] = err
			for i := range found {
				all[group[i]] = found[i]
			}
		}
		if len(groups) == 1 {
			lookAt()
			break
		}
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			lookAt()
		})
	}
	wait.Wait()
	return all, cmp.Or(errs...)
}

// look asks what the keys hold and, if lines is set, who waits for them. It also returns when the question was sent.
func (p *place) look(
	ctx context.Context, operation string, keys []string, lines bool,
) (held []script.Held, sent time.Time, err error) {
	request := p.scripts.Inspect(keys, lines)
	reply, err := p.ask(ctx, operation, keys, request)
	if err != nil {
		return nil, time.Time{}, err
	}
	held, err = script.ReadHeld(keys, reply)
	if err != nil {
		return nil, time.Time{}, fault.Failed(operation, keys, err)
	}
	return held, request.Sent, nil
}
