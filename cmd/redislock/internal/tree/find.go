package tree

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/tree"
)

// finding is what a look at Redis has found.
type finding struct {
	tree *tree.Tree
	now  time.Time // by the server's clock

	waiters    int   // how many were looked at
	cut        bool  // there are more
	unreadable int   // keys that could not be read
	why        error // for the first of them
}

// finder collects what is in line.
type finder struct {
	*shower
	finding

	statuses []redislock.Status
	seen     map[string]bool // keys: SCAN may return one twice, and each server of a quorum returns it
	due      []string        // keys to inspect
	progress *progress
}

// inspectCount is how many keys one Inspect asks for. It returns up to 100 waiters of each then.
const inspectCount = 100

// look finds who waits for whom. It looks for all lines, also if keys are named: only another line shows what the holder of
// a key waits for.
func (s *shower) look(ctx context.Context) (*finding, error) {
	f := &finder{shower: s, seen: map[string]bool{}, progress: newProgress(s)}
	err := f.look(ctx)
	f.progress.end()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	if f.now, err = s.Client.Time(ctx).Result(); err != nil { // an ACL may forbid TIME
		f.now = time.Now()
	}
	s.narrow(f.tree)
	return &f.finding, nil
}

func (f *finder) look(ctx context.Context) error {
	f.add(f.keys)
	var failed error // ours
	_, err := scan.Lines(ctx, f.Client, func(keys []string, looked int) error {
		f.progress.update(looked, len(f.statuses))
		f.add(keys)
		if len(f.due) >= inspectCount {
			failed = f.inspectDue(ctx)
		}
		if failed == nil && f.isFull() {
			f.cut = true
			return scan.ErrEnough
		}
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return f.Explain(err)
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
	f.tree = tree.Build(f.statuses)
	return nil
}

// confirm looks at the keys of circles again, at one moment if one server has them. What was seen one after the other may
// look like a circle: one caller has given up, and another one has begun to wait for it.
func (f *finder) confirm(ctx context.Context) error {
	again := map[string]bool{}
	for _, c := range f.tree.Circles {
		for _, s := range c.Steps {
			again[s.Place.Key.Key] = true
		}
	}
	if len(again) == 0 {
		return nil
	}
	f.statuses = slices.DeleteFunc(f.statuses, func(s redislock.Status) bool {
		if again[s.Key] {
			f.waiters -= len(s.Line)
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

func (f *finder) isFull() bool { return f.opt.limit > 0 && f.waiters >= f.opt.limit }

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
	statuses, err := f.Inspect(ctx, keys)
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
	if status.Waiters == 0 && !slices.Contains(f.keys, status.Key) {
		return // all in its line have gone meanwhile, or their processes have
	}
	f.statuses = append(f.statuses, show.Read(status))
	f.waiters += len(status.Line)
}

func (f *finder) note(why error) {
	if f.unreadable++; f.why == nil {
		f.why = why
	}
}

// completeLines asks for all waiters of long lines, while the limit allows that. A circle may lead through each of them.
func (f *finder) completeLines(ctx context.Context) error {
	for i := range f.statuses {
		s := &f.statuses[i]
		if s.Waiters <= len(s.Line) {
			continue
		}
		if f.opt.limit > 0 && f.waiters+s.Waiters-len(s.Line) > f.opt.limit {
			f.cut = true
			continue
		}
		line, err := f.Line(ctx, *s)
		if err != nil {
			if errors.Is(err, context.Canceled) || !redis.HasErrorPrefix(err, "NOPERM") {
				return err
			}
			f.note(err)
			continue
		}
		f.waiters += len(line) - len(s.Line)
		s.Line, s.Waiters = line, len(line)
	}
	return nil
}
