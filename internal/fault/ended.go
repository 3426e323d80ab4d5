package fault

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Ended returns why ctx has ended, with its cause if that says more, or nil if ctx has not ended. A deadline counts as soon
// as it has passed, even if the timer behind ctx is late, because go-redis may have seen the deadline first.
func Ended(ctx context.Context) error {
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
	if CanCompare(err) && err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// CanCompare reports whether err == other is safe for any other. The error of a ctx may have any type: a slice, as
// validators return, or a struct that holds a slice. Comparing two values of one such type panics.
func CanCompare(err error) bool { return reflect.ValueOf(err).Comparable() }

// timerLag is how late the timer of a ctx may be.
const timerLag = 10 * time.Millisecond

// HasDeadline reports whether ctx has a deadline.
func HasDeadline(ctx context.Context) bool {
	_, has := ctx.Deadline()
	return has
}

// IsClosed reports whether a channel is closed, on which nothing is ever sent. A nil channel is not closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
