package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

var (
	// ErrNotObtained is returned by Obtain and ObtainMulti if a key is held by another, and by Refresh if the whole lock
	// is lost.
	ErrNotObtained = errors.New("redislock: not obtained")

	// ErrLockNotHeld is returned by Release and Attach if no key of the lock is held by its token, because it ran out,
	// was released before, or was taken over.
	ErrLockNotHeld = errors.New("redislock: lock not held")

	// ErrLapsed is why the context of a kept lock has ended whose lease ran out unrenewed: whether the keys are still held
	// is not known. Refresh wraps it if the lease ran out before Redis answered.
	ErrLapsed = errors.New("redislock: the lease ran out unrenewed")

	// ErrInvalid is wrapped, with words that say what to mend, by every call whose arguments cannot be used. Such a
	// call sends nothing.
	ErrInvalid = errors.New("redislock: invalid argument")

	// ErrClosed is returned by calls that need a Client which is closed.
	ErrClosed = errors.New("redislock: client is closed")
)

// LostError tells that a lock has lost some of its keys and not others. It matches [ErrLockNotHeld], and when it comes
// from Refresh [ErrNotObtained] too.
type LostError struct {
	// Keys are the lost ones, in the order of [Lock.Keys].
	Keys []string

	total   int   // keys of the lock
	taken   int   // how many of Keys are another's; the rest are gone
	decides error // what the loss means to the caller of the operation, beside ErrLockNotHeld
}

// Error names the lost keys, the first few of them if they are many.
func (e *LostError) Error() string {
	const most = 5
	var list strings.Builder
	for i, key := range e.Keys {
		if i == most {
			fmt.Fprintf(&list, " and %d more", len(e.Keys)-most)
			break
		}
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprintf(&list, "%q", key)
	}
	return fmt.Sprintf("redislock: lost %d of %d keys (%d gone, %d another's): %s",
		len(e.Keys), e.total, len(e.Keys)-e.taken, e.taken, list.String())
}

// Is reports whether target is ErrLockNotHeld, or ErrNotObtained for a loss that a Refresh found.
func (e *LostError) Is(target error) bool {
	return target == ErrLockNotHeld || e.decides != nil && target == e.decides
}

// invalid returns ErrInvalid with words.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// errNilContext is what a call with a nil ctx gets.
var errNilContext = invalid("ctx is nil; pass context.Background() where there is none")

// unexpected is for a reply that no script of ours gives: another script under its hash, or a wrapper that changes it.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected reply %v (%[1]T)", reply)
}

// failed wraps what Redis or the network said with the operation and the keys it was for.
func failed(operation string, keys []string, err error) error {
	return fmt.Errorf("redislock: %s %s: %w", operation, describe(keys), err)
}

// explain adds to an answer of the server what it means and how to mend it, where the server's words do not say.
func explain(keys []string, err error) error {
	line := lineOf(keys[0])
	if line != "" && transport.HasCode(err, "NOPERM") && strings.Contains(err.Error(), "key") {
		return fmt.Errorf("the user needs rights to the keys of the lock and to their lines, like %q: %w", line, err)
	}
	if !transport.HasCode(err, "CROSSSLOT") {
		return err
	}
	for _, key := range keys {
		if first, other := transport.Slot(keys[0]), transport.Slot(key); first != other {
			return fmt.Errorf("%q is in slot %d and %q in slot %d; give all keys of a lock one hash tag, "+
				"as in {order:7}:stock: %w", keys[0], first, key, other, err)
		}
	}
	return err
}

// describe names the first key and counts the others.
func describe(keys []string) string {
	switch len(keys) {
	case 0:
		return "nothing"
	case 1:
		return fmt.Sprintf("%q", keys[0])
	}
	return fmt.Sprintf("%q and %d more", keys[0], len(keys)-1)
}

// ended returns why ctx has ended, with its cause where that says more, and nil if it has not ended. A deadline counts
// from its time on, even if the timer behind ctx is late: go-redis may have seen it first.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		if deadline, ok := ctx.Deadline(); !ok || time.Now().Before(deadline) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(timerLag): // a ctx of the caller's own that has a deadline and does not keep it
			return context.DeadlineExceeded
		}
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if canCompare(err) && err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// canCompare reports whether err == other is safe, whatever other is. The error of a ctx may be anything: a slice, as
// validators have them, or a struct that holds one. To compare two of one such type panics.
func canCompare(err error) bool { return reflect.ValueOf(err).Comparable() }

// timerLag is how late the timer of a ctx may be.
const timerLag = 10 * time.Millisecond

// notObtained is the end of an obtain by its ctx.
func notObtained(why error) error {
	return fmt.Errorf("%w: %w", ErrNotObtained, why)
}
