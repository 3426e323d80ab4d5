package redislock

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// Status is what one key held when [Client.Inspect] looked.
type Status struct {
	Key      string
	Token    string        // the holder; "" if the key is free, or holds what no lock can have written
	Metadata string        // what the holder left
	TTL      time.Duration // what remains; -1 for a key without expiry, 0 only if the key is free

	Waiters      int       // how many wait for the key in line; see [Options.Queue]
	WaitingSince time.Time // since when the first of them has been waiting, by the clock of the server; zero without waiters
}

// Inspect returns who holds each of keys, in their order. It takes no part in the locking and changes nothing; what it
// tells may have changed by the time it is read. It needs one round trip for all keys of a slot, or on a Ring of a
// shard, and slots are asked side by side.
//
// Those who wait in line are counted while they are heard of: see [Options.Queue]. A key that can have no line shows
// none, and so does every key while its slot of a Cluster moves.
//
// A value that no lock has written is shown as it would be read: token up to the first space, then metadata. Where that
// leaves the Token empty, and for a key that is not a string, the TTL tells that the key is not free: it is not 0.
//
// It blocks until Redis answers or ctx ends, and returns [ErrInvalid] without keys or for a key that cannot be a lock,
// [ErrClosed] after Close, an error that wraps ctx.Err() if ctx ended first, and what Redis reported, wrapped.
func (c *Client) Inspect(ctx context.Context, keys ...string) ([]Status, error) {
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	groups, err := c.redis.Group(keys)
	if err != nil {
		return nil, failed("inspect", keys, err)
	}
	held, err := c.look(ctx, keys, groups)
	if transport.HasCode(err, "CROSSSLOT") { // a Cluster behind a type of the caller's own
		held, err = c.look(ctx, keys, transport.GroupBySlot(keys))
	}
	if err != nil {
		return nil, err
	}
	statuses := make([]Status, len(keys))
	for i, h := range held {
		statuses[i] = Status{
			Key: keys[i], Token: h.token, Metadata: h.metadata, TTL: h.ttl, Waiters: h.waiters, WaitingSince: h.since,
		}
	}
	return statuses, nil
}

// Attach returns a handle for a lock that was obtained elsewhere, by another process or before a restart, and whose
// keys and token are known. Its metadata is that of the first key, its [Lock.Until] comes from the least remaining ttl,
// its [Lock.FenceToken] is 0. The lock itself is not changed.
//
// It blocks until Redis answers or ctx ends. It returns [ErrLockNotHeld] if the token holds none of keys; a
// [*LostError] if it holds only some of them; [ErrInvalid] if an argument cannot be used; [ErrClosed] after Close; an
// error that wraps ctx.Err() if ctx ended first; and what Redis reported, wrapped.
func (c *Client) Attach(ctx context.Context, keys []string, token string) (*Lock, error) {
	keys = unique(keys)
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, invalid("the token is empty; pass what Lock.Token returned")
	}
	if err := checkToken(token); err != nil {
		return nil, err
	}
	if err := c.checkShard(ctx, "attach", keys); err != nil {
		return nil, err
	}
	request := newInspect(ctx, keys, false)
	reply, err := c.ask("attach", keys, request)
	if err != nil {
		return nil, err
	}
	held, err := readHeld(keys, reply)
	if err != nil {
		return nil, err
	}
	var lost []any // as the scripts report them
	ttl := time.Duration(math.MaxInt64)
	for i, h := range held {
		switch {
		case h.gone:
			lost = append(lost, int64(-i-1))
		case h.token != token:
			lost = append(lost, int64(i+1))
		case h.ttl >= 0:
			ttl = min(ttl, h.ttl)
		}
	}
	if err := readLoss(keys, lost, ErrLockNotHeld); err != nil {
		return nil, err
	}
	lock := &Lock{
		client: c, keys: keys, boxed: box(keys), token: token, metadata: held[0].metadata,
		lease: lease.Found(request.Sent, ttl), since: request.Sent,
	}
	lock.upkeep.lock = lock
	return lock, nil
}

// lookers bounds how many groups of keys are asked for side by side.
const lookers = 16

// look asks what the keys hold, each group of them in a round trip of its own.
func (c *Client) look(ctx context.Context, keys []string, groups [][]int) ([]held, error) {
	all := make([]held, len(keys))
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	slots := make(chan struct{}, lookers)
	for g, group := range groups {
		sortByLine(keys, group)
		some := make([]string, len(group))
		for i, at := range group {
			some[i] = keys[at]
		}
		lookAt := func() {
			reply, err := c.ask("inspect", some, newInspect(ctx, some, true))
			if err != nil {
				errs[g] = err
				return
			}
			found, err := readHeld(some, reply)
			if err != nil {
				errs[g] = err
				return
			}
			for i, at := range group {
				all[at] = found[i]
			}
		}
		if len(groups) == 1 {
			lookAt()
			break
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			lookAt()
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ask sends a call that changes nothing, and returns its reply, or its error with the operation and the keys.
func (c *Client) ask(operation string, keys []string, request *transport.Call) (any, error) {
	err := ended(request.Ctx)
	if err == nil && c.redis.Do(request.Ctx, request) {
		if request.Err == nil {
			return request.Reply, nil
		}
		err = explain(keys, request.Err)
	}
	if over := ended(request.Ctx); over != nil {
		err = over
	}
	return nil, failed(operation, keys, err)
}
