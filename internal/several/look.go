package several

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
)

// View is what a majority of the servers hold for a key, and who waits for it.
type View struct {
	Agreed  script.Held  // Since is about when the first waiter came
	Servers []ServerView // if the servers disagree: what each server holds that has answered
}

// ServerView is what one server holds for a key.
type ServerView struct {
	Server string
	Token  string
	TTL    time.Duration
}

// Inspect returns what a majority of the servers hold.
func (g *Group) Inspect(ctx context.Context, keys []string, glance script.Glance) ([]View, error) {
	if err := script.TooMany(len(keys)); err != nil {
		return nil, err
	}
	answers, err := askMajority(ctx, g, "inspect", keys, func(ctx context.Context, i int) ([]script.Held, error) {
		return g.all[i].Inspect(ctx, keys, glance)
	})
	if err != nil {
		return nil, err
	}
	agreed := make([]View, len(keys))
	for k := range keys {
		views := make([]*script.Held, len(g.all))
		for i, answer := range answers {
			if answer != nil {
				views[i] = &(*answer)[k]
			}
		}
		agreed[k] = g.majority(views)
		agreed[k].Agreed.Waits = waitsOf(views, agreed[k].Agreed.Token)
	}
	return agreed, nil
}

// majority returns what the servers agree about a key. A view is nil if its server has not answered. A majority has
// answered.
func (g *Group) majority(views []*script.Held) (v View) {
	type holder struct {
		token string
		holds bool
	}
	s := &v.Agreed
	alike := map[holder][]*script.Held{}
	var same []*script.Held // what most servers say
	var waiters []int
	lines := make([][]script.Waiter, 0, len(views))
	for _, view := range views {
		if view == nil {
			continue
		}
		lines = append(lines, view.Line)
		is := holder{view.Token, view.TTL != 0}
		if alike[is] = append(alike[is], view); len(alike[is]) > len(same) {
			same = alike[is]
		}
		waiters = append(waiters, view.Waiters)
		if !view.Since.IsZero() && (s.Since.IsZero() || view.Since.Before(s.Since)) {
			s.Since = view.Since
		}
	}
	slices.Sort(waiters)
	s.Waiters = waiters[len(waiters)-g.need] // at least so many wait at a majority
	if s.Waiters == 0 {
		s.Since = time.Time{}
	}
	s.Line = g.agreedLine(lines)
	if holders := g.holders(views); len(holders) > 0 {
		first := holders[0]
		s.Holders, s.Count, s.Token, s.Metadata, s.TTL = holders, len(holders), first.Token, first.Metadata, first.TTL
		return v
	}
	if len(same) >= g.need {
		slices.SortFunc(same, func(a, b *script.Held) int { return cmp.Compare(uint64(b.TTL), uint64(a.TTL)) }) // -1 is for ever
		s.Token, s.TTL = same[0].Token, same[g.need-1].TTL
		var metadata []string
		for _, view := range same {
			metadata = append(metadata, view.Metadata)
		}
		s.Metadata = mostCommon(metadata)
	}
	for i, view := range views {
		if view != nil && len(alike) > 1 {
			v.Servers = append(v.Servers, ServerView{Server: g.all[i].name, Token: view.Token, TTL: view.TTL})
		}
	}
	return v
}

// waitsOf returns what a holder waits for itself, as one of the servers says: it leaves its notes at all of them.
func waitsOf(views []*script.Held, token string) []string {
	for _, view := range views {
		if view != nil && token != "" && view.Token == token && view.Waits != nil {
			return view.Waits
		}
	}
	return nil
}

// holders returns who holds a shared key at a majority of the servers, those first who hold it there for longest.
func (g *Group) holders(views []*script.Held) (all []script.Holder) {
	found := map[string][]script.Holder{} // by token
	for _, view := range views {
		for i := 0; view != nil && i < len(view.Holders); i++ {
			found[view.Holders[i].Token] = append(found[view.Holders[i].Token], view.Holders[i])
		}
	}
	longest := func(a, b script.Holder) int { return cmp.Compare(b.TTL, a.TTL) }
	for _, same := range found {
		if len(same) >= g.need {
			slices.SortFunc(same, longest)
			var metadata []string
			for _, one := range same {
				metadata = append(metadata, one.Metadata)
			}
			one := same[g.need-1]
			one.Metadata = mostCommon(metadata)
			all = append(all, one)
		}
	}
	slices.SortFunc(all, longest)
	return all
}

// mostCommon returns the metadata that most places have; of several, the first. A place that has missed a Refresh, or got an
// older mend late, has an older one.
func mostCommon(all []string) (common string) {
	count, most := map[string]int{}, 0
	for _, metadata := range all {
		count[metadata]++
		most = max(most, count[metadata])
	}
	for _, metadata := range all {
		if count[metadata] == most {
			return metadata
		}
	}
	return ""
}

