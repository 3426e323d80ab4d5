package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
)

// NewQuorum returns a Client whose locks live on several independent Redis servers at once. A lock is held while a
// majority of the servers hold all of its keys. So it survives the failure of the other servers, and a server that
// loses its data can be made to hold the keys again. Use three or five servers that do not replicate each other. Each
// must be a different server: one server under two addresses would count twice.
//
// All methods work as for one server, with these differences:
//   - Obtain asks all servers at once and returns when a majority has granted. A refusal also waits for the servers that
//     have not answered yet, but not for one that takes much longer than the others. A server that does not answer within
//     100 ms, or four times its usual time if that is longer, counts as absent for this call. A server that has never
//     answered has 250 ms, or 2 s if no other has answered either. Each key adds 20 µs.
//   - If fewer than a majority answer, the error names each server that failed and does not match [ErrNotObtained].
//     Before that, the call tries again as [Options.RetryStrategy] says. With [Options.Queue], it goes on waiting. If the
//     end of ctx, or of the ttl, ends the tries, the error matches [ErrNotObtained] as well, as on one server.
//   - If callers split the votes of a majority, and the other servers are absent or slow, nobody has the lock. Each of
//     the callers gives back what it has and asks again at random moments. One that never has a majority gets
//     [ErrNotObtained] in the end, although nobody holds the lock.
//   - [Lock.Until] is the earliest end among the servers that were the first majority to confirm the last Obtain, Refresh or
//     round of renewals. A Refresh that returns an error gains nothing, even if a majority confirms it later.
//   - A retry without Queue waits up to half longer than the strategy says, at random, because callers that try at the
//     same times can refuse each other for ever.
//   - A lock is lost when so many servers have lost keys that no majority is left. The keys of a [*LostError] are those
//     that a majority misses.
//   - Waiters are woken; no server hands keys over directly.
//   - An Obtain with [Options.AcrossSlots] or [Options.Token] returns an error that wraps [ErrInvalid]. To resume or share
//     a lock, use Attach. If a client is a Ring, several keys, or a key with a FenceKey, need one hash tag, as on one Ring.
//
// KeepAlive, Do and Refresh acquire the keys again at a server that has lost them, once a majority has confirmed the lock
// since that became known. The servers' clocks may differ, but must run at speeds that differ by less than 1 %. A majority
// of servers that lose their data within one ttl can break exclusion, and so can a change of the list of servers while
// locks are held. The file docs/guarantees.md has the details.
//
// NewQuorum does no I/O. If clients is empty, or holds a nil, a repeated or an unusable client, every later call
// returns an error that wraps [ErrInvalid]. One client makes the same Client as [New]. The caller closes the Redis
// clients, after the Client.
func NewQuorum(clients []RedisClient, opts ...ClientOption) *Client {
	if len(clients) == 1 {
		return New(clients[0], opts...)
	}
	set := newClientOptions(opts)
	c := &Client{tracer: set.tracer, events: set.events, closed: make(chan struct{})}
	if len(clients) == 0 {
		c.unusable = fault.Invalid("a quorum of no servers; pass three or five clients")
		return c
	}
	c.quorum = &sites{quorum: true, need: len(clients)/2 + 1}
	places := set.config(c.closed)
	seen := map[RedisClient]int{}
	for i, client := range clients {
		server, err := place.New(client, places)
		if err != nil {
			c.unusable = fmt.Errorf("client %d of the quorum: %w", i+1, err)
			return c
		}
		if reflect.ValueOf(client).Comparable() {
			if before, again := seen[client]; again {
				c.unusable = fault.Invalid("clients %d and %d of the quorum are the same; each must be another server", before+1, i+1)
				return c
			}
			seen[client] = i
		}
		name := fmt.Sprintf("server %d (%s)", i+1, server.Redis.Address())
		c.quorum.all = append(c.quorum.all, &site{Place: server, name: name, health: server.Health()})
	}
	return c
}

// This file holds what reads the state of several places without a lock: Inspect, Line and Attach.

// inspect returns what a majority of the servers hold; see Client.Inspect.
func (p *sites) inspect(ctx context.Context, keys []string) ([]Status, error) {
	answers, err := askMajority(ctx, p, "inspect", keys, func(ctx context.Context, i int) ([]script.Held, error) {
		return p.all[i].Inspect(ctx, keys)
	})
	if err != nil {
		return nil, err
	}
	statuses := make([]Status, len(keys))
	for k, key := range keys {
		views := make([]*script.Held, len(p.all))
		for i, answer := range answers {
			if answer != nil {
				views[i] = &answer[k]
			}
		}
		statuses[k] = p.majority(key, views)
	}
	return statuses, nil
}

