package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

// hold is all that a run has locked: what it acquired and renews itself, and what it re-entered, which somebody else renews.
type hold struct {
	client redis.UniversalClient
	locks  *redislock.Client
	token  string

	kept    *redislock.Lock // nil if nothing was acquired
	watched *watch          // nil if nothing was re-entered

	alive context.Context // ends when any of it is lost
	stop  []context.CancelFunc
}

// until returns the time until which all of it is certainly held.
func (h *hold) until() time.Time {
	switch {
	case h.watched == nil:
		return h.kept.Until()
	case h.kept == nil:
		return h.watched.validUntil()
	}
	until, other := h.kept.Until(), h.watched.validUntil()
	if other.Before(until) {
		return other
	}
	return until
}

// left returns how long all of it is certainly held from now on: the lesser of what the monotonic clock says, which stands
// still while the machine is suspended, and of what the wall clock says, which may be set back.
func (h *hold) left() time.Duration {
	until := h.until()
	return min(time.Until(until), until.Round(0).Sub(time.Now().Round(0)))
}

// lost returns why it is no longer held, or nil if it is. It looks at the clocks as well.
func (h *hold) lost() error {
	if h.kept != nil && h.alive.Err() == nil && h.left() > 0 {
		return nil
	}
	if h.alive.Err() == nil {
		if h.left() > 0 {
			return nil
		}
		return redislock.ErrLapsed
	}
	return context.Cause(h.alive)
}

// releaseTime bounds how long the end of a run waits for Redis: while the locks are held, but for 1 s at least and 3 s at
// most.
func releaseTime(left time.Duration) time.Duration { return min(max(left, time.Second), 3*time.Second) }

// release releases what was acquired, and looks a last time at what was re-entered. It returns an error that matches
// redislock.ErrLockNotHeld if some of it was lost unnoticed.
func (h *hold) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime(h.left()))
	defer cancel()
	var lost, err error
	if h.watched != nil {
		if lost = h.watched.look(ctx); !errors.Is(lost, redislock.ErrLockNotHeld) {
			lost = nil // a Redis that does not answer does not mean a loss
		}
	}
	if h.kept != nil {
		err = h.kept.Release(ctx)
	}
	return errors.Join(lost, err)
}

// close ends what the hold still does in this process. Locks that were not released expire.
func (h *hold) close() {
	for _, stop := range h.stop {
		stop()
	}
	_ = h.locks.Close()
	_ = h.client.Close()
}

// The variables that the command finds in its environment.
const (
	keysVariable  = "REDISLOCK_KEYS"
	tokenVariable = "REDISLOCK_TOKEN"
	fenceVariable = "REDISLOCK_FENCE"
	untilVariable = "REDISLOCK_UNTIL"
)

func (h *hold) variables(keys []string) []string {
	variables := []string{
		keysVariable + "=" + strings.Join(keys, "\n"),
		tokenVariable + "=" + h.token,
		untilVariable + "=" + h.until().UTC().Format(time.RFC3339Nano),
	}
	if fence := h.kept.FenceToken(); fence != 0 {
		variables = append(variables, fenceVariable+"="+strconv.FormatInt(fence, 10))
	}
	return variables
}

// replaces reports whether the command must not inherit a variable. It inherits the fencing token of a surrounding run if
// this one has acquired nothing.
func (h *hold) replaces(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	switch name {
	case keysVariable, tokenVariable, untilVariable:
		return true
	case fenceVariable:
		return h.kept != nil
	}
	return false
}

// obtain acquires the locks. A signal ends the waiting, and releases what was acquired by then.
func (f *runFlags) obtain(ctx context.Context, target *connect.Target, signals *job.Signals) (*hold, error) {
	ctx, end := signals.Ending(ctx)
	client, err := target.Connect(ctx)
	if err != nil {
		end()
		return nil, interrupted(ctx, err)
	}
	h := &hold{client: client, locks: redislock.New(client), token: f.token}
	missing := f.keys
	if f.hasToken {
		missing, err = h.reenter(ctx, f.keys)
	}
	if err == nil && len(missing) > 0 {
		err = f.take(ctx, h, missing)
	}
	end()
	if signal := interrupted(ctx, nil); signal != nil {
		if err == nil {
			_ = h.release()
		}
		err = signal
	} else if err != nil {
		err = f.refused(ctx, target, h, err)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// interrupted returns the signal that has ended ctx, or err if none has.
func interrupted(ctx context.Context, err error) error {
	if signal, ok := errors.AsType[job.SignalError](context.Cause(ctx)); ok {
		return signal
	}
	return err
}

// take acquires keys, and keeps them from then on.
func (f *runFlags) take(ctx context.Context, h *hold, keys []string) error {
	waiting := ctx
	if h.watched != nil { // if the re-entered locks are lost, there is no point in waiting for the others
		var cancel context.CancelCauseFunc
		waiting, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		unhook := context.AfterFunc(h.alive, func() { cancel(context.Cause(h.alive)) })
		defer unhook()
	}
	if f.wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(waiting, f.wait)
		defer cancel()
	}
	began := time.Now()
	lock, err := h.locks.ObtainMulti(waiting, keys, f.ttl, &redislock.Options{
		Queue: !f.noWait, Metadata: f.metadata(), Token: f.token, FenceKey: f.fenceKey,
	})
	if err != nil {
		return err
	}
	alive, stop := lock.KeepAlive(context.Background())
	h.kept, h.token, h.stop = lock, lock.Token(), append(h.stop, stop)
	if h.alive == nil {
		h.alive = alive
	} else {
		both, end := context.WithCancelCause(h.alive)
		context.AfterFunc(alive, func() { end(context.Cause(alive)) })
		h.alive, h.stop = both, append(h.stop, func() { end(nil) })
	}
	if time.Since(began) > time.Second { // the times in the metadata are from before the wait
		refresh, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = lock.Refresh(refresh, f.ttl, &redislock.Options{Metadata: f.metadata()}) // KeepAlive notices a loss
	}
	return nil
}

// refused returns the exit code and the words for an obtain that has failed.
func (f *runFlags) refused(ctx context.Context, target *connect.Target, h *hold, err error) error {
	switch {
	case errors.Is(err, redislock.ErrInvalid) && strings.Contains(err.Error(), "Queue"):
		return cli.Usagef("%w; or do not wait for it, with --no-wait", err)
	case !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, redislock.ErrLockNotHeld):
		return target.Refusal(err)
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	statuses, lookErr := h.locks.Inspect(look, f.keys...)
	if lookErr != nil {
		return target.Refusal(lookErr)
	}
	if f.quiet {
		return cli.Exit(f.conflictCode)
	}
	waited := ""
	if f.wait > 0 {
		waited = fmt.Sprintf(" after waiting for %v", f.wait)
	}
	taken := slices.IndexFunc(statuses, func(s redislock.Status) bool { return s.TTL != 0 && s.Token != h.token })
	if taken < 0 {
		return &cli.Error{Code: f.conflictCode, Err: fmt.Errorf("not locked%s: %q is free by now, or others are in line for it",
			waited, f.keys[0])}
	}
	by := statuses[taken]
	by.Waiters = 0 // this run may still be among them
	return &cli.Error{Code: f.conflictCode, Err: fmt.Errorf("not locked%s: %q is held by %s", waited, by.Key, show.Holder(by))}
}
