package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

var (
	// ErrNotObtained is returned by Obtain and ObtainMulti if another holder has one of the keys, or callers wait in line
	// for one, and by Refresh if the whole lock is lost. The errors of an obtain that ctx has ended, and of one whose grant
	// came too late, match it.
	ErrNotObtained = errors.New("redislock: not obtained")

	// ErrLockNotHeld is returned by Release and Attach if the token holds no key of the lock: the lock expired, was
	// released before, or another holder took its keys.
	ErrLockNotHeld = errors.New("redislock: lock not held")

	// ErrLapsed says that the validity of a lock ended before Redis answered. The cause of a context of KeepAlive or Do
	// matches it, and so does the error of a Refresh; nobody knows then whether the keys are still held. The error of an
	// obtain matches ErrLapsed and ErrNotObtained if the answer took longer than the ttl; the library gives the keys back.
	ErrLapsed = errors.New("redislock: the lease ran out unrenewed")

	// ErrInvalid is wrapped by the error of every call whose arguments cannot be used. The text says what to fix. Such
	// a call sends nothing.
	ErrInvalid = errors.New("redislock: invalid argument")

	// ErrClosed is returned by calls that need an open Client, after Close.
	ErrClosed = errors.New("redislock: client is closed")
)

// LostError reports that a lock has lost some of its keys and still holds others. It matches [ErrLockNotHeld] and, when
// it comes from Refresh, also [ErrNotObtained].
type LostError struct {
	// Keys are the lost keys, in the order of [Lock.Keys].
	Keys []string

	total   int   // keys of the lock
	taken   int   // how many of Keys another holds; the rest are gone
	decides error // what the loss means to the caller of the operation, beside ErrLockNotHeld
}

// Error names the lost keys, or the first five of them.
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

// Is reports whether target is ErrLockNotHeld, or ErrNotObtained if a Refresh found the loss.
func (e *LostError) Is(target error) bool {
	return target == ErrLockNotHeld || e.decides != nil && target == e.decides
}

// invalid returns an error that wraps ErrInvalid and says why.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// errNilContext is the error of a call with a nil ctx.
var errNilContext = invalid("ctx is nil; pass context.Background() where there is none")

// unexpected is the error for a reply that none of our scripts gives: another script has the same hash, or a wrapper
// changed the reply.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected reply %v (%[1]T)", reply)
}

// failed wraps an error of Redis or the network with the operation and its keys. It turns that of a Redis client that
// cannot be used into one that wraps ErrInvalid.
func failed(operation string, keys []string, err error) error {
	if unusable := (*transport.NilError)(nil); errors.As(err, &unusable) {
		return invalid("%v", unusable)
	}
	return fmt.Errorf("redislock: %s %s: %w", operation, describe(keys), err)
}

// withHint adds to an error of the server what it means and how to fix it, where the server's text does not say.
func withHint(keys []string, err error) error {
	line := keyname.LineOf(keys[0])
	if line != "" && transport.HasCode(err, "NOPERM") && strings.Contains(err.Error(), "key") {
		return fmt.Errorf("the user needs rights to the keys of the lock and to their lines, like %q: %w", line, err)
	}
	if !transport.HasCode(err, "CROSSSLOT") {
		return err
	}
	for _, key := range keys {
		if first, other := transport.Slot(keys[0]), transport.Slot(key); first != other {
			return fmt.Errorf("%q is in slot %d and %q in slot %d; give all keys of a lock one hash tag, "+
				"as in {order:7}:stock, or pass a *redis.ClusterClient and set AcrossSlots: %w", keys[0], first, key, other, err)
		}
	}
	return err
}

// joined returns one error that wraps all of errs, in one line.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	format := strings.Repeat("%w; ", len(errs))
	args := make([]any, len(errs))
	for i, err := range errs {
		args[i] = err
	}
	return fmt.Errorf(strings.TrimSuffix(format, "; "), args...)
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

// ended returns why ctx has ended, with its cause where that says more, or nil if it has not ended. A deadline counts
// as soon as it has passed, even if the timer behind ctx is late: go-redis may have seen it first.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		if deadline, ok := ctx.Deadline(); !ok || time.Now().Before(deadline) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(timerLag): // a custom ctx that has a deadline but does not end at it
			return context.DeadlineExceeded
		}
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if canCompare(err) && err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// canCompare reports whether err == other is safe for any other. The error of a ctx may have any type: a slice, as
// validators have, or a struct that holds one. Comparing two values of one such type panics.
func canCompare(err error) bool { return reflect.ValueOf(err).Comparable() }

// timerLag is how late the timer of a ctx may be.
const timerLag = 10 * time.Millisecond

// notObtained returns the error of an obtain that ctx has ended.
func notObtained(why error) error {
	return fmt.Errorf("%w: %w", ErrNotObtained, why)
}
