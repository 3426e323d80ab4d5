// Package retry makes the tries of a call, as a strategy says, and has the strategies of the library.
package retry

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/fault"
)

// Strategy says how long to wait before each further try. Every RetryStrategy of the root is one.
type Strategy interface {
	NextBackoff() time.Duration // a value under 1 ns stops the retries
}

// Do calls try, and waits between the tries as s says. It stops when try returns false, s stops (a nil s stops at once), the
// next wait would end after until (the zero time is no limit), ctx ends, or closed is closed. It returns the error of the
// last try, and whether ctx ended a wait. If closed was closed, the error is ErrClosed.
func Do(
	ctx context.Context, closed <-chan struct{}, s Strategy, until time.Time, try func() (again bool, err error),
) (cut bool, err error) {
	for {
		again, err := try()
		if !again || s == nil {
			return false, err
		}
		wait := s.NextBackoff()
		if wait < 1 || !until.IsZero() && time.Now().Add(wait).After(until) {
			return false, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return true, err
		case <-closed:
			timer.Stop()
			return false, fault.ErrClosed
		}
	}
}
