package fault

import (
	"errors"
	"fmt"
	"time"
)

// The sentinels of the library. The root exports them, and says there what they mean to a caller.
var (
	ErrNotObtained = errors.New("redislock: not obtained")
	ErrLockNotHeld = errors.New("redislock: lock not held")
	ErrLapsed      = errors.New("redislock: the lease ran out unrenewed")
	ErrInvalid     = errors.New("redislock: invalid argument")
	ErrClosed      = errors.New("redislock: client is closed")
)

// ErrUnanswered is the error of an abandoned try, and of a call that was not answered when ctx ended.
var ErrUnanswered = errors.New("no answer from Redis")

// ErrCut is the error of a try that has found that ctx has ended. The caller of the library gets another error, which says
// how.
var ErrCut = errors.New("ctx has ended")

// ErrPanicked is the error in the events of a call that has ended with a panic. The caller gets the panic.
var ErrPanicked = errors.New("redislock: a hook, a strategy or a tracer panicked")

// Invalid returns an error that wraps ErrInvalid and says why.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ErrNilContext is the error of a call with a nil ctx.
var ErrNilContext = Invalid("ctx is nil; pass context.Background() where there is none")

// NotObtained returns the error of an obtain that ctx has ended.
func NotObtained(why error) error {
	return fmt.Errorf("%w: %w", ErrNotObtained, why)
}

// lateError is the error of a grant that took too long to arrive.
type lateError struct{ took, ttl time.Duration }

// TooLate returns the error for a grant that has just arrived, of a request that was sent at that time.
func TooLate(sent time.Time, ttl time.Duration) error {
	return &lateError{took: time.Since(sent), ttl: ttl}
}

func (e *lateError) Error() string {
	took := e.took.Round(time.Millisecond)
	return fmt.Sprintf("%v: the grant took %v to arrive, and the ttl is %v", ErrNotObtained, took, e.ttl)
}

// Is reports whether target is ErrNotObtained or ErrLapsed.
func (e *lateError) Is(target error) bool { return target == ErrNotObtained || target == ErrLapsed }
