package redislock

import (
	"fmt"
	"strings"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

var (
	// ErrNotObtained is returned by Obtain and ObtainMulti if another holder has one of the keys, or callers wait in line
	// for one, and by Refresh if the whole lock is lost. The errors of an obtain that ctx has ended, and of one whose grant
	// came too late, match it.
	ErrNotObtained = fault.ErrNotObtained

	// ErrLockNotHeld is returned by Release and Attach if the token holds no key of the lock: the lock expired, was
	// released before, or another holder took its keys.
	ErrLockNotHeld = fault.ErrLockNotHeld

	// ErrLapsed says that the validity of a lock ended before Redis answered. The cause of a context of KeepAlive or Do
	// matches it, and so does the error of a Refresh; nobody knows then whether the keys are still held. The error of an
	// obtain matches ErrLapsed and ErrNotObtained if the answer took longer than the ttl; the library gives the keys back.
	ErrLapsed = fault.ErrLapsed

	// ErrInvalid is wrapped by the error of every call whose arguments cannot be used. The text says what to fix. Such
	// a call sends nothing.
	ErrInvalid = fault.ErrInvalid

	// ErrClosed is returned by calls that need an open Client, after Close.
	ErrClosed = fault.ErrClosed
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

func newLostError(l script.Loss, decides error) error {
	return &LostError{Keys: l.Keys, total: l.Total, taken: l.Taken, decides: decides}
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
