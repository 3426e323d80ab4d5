package redislock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// This file holds what reads the state of several places without a lock: Inspect, Line and Attach.

// inspect returns what a majority of the servers hold; see Client.Inspect.
func (q *places) inspect(ctx context.Context, keys []string) ([]Status, error) {
	answers, err := askMajority(ctx, q, "inspect", keys, func(ctx context.Context, i int) ([]Status, error) {
		return q.all[i].client.Inspect(ctx, keys...)
	})
	if err != nil {
		return nil, err
	}
	statuses := make([]Status, len(keys))
	for k, key := range keys {
		views := make([]*Status, len(q.all))
		for i, answer := range answers {
			if answer != nil {
				views[i] = &answer[k]
			}
		}
		statuses[k] = q.majority(key, views)
	}
	return statuses, nil
}

// majority returns what the servers agree about a key. views are nil for servers that have not answered.
func (q *places) majority(key string, views []*Status) Status {
	s := Status{Key: key}
	var same []*Status // those with the token that most have
	agree := true
	var waiters []int
	for _, view := range views {
		if view == nil {
			continue
		}
		var alike []*Status
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
		if !view.WaitingSince.IsZero() && (s.WaitingSince.IsZero() || view.WaitingSince.Before(s.WaitingSince)) {
			s.WaitingSince = view.WaitingSince
		}
	}
	slices.Sort(waiters)
	s.Waiters = waiters[len(waiters)-q.need] // at least so many wait at a majority
	if s.Waiters == 0 {
		s.WaitingSince = time.Time{}
	}
	if len(same) >= q.need {
		slices.SortFunc(same, func(a, b *Status) int { return cmp.Compare(uint64(b.TTL), uint64(a.TTL)) }) // -1 is for ever
		s.Token, s.Metadata, s.TTL = same[0].Token, same[0].Metadata, same[q.need-1].TTL
	}
	for i, view := range views {
		if view != nil && !agree {
			s.Places = append(s.Places, PlaceStatus{Server: q.all[i].name, Token: view.Token, TTL: view.TTL})
		}
	}
	return s
}

// line returns the waiters that a majority of the servers have in line; see Client.Line.
func (q *places) line(ctx context.Context, key string) ([]Waiter, error) {
	answers, err := askMajority(ctx, q, "line", []string{key}, func(ctx context.Context, i int) ([]Waiter, error) {
		return q.all[i].client.Line(ctx, key)
	})
	if err != nil {
		return nil, err
	}
	seen := map[string][]Waiter{} // by token, which is that of the first round everywhere
	for _, answer := range answers {
		for _, w := range answer {
			seen[w.Token] = append(seen[w.Token], w)
		}
	}
	var waiters []Waiter
	for _, views := range seen {
		if len(views) >= q.need {
			waiters = append(waiters, slices.MaxFunc(views, func(a, b Waiter) int { return a.Since.Compare(b.Since) }))
		}
	}
	slices.SortFunc(waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
	return waiters, nil
}

// askMajority asks all servers and returns their answers, nil for a server that did not answer well. It waits for all
// of them, but for those that hang only while there is no majority, and a moment longer. It returns an error if there
// is none.
func askMajority[T any](
	ctx context.Context, q *places, operation string, keys []string, ask func(ctx context.Context, i int) ([]T, error),
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
			errs = append(errs, &placeError{q.all[i].name, a.err})
			return false
		}
		if answers[i] = a.values; a.values == nil {
			answers[i] = []T{}
		}
		if good++; good == q.need {
			enough = time.AfterFunc(leastPatience, cancel)
		}
		return false
	})
	if enough != nil {
		enough.Stop()
	}
	switch {
	case good >= q.need:
		return answers, nil
	case ended(ctx) != nil:
		return nil, failed(operation, keys, ended(ctx))
	}
	return nil, failed(operation, keys, joined(errs))
}

// attachPlaces does the work of Attach for several places.
func (c *Client) attachPlaces(ctx context.Context, at *places, keys []string, token string) (*Lock, error) {
	type answer struct {
		lock *Lock
		err  error
	}
	h := &holds{places: at, token: token, at: make([]hold, len(at.all))}
	h.whole = &Lock{client: c, keys: keys, token: token, holds: h}
	p := h.newPoll()
	answers, err := askMajority(ctx, at, "attach", keys, func(ctx context.Context, i int) ([]answer, error) {
		lock, err := at.all[i].client.Attach(ctx, at.all[i].keys, token)
		if err != nil && !errors.Is(err, ErrLockNotHeld) {
			return nil, err
		}
		return []answer{{lock, err}}, nil
	})
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		if answer == nil {
			continue
		}
		p.note(i, answer[0].err)
		if lock := answer[0].lock; lock != nil {
			h.put(i, lock)
			h.whole.metadata, h.whole.since = lock.metadata, lock.since
		}
	}
	if err := p.err(ctx, "attach", ErrLockNotHeld); err != nil {
		return nil, err
	}
	return h.whole, nil
}