// majority returns what the servers agree about a key. views are nil for servers that have not answered.
func (p *sites) majority(key string, views []*script.Held) Status {
	s := Status{Key: key}
	var same []*script.Held // those with the token that most have
	agree := true
	var waiters []int
	for _, view := range views {
		if view == nil {
			continue
		}
		var alike []*script.Held
		for _, other := range views {
			if other != nil && other.Token == view.Token && (other.TTL == 0) == (view.TTL == 0) {
				alike = append(alike, other)
			} else if other != nil {
				agree = false
			}
		}
		if len(alike) > len(same) {
			same = alike
		}
		waiters = append(waiters, view.Waiters)
		if !view.Since.IsZero() && (s.WaitingSince.IsZero() || view.Since.Before(s.WaitingSince)) {
			s.WaitingSince = view.Since
		}
	}
	slices.Sort(waiters)
	s.Waiters = waiters[len(waiters)-p.need] // at least so many wait at a majority
	if s.Waiters == 0 {
		s.WaitingSince = time.Time{}
	}
	if len(same) >= p.need {
		slices.SortFunc(same, func(a, b *script.Held) int { return cmp.Compare(uint64(b.TTL), uint64(a.TTL)) }) // -1 is for ever
		s.Token, s.Metadata, s.TTL = same[0].Token, same[0].Metadata, same[p.need-1].TTL
	}
	for i, view := range views {
		if view != nil && !agree {
			s.Places = append(s.Places, PlaceStatus{Server: p.all[i].name, Token: view.Token, TTL: view.TTL})
		}
	}
	return s
}

// line returns the waiters that a majority of the servers have in line; see Client.Line.
func (p *sites) line(ctx context.Context, key string) ([]script.Waiter, error) {
	answers, err := askMajority(ctx, p, "line", []string{key}, func(ctx context.Context, i int) ([]script.Waiter, error) {
		return p.all[i].Waiters(ctx, key)
	})
	if err != nil {
		return nil, err
	}
	seen := map[string][]script.Waiter{} // by token, which is that of the first round everywhere
	for _, answer := range answers {
		for _, w := range answer {
			seen[w.Token] = append(seen[w.Token], w)
		}
	}
	var waiters []script.Waiter
	for _, views := range seen {
		if len(views) >= p.need {
			waiters = append(waiters, slices.MaxFunc(views, func(a, b script.Waiter) int { return a.Since.Compare(b.Since) }))
		}
	}
	slices.SortFunc(waiters, func(a, b script.Waiter) int { return a.Since.Compare(b.Since) })
	return waiters, nil
}

// askMajority asks all servers and returns their answers, nil for a server that did not answer well. It waits for all
// of them. For servers that hang, it waits only until a majority has answered, and a moment longer. It returns an error
// if there is no majority.
func askMajority[T any](
	ctx context.Context, q *sites, operation string, keys []string, ask func(ctx context.Context, i int) ([]T, error),
) ([][]T, error) {
	type answer struct {
		values []T
		err    error
	}
	free, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([][]T, len(q.all))
	good := 0
	var errs []error
	var enough *time.Timer
	sideBySide(q.numbers(), func(i int) answer {
		values, err := ask(free, i)
		return answer{values, err}
	}, func(i int, a answer) bool {
		if a.err != nil {
			errs = append(errs, q.all[i].named(a.err))
			return false
		}
		if answers[i] = a.values; a.values == nil {
			answers[i] = []T{}
		}
		if good++; good == q.need {
			enough = time.AfterFunc(health.LeastPatience, cancel)
		}
		return false
	})
	if enough != nil {
		enough.Stop()
	}
	switch {
	case good >= q.need:
		return answers, nil
	case fault.Ended(ctx) != nil:
		return nil, fault.Failed(operation, keys, fault.Ended(ctx))
	}
	return nil, fault.Failed(operation, keys, fault.Joined(errs))
}

// attachPlaces does the work of Attach for several places.
func (c *Client) attachPlaces(ctx context.Context, at *sites, keys []string, token string) (*Lock, error) {
	type answer struct {
		found place.Found
		err   error
	}
	h := newSeveral(ctx, c, at, keys, token)
	var requests []majority.Request
	h.lock, requests = majority.Attaching(len(at.all), at.need, time.Now())
	p := h.newPoll()
	absent := make([]error, len(at.all)) // of the servers that do not answer well; those may hold the keys
	answers, err := askMajority(ctx, at, "attach", keys, func(ask context.Context, i int) ([]answer, error) {
		here := at.all[i]
		found, err := here.Attach(ask, here.keys.Names, token)
		if err == nil || errors.Is(err, ErrLockNotHeld) {
			return []answer{{found, err}}, nil
		}
		if absent[i] = err; fault.Ended(ask) != nil && fault.Ended(ctx) == nil {
			absent[i] = fault.ErrUnanswered
		}
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		var a reply // the next call asks a place that has not answered
		switch {
		case answer == nil:
			p.note(i, absent[i])
		case answer[0].err != nil:
			p.note(i, answer[0].err)
			a.Result, a.lost = majority.Denied, at.all[i].keys.Names
		default:
			p.note(i, nil)
			found := answer[0].found
			a.Result, a.Until = majority.Confirmed, lease.ValidUntil(found.Since, found.TTL)
			h.Since = found.Since
			h.SetMetadata(found.Metadata)
		}
		h.answer(h.ctx, requests[i], a)
	}
	if err := p.err(ctx, "attach", ErrLockNotHeld); err != nil {
		return nil, err
	}
	return &Lock{several: h}, nil
}