// Line returns the waiters that a majority of the servers have in line.
func (g *Group) Line(ctx context.Context, key string) ([]script.Waiter, error) {
	answers, err := askMajority(ctx, g, "line", []string{key}, func(ctx context.Context, i int) ([]script.Waiter, error) {
		return g.all[i].Waiters(ctx, key)
	})
	if err != nil {
		return nil, err
	}
	lines := make([][]script.Waiter, len(answers))
	for i, answer := range answers {
		if answer != nil {
			lines[i] = *answer
		}
	}
	return g.agreedLine(lines), nil
}

// agreedLine returns the waiters that a majority of the servers have in a line.
func (g *Group) agreedLine(lines [][]script.Waiter) (agreed []script.Waiter) {
	seen := map[string][]script.Waiter{} // by token; the token of the first round, and the process, are the same everywhere
	for _, line := range lines {
		for _, w := range line {
			seen[w.Token] = append(seen[w.Token], w)
		}
	}
	byTicket := func(a, b script.Waiter) int { return cmp.Compare(a.Ticket, b.Ticket) }
	for _, views := range seen {
		if len(views) >= g.need {
			agreed = append(agreed, slices.MaxFunc(views, byTicket))
		}
	}
	slices.SortFunc(agreed, byTicket)
	return agreed
}

// Attach returns a handle for a lock that another handle has obtained.
func (g *Group) Attach(ctx context.Context, keys []string, token string) (*Lock, error) {
	type finding struct {
		place.Found

		err error // that the token does not have all keys; nil if it does
	}
	began := time.Now()
	absent := make([]error, len(g.all)) // by server: why it has not answered; it may hold the keys
	answers, err := askMajority(ctx, g, "attach", keys, func(ask context.Context, i int) (finding, error) {
		here := g.all[i]
		found, err := here.Attach(ask, here.keys.Names, token)
		if err == nil || errors.Is(err, fault.ErrLockNotHeld) {
			return finding{found, err}, nil
		}
		if absent[i] = err; fault.Ended(ask) != nil && fault.Ended(ctx) == nil {
			absent[i] = fault.ErrUnanswered
		}
		return finding{}, err
	})
	if err != nil {
		return nil, err
	}
	limits := func(i int) []int { return answers[i].Limits } // each slot has answered
	if g.quorum {
		has := func(found *finding) bool { return found != nil && found.err == nil }
		if at := slices.IndexFunc(answers, has); at >= 0 { // all servers have the same keys
			limits = func(int) []int { return answers[at].Limits }
		} else {
			limits = func(int) []int { return nil }
		}
	}
	l := newLock(ctx, g.with(func(i int) script.Keys { return script.BoxShared(g.all[i].keys.Names, limits(i)) }), keys, token)
	var requests []majority.Request
	l.lock, requests = majority.Attaching(len(g.all), g.need, began)
	said := l.newPoll()
	var metadata []string
	for i, found := range answers {
		var a answer // if the place has not answered, the next call asks it
		switch {
		case found == nil:
			said.note(i, answer{err: absent[i]})
		case found.err != nil:
			said.note(i, answer{lost: found.Lost, err: found.err})
			a.Result, a.lost = majority.Denied, g.all[i].keys.Names
		default:
			said.note(i, answer{})
			a.Result, a.Until = majority.Confirmed, lease.ValidUntil(found.Since, found.TTL)
			l.Since = found.Since
			metadata = append(metadata, found.Metadata)
		}
		l.apply(l.ctx, requests[i], a)
	}
	l.obtained = mostCommon(metadata)
	l.SetMetadata(l.obtained)
	if err := said.err(ctx, "attach", fault.ErrLockNotHeld); err != nil {
		return nil, err
	}
	return l, nil
}

// askMajority asks all servers and returns their answers; nil for a server that returned an error. It waits for all
// servers, but not much longer than until a majority has answered. It returns an error if no majority answers.
func askMajority[T any](
	ctx context.Context, g *Group, operation string, keys []string, ask func(ctx context.Context, i int) (T, error),
) ([]*T, error) {
	type result struct {
		value T
		err   error
	}
	free, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([]*T, len(g.all))
	good := 0
	var errs []error
	sideBySide(g.numbers(), func(i int) (a result) {
		a.value, a.err = ask(free, i)
		return a
	}, func(i int, a result) bool {
		if a.err != nil {
			errs = append(errs, g.all[i].named(a.err))
			return false
		}
		answers[i] = &a.value
		if good++; good == g.need {
			time.AfterFunc(health.LeastPatience, cancel)
		}
		return false
	})
	switch {
	case good >= g.need:
		return answers, nil
	case fault.Ended(ctx) != nil:
		return nil, fault.Failed(operation, keys, fault.Ended(ctx))
	}
	return nil, fault.Failed(operation, keys, fault.Joined(errs))
}
