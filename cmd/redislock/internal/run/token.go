package run

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
)

func (f *runFlags) checkToken() error {
	switch {
	case f.hasToken && f.token == "":
		return cli.Usagef("--token is empty; without --token, redislock makes up a new one")
	case strings.ContainsFunc(f.token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return cli.Usagef("--token %q contains white space or a control character", f.token)
	case f.hasToken && !f.share && f.Limits.Any(): // see rename
		return cli.Usagef("--token does not work with --shared and --permit, unless --share joins a lock that exists")
	case f.share && !f.hasToken:
		return cli.Usagef("--share needs --token T; to share the locks of the run around this one, use --reenter")
	case f.reenter && f.hasToken:
		return cli.Usagef("--reenter and --token exclude each other: --reenter takes $%s", locking.TokenVariable)
	}
	return nil
}

// tokenFor returns the token for the locks, "" for a random one, or an error if this run would wait for itself, or would
// join a lock of another process without --share.
func (f *runFlags) tokenFor(ctx context.Context, h *hold) (string, error) {
	outer := locking.OuterTokens(h.Env)
	token, shared := f.token, ""
	if f.reenter {
		if h.Getenv(locking.TokenVariable) == "" {
			return "", cli.Usagef("--reenter is for a run inside another run, but %s is not set", locking.TokenVariable)
		}
		token = outer[0]
	}
	if f.reenter || f.share {
		shared = token
	}
	if len(outer) == 0 && (!f.hasToken || f.share) {
		return token, nil
	}
	var statuses []redislock.Status
	err := f.Bear(ctx, h.Target, func() (err error) {
		statuses, err = h.Locks.Inspect(ctx, f.Keys...)
		return err
	})
	if err != nil {
		return "", f.Unreachable(ctx, h.Target, err)
	}
	if err := f.CheckNesting(h.Env, statuses, shared); err != nil {
		return "", err
	}
	for _, s := range statuses {
		if _, held := locking.Held(s, f.token); f.hasToken && !f.share && held {
			const words = "%q is already held with this token; to share that lock, add --share"
			if f.NoWait() {
				return "", f.Refuse(words, s.Key)
			}
			return "", cli.Usagef(words, s.Key)
		}
	}
	return token, nil
}

//go:embed rename.lua
var renaming string

// rename gives a lock that was acquired with a random token the token of the user. A lock that was acquired with that token
// right away would share the keys with everybody who uses the same token at the same moment. After an error, either
// token may hold the keys.
func rename(
	ctx context.Context, s *connect.Session, lock *redislock.Lock, token string, ttl time.Duration,
) (*redislock.Lock, error) {
	switch done, err := redis.NewScript(renaming).Run(ctx, s.Client, lock.Keys(), lock.Token(), token).Int(); {
	case err != nil:
		return nil, err
	case done == 0:
		return nil, redislock.ErrLockNotHeld
	}
	renamed, err := s.Locks.Attach(ctx, lock.Keys(), token)
	if err != nil {
		return nil, err
	}
	err = renamed.Refresh(ctx, ttl, nil) // an attached lock has no ttl yet that could be renewed
	return renamed, err
}

// endless is how long a hold without expiry counts after a look: its holder gives it a ttl with the next renewal.
const endless = 10 * time.Second

// watch is a hold of somebody else, whose token this run was given. The run looks at it again and again, but never renews
// it: it could only set its own ttl, and that would hide that the one who renews the hold is gone.
type watch struct {
	lock   *redislock.Lock // attached
	end    context.CancelCauseFunc
	closed func(context.Context) time.Duration // how much longer the guard is closed

	mu    sync.Mutex // protects until
	until time.Time
}

// watchHeld starts to watch the keys that the token holds already, and returns the others.
func (f *runFlags) watchHeld(ctx context.Context, h *hold) (missing []string, err error) {
	for range 3 { // the keys may be lost between Inspect and Attach
		var statuses []redislock.Status
		statuses, err = h.Locks.Inspect(ctx, f.Keys...)
		if err != nil {
			return nil, err
		}
		var held []string
		missing = nil
		for _, s := range statuses {
			switch limit, is := h.holds(ctx, s); {
			case !is:
				missing = append(missing, s.Key)
			case !f.Limits.Cover(s.Key, limit):
				return nil, cli.Usagef("%q is shared with more holders by the lock to re-enter than this run allows; "+
					"name it with --shared or --permit as there", s.Key)
			default:
				held = append(held, s.Key)
			}
		}
		if len(held) == 0 {
			return missing, nil
		}
		w := &watch{closed: h.Closed}
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

// holds reports whether the token holds a key, and for how many holders.
func (h *hold) holds(ctx context.Context, s redislock.Status) (limit int, held bool) {
	limit, held = locking.Held(s, h.token)
	if !held && s.HolderCount > len(s.Holders) && h.token != "" {
		_, err := h.Locks.Attach(ctx, []string{s.Key}, h.token)
		return 0, err == nil // a limit would be above the number of those who are listed
	}
	return limit, held
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

// errForgotten is the error of a look at keys that Redis has forgotten. Until the guard opens, their holder can put them
// back.
var errForgotten = errors.New("the locks to re-enter are forgotten by Redis")

// look asks Redis once. It returns an error that matches redislock.ErrLockNotHeld if the locks are lost.
func (w *watch) look(ctx context.Context) error {
	sent := time.Now()
	left, err := w.lock.TTL(ctx)
	if err == nil && left == 0 && w.closed(ctx) > 0 {
		return errForgotten
	}
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
