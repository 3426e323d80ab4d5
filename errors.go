package redislock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

var (
	// ErrNotObtained is returned by Obtain and ObtainMulti if another holder has one of the keys, callers wait in line for
	// one, or the guard of [WithGuard] is closed, and by Refresh if the whole lock is lost. The error of an obtain also
	// matches it if ctx ended the obtain, or if the grant came too late, and that of an Attach if the guard is closed.
	ErrNotObtained = fault.ErrNotObtained

	// ErrLockNotHeld is returned by Release and Attach if the token holds no key of the lock: the lock expired, was
	// released before, or another holder took its keys.
	ErrLockNotHeld = fault.ErrLockNotHeld

	// ErrLapsed says that the validity of a lock ended before Redis answered. The cause of a context of KeepAlive or Do can
	// match it, and so can the error of a Refresh. Nobody knows then whether the keys are still held. The error of an
	// obtain matches ErrLapsed and ErrNotObtained if the answer took longer than the ttl; the library gives the keys back.
	ErrLapsed = fault.ErrLapsed

	// ErrDeadlock is what the error of an obtain matches that has waited in a circle; see [DeadlockError].
	ErrDeadlock = errors.New("redislock: deadlock")

	// ErrInvalid is wrapped by the error of every call whose arguments cannot be used. The text says what to fix. Such
	// a call sends nothing.
	ErrInvalid = fault.ErrInvalid

	// ErrClosed is returned by calls that need an open Client, after Close.
	ErrClosed = fault.ErrClosed
)

// LostError reports that a lock has lost some of its keys and still holds others. It matches [ErrLockNotHeld] and, when
// it comes from Refresh, also [ErrNotObtained].
type LostError struct {
	// Keys are lost keys, in the order of [Lock.Keys]. On a quorum, more may be lost: the first servers that answer decide.
	Keys []string

	total   int   // keys of the lock
	taken   int   // how many of Keys another token holds; the rest are gone
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

// RefusedError is the error of a refused obtain with [Options.Explain], and of one that the guard of [WithGuard] has
// refused, with Explain or without. It says which key blocks the call, and who holds that key. It matches
// [ErrNotObtained].
//
// Key is the first key that another token holds. If no key is held, callers that wait in line go first; Key is then the
// first key for which they wait. Key is "" if nothing blocked the call any more when the library asked, or if Redis did
// not answer in time or refused the question. If the guard of [WithGuard] is closed, Closed says for how long, and Key
// is "" as well.
type RefusedError struct {
	Key string
	// Token is the token of the holder; "" if nobody holds Key. Show only a few characters of it: anyone who knows the
	// whole token can release the lock.
	Token    string
	Metadata string        // the metadata of the holder
	TTL      time.Duration // the remaining ttl of Key; -1 for a key without expiry, 0 if nobody holds Key
	Ahead    int           // how many callers wait in line for Key before this call

	// Holders is how many others hold Key, if it is shared; 0 if one holder has it alone, or nobody has it. Token and Metadata
	// are those of the one who holds it for longest.
	Holders int

	// Closed is for how long the guard of [WithGuard] refuses every lock, because Redis may have forgotten some; 0 if the
	// guard is open, or if there is none. If it is not 0, the other fields are zero.
	Closed time.Duration

	// Waits are keys for which the holder waits itself, in line and while it holds Key, as of a few seconds ago; nil if that is
	// not known, or if it does not wait. See [Options.Queue].
	Waits []string
}

// Error names the key and its holder. It shows at most the first six characters of the token.
func (e *RefusedError) Error() string {
	if e.Closed > 0 {
		return fmt.Sprintf("%v: the guard is closed for another %v, because Redis may have forgotten locks; "+
			"if it has lost nothing, redislock guard open opens it", ErrNotObtained, e.Closed)
	}
	if e.Key == "" {
		return ErrNotObtained.Error()
	}
	if e.Token == "" && e.TTL == 0 {
		return fmt.Sprintf("%v: others wait in line for %q, %d of them before this call", ErrNotObtained, e.Key, e.Ahead)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%v: %q is held", ErrNotObtained, e.Key)
	if e.Token != "" {
		fmt.Fprintf(&text, " by %s", fault.Printable(fault.Short(e.Token)))
	}
	text.WriteString(parenthesized(e.Metadata))
	if e.Holders > 1 {
		fmt.Fprintf(&text, " and %d more", e.Holders-1)
	}
	if e.TTL < 0 {
		text.WriteString(" without expiry")
	} else {
		fmt.Fprintf(&text, " for %v more", e.TTL)
	}
	for i, key := range e.Waits {
		word := ", and waits itself for "
		if i > 0 {
			word = ", "
		}
		fmt.Fprintf(&text, "%s%q", word, key)
	}
	if e.Ahead > 0 {
		fmt.Fprintf(&text, ", %d ahead in line", e.Ahead)
	}
	return text.String()
}

// Is reports whether target is ErrNotObtained.
func (e *RefusedError) Is(target error) bool { return target == ErrNotObtained }
