package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/words"
)

// ReleaseLimit is how long a command that ends keeps trying to release its locks: long enough for a restart, or for a
// Cluster that notices after 15 s that a master is gone, and no longer than a user waits for a prompt.
const ReleaseLimit = 30 * time.Second

const (
	unspoken     = time.Second            // how long Insist tries before it says so
	firstAgain   = 50 * time.Millisecond  // the first pause between two tries; pauses double
	longestAgain = 500 * time.Millisecond // the longest pause

	// lastAnswer is how long a try may still take when its time is over. A healthy Redis answers within that.
	lastAnswer = 200 * time.Millisecond
)

var errSilent = errors.New("no answer from Redis")

// Insist calls try until it succeeds, while its error may pass: while Redis cannot be reached, or answers "not now". It
// returns nil or the last error. When ctx ends, it begins no further try, and the try that is under way has 200 ms left.
// After a second it calls tell once, from another goroutine, with the last error; it does not return before tell has.
func Insist(ctx context.Context, try func(context.Context) error, tell func(why error)) error {
	trying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(lastAnswer, cancel) })
	defer unhook()
	var why atomic.Pointer[error]
	why.Store(&errSilent)
	told := make(chan struct{})
	word := time.AfterFunc(unspoken, func() {
		defer close(told)
		tell(*why.Load())
	})
	defer func() {
		if !word.Stop() {
			<-told
		}
	}()
	for pause := firstAgain; ; pause = min(2*pause, longestAgain) {
		err := try(trying)
		switch {
		case err == nil, isFinal(err):
			return err
		case trying.Err() == nil: // otherwise err says only that
			why.Store(&err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return *why.Load()
		}
	}
}

// isFinal reports whether another try would fail as well: the token does not hold the keys, or Redis refuses for good.
func isFinal(err error) bool {
	if errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained) ||
		errors.Is(err, redislock.ErrInvalid) {
		return true
	}
	_, answered := errors.AsType[redis.Error](err)
	return answered && !connect.IsAway(err)
}

// GiveUp releases a lock whose keys expire by that time at the latest, until ctx ends, as Insist does. It returns nil if the
// keys are free, an error that matches redislock.ErrLockNotHeld if some had been lost, and otherwise an *UnreleasedError.
func GiveUp(ctx context.Context, s *connect.Session, lock *redislock.Lock, by time.Time, tell func(error)) error {
	e := &UnreleasedError{Keys: lock.Keys(), By: by}
	err := Insist(ctx, lock.Release, func(why error) {
		tell(fmt.Errorf("still trying to release %s: %w", e.which(), Plainly(s, why)))
	})
	if err == nil || errors.Is(err, redislock.ErrLockNotHeld) {
		return err
	}
	e.Err = Plainly(s, err)
	return e
}

// Release releases keys if the token holds all of them, and tries as GiveUp does. It returns an error that matches
// redislock.ErrLockNotHeld if the token does not, an *UnreleasedError if keys stay, and any other error as Attach does.
// While the guard is closed, keys that are gone count as held.
func Release(ctx context.Context, s *connect.Session, keys []string, token string, tell func(error)) error {
	_, err := release(ctx, s, keys, token, "", tell)
	return err
}

// release is Release. While the guard is closed, it puts value into the keys, unless that is "", and returns how long they
// keep it.
func release(
	ctx context.Context, s *connect.Session, keys []string, token, value string, tell func(error),
) (kept time.Duration, err error) {
	var lock *redislock.Lock
	var left time.Duration // Until does not tell a key without expiry
	err = Insist(ctx, func(ctx context.Context) (err error) {
		if lock, err = s.Locks.Attach(ctx, keys, cmp.Or(token, nobody)); err == nil {
			left, err = lock.TTL(ctx)
		} else if s.IsClosed(err) {
			kept, err = releaseClosed(ctx, s, keys, token, value)
		}
		return err
	}, func(why error) { tell(fmt.Errorf("still trying to release %s: %w", Names(keys), Plainly(s, why))) })
	switch {
	case err == nil && lock == nil: // the guard is closed
		return kept, nil
	case err == nil:
		return 0, GiveUp(ctx, s, lock, time.Now().Add(left).Add(time.Millisecond), tell) // TTL is rounded down
	case isFinal(err):
		return 0, err
	}
	return 0, &UnreleasedError{Keys: keys, Err: Plainly(s, err)}
}

// UnreleasedError is the error for keys that could not be released.
type UnreleasedError struct {
	Keys []string
	By   time.Time // when they have expired at the latest; zero if that is not known
	Err  error     // why
}

func (e *UnreleasedError) Error() string {
	return fmt.Sprintf("cannot release %s: %v", e.which(), e.Err)
}

func (e *UnreleasedError) Unwrap() error { return e.Err }

// which names the keys, and says until when they stay.
func (e *UnreleasedError) which() string {
	const never = 100 * 365 * 24 * time.Hour // from then on, a key has no expiry
	which, expire, have, whose := Names(e.Keys)+", which ", "expires", "has", "its"
	if len(e.Keys) > 1 {
		expire, have, whose = "expire", "have", "their"
	}
	switch left := time.Until(e.By); {
	case e.By.IsZero():
		return which + expire + " at the end of " + whose + " ttl"
	case left <= 0:
		return which + have + " expired by now"
	case left > never:
		return which + have + " no expiry"
	}
	return which + expire + " by " + ClockTime(e.By)
}

// Names writes keys for people, the first ten of them.
func Names(keys []string) string {
	const most = 10
	text := fmt.Sprintf("%q", keys[:min(len(keys), most)])
	text = strings.ReplaceAll(strings.Trim(text, "[]"), `" "`, `", "`)
	if more := len(keys) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ClockTime writes a time of the near future for people: the time of day here, and how long it takes until then.
func ClockTime(t time.Time) string {
	now, layout := time.Now(), time.TimeOnly
	if t.Sub(now) >= 12*time.Hour {
		layout = time.DateTime
	}
	return fmt.Sprintf("%s (in %s)", t.Local().Format(layout), words.Duration(t.Sub(now).Round(time.Second/10)))
}

// Plainly returns an error of Redis without the operation and the keys, which the caller names.
func Plainly(s *connect.Session, err error) error {
	if _, isQuorum := s.Client.(*connect.Quorum); isQuorum { // each server has its own
		return err
	}
	if answer, answered := errors.AsType[redis.Error](err); answered {
		return answer
	}
	if connect.IsSilent(err) {
		return errSilent
	}
	return s.Explain(err)
}

// NotHeld returns the error for a token that does not hold all keys: what was not done, and who holds the first other key.
// It returns other errors with their exit code.
func NotHeld(ctx context.Context, s *connect.Session, what string, keys []string, token string, why error) error {
	if left := s.Closed(ctx); s.IsClosed(why) && left > 0 {
		return cli.Unavailablef("%s: %s", what, show.Closed(left))
	}
	if !errors.Is(why, redislock.ErrLockNotHeld) {
		return s.Refusal(why)
	}
	statuses, err := s.Inspect(ctx, keys)
	if err != nil {
		return err
	}
	for _, status := range statuses {
		_, held := Held(status, token)
		unlisted := status.HolderCount > len(status.Holders) // the token may be one of these
		switch {
		case status.TTL == 0:
			return fmt.Errorf("%s: %q is free", what, status.Key)
		case !held && !unlisted:
			return fmt.Errorf("%s: %q is held by %s", what, status.Key, show.Holder(status))
		}
	}
	return fmt.Errorf("%s: %w", what, why)
}
