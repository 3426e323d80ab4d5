package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

// answerLimit bounds a try that is not to wait, and what is asked of a Redis that has just answered.
const answerLimit = 3 * time.Second

// Acquire acquires locks, and says meanwhile who is in the way. Without a token it makes up one. Its errors can be printed.
func (f *Flags) Acquire(ctx context.Context, s *connect.Session, keys []string, token string) (*redislock.Lock, error) {
	if f.NoWait() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerLimit)
		defer cancel()
	}
	metadata := f.metadata()
	began := time.Now()
	end := f.tell(ctx, s, func(ctx context.Context) (Obstacles, error) {
		return f.inTheWay(ctx, s, keys, token, metadata)
	})
	answers := f.probe(ctx, s)
	opt := &redislock.Options{Queue: !f.NoWait(), Explain: true, Metadata: metadata, Token: token, FenceKey: f.FenceKey}
	f.Limits.options(opt, keys)
	lock, err := s.Locks.ObtainMulti(ctx, keys, f.TTL, opt)
	end(err == nil)
	if err != nil {
		return nil, f.refusal(ctx, s, err, answers)
	}
	if time.Since(began) > time.Second { // the time in the metadata is from before the wait
		refresh, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = lock.Refresh(refresh, f.TTL, &redislock.Options{Metadata: f.metadata()}) // the next renewal notices a loss
	}
	return lock, nil
}

// tell says who is in the way until end is called. A goroutine does it, because a stderr that blocks must not delay a lock.
func (f *Flags) tell(ctx context.Context, s *connect.Session, look look) (end func(granted bool)) {
	var granted atomic.Bool
	var telling sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	telling.Go(func() {
		t := f.NewTeller(s.Target)
		watch(ctx, t, look)
		t.End(granted.Load())
	})
	return func(isGranted bool) {
		granted.Store(isGranted)
		cancel()
		Within(50*time.Millisecond, telling.Wait)
	}
}

// probe asks Redis shortly before the limit whether it still answers: the last try may be a second old by then, and an
// outage must not look like a conflict. The channel gets the result by the end of ctx, unless ctx ends before the limit.
func (f *Flags) probe(ctx context.Context, s *connect.Session) <-chan error {
	const patience = 300 * time.Millisecond // a busy server may take that long
	answers := make(chan error, 1)
	limit, ok := ctx.Deadline()
	if !ok || f.Limit == 0 {
		return answers
	}
	go func() {
		select {
		case <-time.After(time.Until(limit) - min(patience, f.Limit/2)):
			answers <- connect.Ping(ctx, s.Client)
		case <-ctx.Done():
		}
	}()
	return answers
}

// refusal gives the error of an obtain its exit code and its words.
func (f *Flags) refusal(ctx context.Context, s *connect.Session, err error, answers <-chan error) error {
	refused, explained := errors.AsType[*redislock.RefusedError](err)
	circle, deadlocked := errors.AsType[*redislock.DeadlockError](err)
	switch {
	case deadlocked && f.Quiet:
		return cli.Exit(f.DeadlockCode)
	case deadlocked:
		return &cli.Error{Code: f.DeadlockCode, Err: fmt.Errorf("not acquired: %s", show.Circle(circle))}
	case errors.Is(err, redislock.ErrInvalid) && strings.Contains(err.Error(), "Queue"):
		return cli.Usagef("%w; or do not wait for it, with --no-wait", err)
	case redis.HasErrorPrefix(err, "WRONGTYPE key "): // a key to lock; a fence key or a line is in nobody's way
		answer, _ := errors.AsType[redis.Error](err)
		return f.Refuse("%s", strings.TrimPrefix(answer.Error(), "WRONGTYPE "))
	case errors.Is(err, redislock.ErrLockNotHeld): // the cause of ctx
		return f.Refuse("the locks to re-enter were lost: %w", context.Cause(ctx))
	case errors.Is(err, redislock.ErrLapsed) && !errors.Is(context.Cause(ctx), redislock.ErrLapsed): // not those to re-enter
		return f.Refuse("the Redis at %s takes longer to answer than a ttl of %v lasts; raise --ttl", s.Where, f.TTL)
	case !explained && ctx.Err() != nil: // the last try was not refused: it has failed
		return f.Unreachable(ctx, s.Target, err)
	case !explained:
		return s.Refusal(err)
	}
	waited := ""
	if f.Limit > 0 {
		waited = fmt.Sprintf(" within %v", f.Limit)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && f.Limit > 0 {
		select {
		case err := <-answers:
			if err != nil {
				return f.Unreachable(ctx, s.Target, err)
			}
		case <-time.After(50 * time.Millisecond): // the ping ends with ctx, but its goroutine may be late
			return f.Unreachable(ctx, s.Target, context.DeadlineExceeded)
		}
	}
	if f.Quiet {
		return cli.Exit(f.ConflictCode)
	}
	why := "others were faster"
	switch {
	case refused.Closed > 0:
		why = show.InTheWay(refused)
	case refused.Key != "":
		why = fmt.Sprintf("%q is %s", refused.Key, show.InTheWay(refused))
	}
	return &cli.Error{Code: f.ConflictCode, Err: fmt.Errorf("not acquired%s: %s", waited, why)}
}

// RefusedBy describes who is in the way of a caller that cannot have a key.
func RefusedBy(s redislock.Status) *redislock.RefusedError {
	return &redislock.RefusedError{
		Key: s.Key, Token: s.Token, Metadata: s.Metadata, TTL: s.TTL, Holders: s.HolderCount, Waits: s.Waits,
	}
}

// inTheWay returns who holds the keys that the caller cannot have beside their holders, and the position of the caller in
// line, where its token or its metadata identifies it; or that the guard is closed.
func (f *Flags) inTheWay(
	ctx context.Context, s *connect.Session, keys []string, token, metadata string,
) (o Obstacles, err error) {
	if left := s.Closed(ctx); left > 0 {
		return Obstacles{Blocked: []*redislock.RefusedError{{Closed: left}}}, nil
	}
	statuses, err := s.Locks.Inspect(ctx, keys...)
	if err != nil {
		return o, err
	}
	var held, kept []*redislock.RefusedError
	for _, status := range statuses {
		ahead, position, err := f.ahead(ctx, s, status, token, metadata)
		if err != nil {
			return o, err
		}
		o.Position = max(o.Position, position)
		_, own := Held(status, token)
		e := RefusedBy(status)
		e.Ahead = ahead
		switch {
		case !(own && token != "") && !f.Limits.Fits(status):
			held = append(held, e)
		case status.Waiters > 1 && position != 1: // for others in line; the caller is one of these waiters
			kept = append(kept, e)
		}
	}
	o.Blocked = slices.Concat(held, kept)
	return o, nil
}

// ahead returns how many wait for a key before the caller, and its position in line; 0 if nobody knows which waiter it is,
// as with several runs that have the same --meta.
func (f *Flags) ahead(
	ctx context.Context, s *connect.Session, status redislock.Status, token, metadata string,
) (ahead, position int, err error) {
	line, err := s.Line(ctx, status)
	if err != nil {
		return 0, 0, err
	}
	alike := 0
	for i, w := range line {
		if token != "" && w.Token == token || w.Metadata != "" && strings.HasPrefix(metadata, w.Metadata) {
			ahead = i
			alike++
		}
	}
	if alike != 1 {
		return 0, 0, nil
	}
	return ahead, ahead + 1, nil
}
