package run

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
)

// hold is all that a run has locked: what it acquired and renews itself, and what it re-entered, which somebody else renews.
type hold struct {
	*connect.Session

	ttl   time.Duration // of what was acquired
	token string
	fence int64 // 0 for none

	kept     *redislock.Lock // nil if nothing was acquired
	unnamed  *redislock.Lock // in place of kept, after a rename that failed: this token or that of --token holds the keys
	watched  *watch          // nil if nothing was re-entered
	complete time.Time       // when all of it was held

	alive context.Context // ends when any of it is lost
	stop  []context.CancelFunc

	gaveIn bool // keys stay that could not be released
}

// until returns the time until which all of it is certainly held.
func (h *hold) until() (until time.Time) {
	if h.kept != nil {
		until = h.kept.Until()
	}
	if h.watched != nil {
		if other := h.watched.validUntil(); h.kept == nil || other.Before(until) {
			until = other
		}
	}
	return until
}

func (h *hold) left() time.Duration { return remaining(h.until()) }

// lost returns why it is no longer held, or nil if it is. It looks at the clocks as well.
func (h *hold) lost() error {
	left := h.left() // before alive: if it has just run out, alive says more
	switch {
	case h.alive.Err() != nil:
		return context.Cause(h.alive)
	case left > 0:
		return nil
	}
	return redislock.ErrLapsed
}

// close ends what the hold still does in this process. Locks that were not released expire.
func (h *hold) close() {
	h.stopAll()
	if !h.gaveIn { // otherwise Close would try once more, after the user was told that the keys stay
		h.Close()
	}
}

func (h *hold) stopAll() {
	for _, stop := range h.stop {
		stop()
	}
}

// environ returns the environment of the command: that of this process, but what a run around this one says about its locks
// is replaced. If this run has acquired nothing, the fencing token stays.
func (h *hold) environ(keys []string) (variables []string) {
	own := map[string]string{
		"REDISLOCK_KEYS":      strings.Join(keys, "\n"),
		locking.TokenVariable: h.token,
		"REDISLOCK_UNTIL":     h.until().UTC().Format(time.RFC3339Nano),
	}
	outer := slices.DeleteFunc(locking.OuterTokens(h.Env), func(token string) bool { return token == h.token })
	if h.kept != nil {
		own["REDISLOCK_FENCE"] = ""
		if h.kept.Token() != h.token {
			outer = append(outer, h.kept.Token())
		}
		if h.fence != 0 {
			own["REDISLOCK_FENCE"] = strconv.FormatInt(h.fence, 10)
		}
	}
	own[locking.OuterVariable] = strings.Join(outer, " ")
	own[keyname.HoldsVariable] = h.holdings()
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if _, replaced := own[name]; !replaced {
			variables = append(variables, variable)
		}
	}
	for name, value := range own {
		if value != "" {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// holdings names the locks that the command runs under, for waiters in it: those of the runs around this one, and its own.
func (h *hold) holdings() string {
	all := script.ReadHoldings(h.Getenv(keyname.HoldsVariable))
	if h.kept != nil {
		all = slices.Insert(all, 0, script.Holding{Token: h.kept.Token(), Keys: h.kept.Keys()})
	}
	return script.WriteNames(nil, all)
}

// obtain acquires the locks. A signal ends the waiting, and gives up what was acquired by then.
func (f *runFlags) obtain(ctx context.Context, target *connect.Target, signals *job.Signals) (*hold, error) {
	ctx, end := signals.Ending(ctx)
	waiting, cancel := f.Context(ctx)
	defer cancel()
	s, err := f.Open(waiting, target, redislock.WithTracer(f.log.tracer()))
	if err != nil {
		end()
		return nil, job.Interrupted(ctx, err)
	}
	h := &hold{Session: s, ttl: f.TTL}
	err = f.take(waiting, h)
	end()
	err = job.Interrupted(ctx, err)
	if err != nil {
		f.abandon(h, signals)
		h.stopAll()
		if !h.gaveIn {
			f.Close(h.Session, err)
		}
		return nil, err
	}
	h.complete = time.Now()
	return h, nil
}

// take re-enters what is to be shared, and acquires the other keys. Its errors are ready to be printed.
func (f *runFlags) take(ctx context.Context, h *hold) error {
	missing := f.Keys
	token, err := f.tokenFor(ctx, h)
	if err != nil {
		return err
	}
	h.token = token
	if f.reenter || f.share {
		err = f.Bear(ctx, h.Target, func() (err error) {
			missing, err = f.watchHeld(ctx, h)
			return err
		})
		switch {
		case errors.Is(err, redislock.ErrLockNotHeld):
			return f.Refuse("the locks to re-enter are being released")
		case err != nil:
			return f.Unreachable(ctx, h.Target, err)
		}
		if f.reenter && len(missing) == len(f.Keys) {
			return f.Refuse("the run around this one holds none of the KEYs, so there is nothing to re-enter")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if h.watched != nil { // if the re-entered locks are lost, there is no point in waiting for the others
		var end func()
		ctx, end = both(ctx, h.alive)
		defer end()
	}
	if f.hasToken && !f.share || h.Target.IsQuorum() { // see rename; and on a quorum, no token can be chosen
		token = ""
	}
	lock, err := f.Acquire(ctx, h.Session, missing, token)
	if err != nil {
		return err
	}
	h.fence = lock.FenceToken()
	if token == "" && f.hasToken {
		renamed, err := rename(ctx, h.Session, lock, f.token, f.TTL)
		if err != nil {
			h.unnamed = lock
			return h.Refusal(err)
		}
		lock = renamed
	}
	h.keep(lock)
	return nil
}

// keep renews a lock from now on.
func (h *hold) keep(lock *redislock.Lock) {
	alive, stop := lock.KeepAlive(context.Background())
	h.kept, h.token, h.stop = lock, cmp.Or(h.token, lock.Token()), append(h.stop, stop)
	if h.alive != nil {
		alive, stop = both(h.alive, alive)
		h.stop = append(h.stop, stop)
	}
	h.alive = alive
}

// both returns a ctx that ends with the first of two, and has its cause.
func both(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	unhook := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}
