package survey

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/tree"
)

// Finding is what a look at Redis has found.
type Finding struct {
	Tree *tree.Tree
	Now  time.Time // by the server's clock

	Waiters    int   // how many were looked at
	Cut        bool  // there are more
	Unreadable int   // keys that could not be read
	Why        error // for the first of them
}

// Trees looks for who waits for whom.
type Trees struct {
	Redis    *Redis
	Keys     []string                // also shown without waiters
	Limit    int                     // look at about so many waiters at most; 0 for all
	Progress func(looked, lines int) // how many keys were looked through, and how many lines were found; nil for nobody
}

// finder collects what is in line.
type finder struct {
	*Trees
	Finding

	statuses []redislock.Status
	seen     map[string]bool // keys: SCAN may return one twice, and each server of a quorum returns it
	due      []string        // keys to inspect
}

// Find looks for all lines, also if keys are named: only another line shows what the holder of a key waits for.
func (t *Trees) Find(ctx context.Context) (*Finding, error) {
	f := &finder{Trees: t, seen: map[string]bool{}}
	if err := f.find(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	f.Now = t.Redis.now(ctx)
	return &f.Finding, nil
}

func (f *finder) find(ctx context.Context) error {
	f.add(f.Keys)
	_, err := f.Redis.lines(ctx, func(keys []string, looked int) error {
		if f.Progress != nil {
			f.Progress(looked, len(f.statuses))
		}
		f.add(keys)
		if len(f.due) >= inspectCount {
			if err := f.inspectDue(ctx); err != nil {
				return err
			}
		}
		if f.isFull() {
			f.Cut = true
			return ErrEnough
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := f.build(ctx); err != nil {
		return err
	}
	return f.confirm(ctx)
}

// build looks at the keys that are due and at long lines, and makes a tree of all that was found.
func (f *finder) build(ctx context.Context) error {
	if err := f.inspectDue(ctx); err != nil {
		return err
	}
	if err := f.completeLines(ctx); err != nil {
		return err
	}
	slices.SortFunc(f.statuses, func(a, b redislock.Status) int { return strings.Compare(a.Key, b.Key) })
	f.Tree = tree.Build(f.statuses)
	return nil
}

// confirm looks at the keys of circles again, at one moment if one server has them. What was seen one after the other may
// look like a circle: one caller has given up, and another one has begun to wait for it.
func (f *finder) confirm(ctx context.Context) error {
	again := map[string]bool{}
	for _, c := range f.Tree.Circles {
		for _, s := range c.Steps {
			again[s.Place.Key.Key] = true
		}
	}
	if len(again) == 0 {
		return nil
	}
	f.statuses = slices.DeleteFunc(f.statuses, func(s redislock.Status) bool {
		if again[s.Key] {
			f.Waiters -= len(s.Line)
		}
		return again[s.Key]
	})
	f.due = slices.Sorted(maps.Keys(again))
	return f.build(ctx)
}

func (f *finder) add(keys []string) {
	for _, key := range keys {
		if !f.seen[key] {
			f.seen[key] = true
			f.due = append(f.due, key)
		}
	}
}

func (f *finder) isFull() bool { return f.Limit > 0 && f.Waiters >= f.Limit }

func (f *finder) inspectDue(ctx context.Context) error {
	for batch := range slices.Chunk(f.due, inspectCount) {
		if err := f.inspect(ctx, batch); err != nil {
			return err
		}
	}
	f.due = f.due[:0]
	return nil
}

// inspect asks for keys. If this user may not read one of them, it asks for each by itself.
func (f *finder) inspect(ctx context.Context, keys []string) error {
	statuses, err := f.Redis.inspect(ctx, keys)
	switch {
	case err == nil:
		for _, status := range statuses {
			f.keep(status)
		}
		return nil
	case !redis.HasErrorPrefix(err, "NOPERM"):
		return err
	case len(keys) == 1:
		f.note(err)
		return nil
	}
	for _, key := range keys {
		if err := f.inspect(ctx, []string{key}); err != nil {
			return err
		}
	}
	return nil
}

func (f *finder) keep(status redislock.Status) {
	if status.Waiters == 0 && !slices.Contains(f.Keys, status.Key) {
		return // all in its line have gone meanwhile, or their processes have
	}
	f.statuses = append(f.statuses, Read(status))
	f.Waiters += len(status.Line)
}

func (f *finder) note(why error) {
	if f.Unreadable++; f.Why == nil {
		f.Why = why
	}
}

// completeLines asks for all waiters of long lines, while the limit allows that. A circle may lead through each of them.
func (f *finder) completeLines(ctx context.Context) error {
	for i := range f.statuses {
		s := &f.statuses[i]
		if s.Waiters <= len(s.Line) {
			continue
		}
		if f.Limit > 0 && f.Waiters+s.Waiters-len(s.Line) > f.Limit {
			f.Cut = true
			continue
		}
		line, err := f.Redis.line(ctx, s.Key)
		if err != nil {
			if errors.Is(err, context.Canceled) || !redis.HasErrorPrefix(err, "NOPERM") {
				return err
			}
			f.note(err)
			continue
		}
		f.Waiters += len(line) - len(s.Line)
		s.Line, s.Waiters = line, len(line)
	}
	return nil
}
