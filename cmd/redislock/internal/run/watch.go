package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redislock/redislock"
)

// endless is how long a hold without expiry counts after a look: its holder gives it a ttl with the next renewal.
const endless = 10 * time.Second

// watch is a hold of somebody else, whose token this run was given. The run looks at it again and again, but never renews
// it: it could only set its own ttl, and that would hide that the one who renews the hold is gone.
type watch struct {
	lock *redislock.Lock // attached
	end  context.CancelCauseFunc

	mu    sync.Mutex // protects until
	until time.Time
}

// reenter starts to watch the keys that the token holds already, and returns the others.
func (h *hold) reenter(ctx context.Context, keys []string) (missing []string, err error) {
	for range 3 { // the keys may be lost between Inspect and Attach
		var statuses []redislock.Status
		statuses, err = h.Locks.Inspect(ctx, keys...)
		if err != nil {
			return nil, err
		}
		var held []string
		missing = nil
		for _, s := range statuses {
			if s.Token == h.token {
				held = append(held, s.Key)
			} else {
				missing = append(missing, s.Key)
			}
		}
		if len(held) == 0 {
			return missing, nil
		}
		w := &watch{}
		if w.lock, err = h.Locks.Attach(ctx, held, h.token); err == nil {
			err = w.look(ctx)
		}
		if errors.Is(err, redislock.ErrLockNotHeld) {
			continue
		} else if err != nil {
			return nil, err
		}
		alive, end := context.WithCancelCause(context.Background())
		w.end, h.watched = end, w
		h.alive, h.stop = alive, append(h.stop, func() { end(nil) })
		go w.run(alive)
		return missing, nil
	}
	return nil, err
}

// validUntil returns the time until which the watched locks are certainly held.
func (w *watch) validUntil() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until
}

// run looks at least once a second, until ctx ends or the locks are lost.
func (w *watch) run(ctx context.Context) {
	failed := false
	for {
		interval := min(time.Until(w.validUntil())/3, time.Second)
		if failed {
			interval /= 4
		}
		select {
		case <-time.After(max(interval, 20*time.Millisecond)):
		case <-ctx.Done():
			return
		}
		look, cancel := context.WithTimeout(ctx, time.Second)
		err := w.look(look)
		cancel()
		failed = err != nil
		if errors.Is(err, redislock.ErrLockNotHeld) {
			w.end(err)
			return
		}
	}
}

// look asks Redis once. It returns an error that matches redislock.ErrLockNotHeld if the locks are lost.
func (w *watch) look(ctx context.Context) error {
	sent := time.Now()
	left, err := w.lock.TTL(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		return err
	case left == 0:
		return fmt.Errorf("%w: the hold that was re-entered is gone", redislock.ErrLockNotHeld)
	case left == math.MaxInt64:
		if until := sent.Add(endless); until.After(w.until) {
			w.until = until
		}
		return nil
	}
	w.until = sent.Add(left - left/100 - time.Millisecond) // the margin of Lock.Until
	return nil
}
